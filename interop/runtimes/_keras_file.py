"""Keras archives (``.keras``): a configuration and weights, read without running code that the file holds."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

from interop.errors import ModelFileError
from interop.extras import require

__all__ = ["is_keras_file", "load_keras"]

_FAULTS = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    OSError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What Keras raises over a damaged or odd archive: whatever reading it ran into."""

_UNKNOWN = re.compile(r"Could not locate (?:class|function) '([^']+)'")


def is_keras_file(path: Path) -> bool:
    """Whether a path has the name of a Keras archive."""
    return path.suffix == ".keras"


def load_keras(path: Path, *, allow_code: bool = False) -> Any:
    """Load a Keras archive for inference: without its optimizer and losses.

    Args:
        path: the file.
        allow_code: also rebuild Python functions from bytecode in the file (Lambda layers), which can run anything.

    Raises:
        ModelFileError: damaged, no Keras archive, classes that are not registered, or code in it that was not allowed.
    """
    require("tensorflow", "to read a Keras archive")  # the backend that its runtime needs
    keras = require("keras", "to read a Keras archive")
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=not allow_code)
    except _FAULTS as error:
        raise ModelFileError(f"{path}: {_explain(str(error))}") from error


def _explain(said: str) -> str:
    if "safe_mode" in said:
        return (
            "it holds a Lambda layer with Python code, which can run anything; if you trust the file, "
            "load it with keras.saving.load_model(path, safe_mode=False) and pass the model"
        )
    if (unknown := _UNKNOWN.search(said)) is not None:
        return (
            f"it holds {unknown[1]!r}, which Keras does not know; import the module that registers it "
            "(keras.saving.register_keras_serializable), or pass the model itself"
        )
    return f"not a Keras archive, or a damaged one: {' '.join(said.split())[:300]}"
