"""Import a framework at the moment it is needed, with an error that names the extra."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType

from interop.errors import MissingExtraError

__all__ = ["EXTRAS", "loaded", "require"]

EXTRAS: dict[str, str] = {
    "torch": "torch",
    "safetensors": "torch",
    "onnx": "onnx",
    "onnx_ir": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "onnxruntime_extensions": "operators",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "tf2onnx": "tensorflow",
    "ai_edge_litert": "litert",
    "jax": "jax",
    "ray": "ray",
    "pyarrow": "ray",
    "starlette": "ray",
    "grpc": "serving",
    "google": "serving",
    "mlflow": "mlflow",
    "tensorboard": "tensorboard",
    "captum": "captum",
    "kornia": "kornia",
}
"""Import name -> the extra of this project that installs it."""


def loaded(name: str) -> ModuleType | None:
    """The module, if somebody has imported it; a tensor of a framework that nobody imported cannot exist."""
    return sys.modules.get(name)


def require(name: str, purpose: str) -> ModuleType:
    """Import a framework.

    Args:
        name: import name, such as ``"tensorflow"``.
        purpose: what needs it: ``"to run a SavedModel"``.

    Raises:
        MissingExtraError: it is not installed; the message names the extra.
    """
    module = sys.modules.get(name)
    if module is not None:
        return module
    try:
        with _quiet(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != name.split(".")[0]:
            raise
        top = name.split(".")[0]
        raise MissingExtraError(top, EXTRAS.get(top, top), purpose) from error


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Hold back what TensorFlow's C++ code writes to the stderr of the process while it is imported.

    Its own switches do not reach the first lines. What was written is shown if the import fails.
    """
    if name.split(".")[0] not in ("tensorflow", "keras"):
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as noise:
        kept = os.dup(2)
        os.dup2(noise.fileno(), 2)
        try:
            yield
        except BaseException:
            noise.seek(0)
            os.write(kept, noise.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
