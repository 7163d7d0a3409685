"""``python -m interop`` is the command ``interop``."""

import sys

from interop.cli import main

if __name__ == "__main__":
    sys.exit(main())
