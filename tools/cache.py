"""Where what takes minutes to build is kept, so that every checkout of this machine finds it.

python -m tools.cache NAME prints the folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder(name: str) -> Path:
    """The folder for a build.

    Args:
        name: of the build, with every version that it is bound to.

    Returns:
        A folder, which may not exist, below ``TENSOR_INTEROP_CACHE`` or, where that is not set, below the user's cache.
    """
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensor-interop"
    return Path(os.environ.get("TENSOR_INTEROP_CACHE") or users) / name


if __name__ == "__main__":
    sys.stdout.write(f"{folder(sys.argv[1])}\n")
