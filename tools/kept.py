"""The make targets of minutes that can run here: those whose tools are installed or whose builds are kept. CI runs them too.

python -m tools.kept prints their names, a line each; on the standard error it says why another one is left out.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable

from tools import cache, horovod

__all__ = ["OBSTACLES", "runnable"]

ONNX_TF = "onnx-tf-1.10.0"


def _libtorch() -> str | None:
    missing = [tool for tool in ("cmake", "c++") if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)}" if missing else None


def _horovod() -> str | None:
    if os.environ.get("TENSOR_INTEROP_HOROVOD") == "0":
        return "switched off by TENSOR_INTEROP_HOROVOD=0"
    return None if horovod.cached() else "not built yet"


def _onnx_tf() -> str | None:
    return None if (cache.folder(ONNX_TF) / "onnx_tf").is_dir() else "not installed yet"


OBSTACLES: dict[str, Callable[[], str | None]] = {
    "libtorch": _libtorch,
    "horovod": _horovod,
    "onnx-tf": _onnx_tf,
    "load-test": lambda: None,
}
"""What keeps each target from running here, or None."""


def runnable() -> list[str]:
    """The targets that nothing keeps from running."""
    return [target for target, obstacle in OBSTACLES.items() if obstacle() is None]


def main() -> None:
    """Print the targets, and what keeps the others."""
    for target, obstacle in OBSTACLES.items():
        if reason := obstacle():
            sys.stderr.write(f"make {target} is left out: {reason}\n")
    sys.stdout.write("".join(f"{target}\n" for target in runnable()))


if __name__ == "__main__":
    main()
