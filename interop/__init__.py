"""Tensors, runtimes and comparison across PyTorch, ONNX Runtime, TensorFlow, NumPy and JAX.

Importing this package imports no framework. The public names load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from interop.errors import (
    AliasingError,
    ConversionError,
    CopyRequiredError,
    InputError,
    InteropError,
    MissingExtraError,
    ModelFileError,
    ParityError,
)

if TYPE_CHECKING:
    from interop.frameworks import Explanation, convert, explain, framework_of, guard
    from interop.health import doctor
    from interop.operators import as_keras_layer, as_torch_module, operator
    from interop.parity import ParityReport, check, compare, replay
    from interop.runtimes import Runtime, load
    from interop.signature import Signature, TensorSpec

__version__ = "0.1.0"

_LAZY = {
    "load": "interop.runtimes",
    "Runtime": "interop.runtimes",
    "convert": "interop.frameworks",
    "explain": "interop.frameworks",
    "guard": "interop.frameworks",
    "Explanation": "interop.frameworks",
    "framework_of": "interop.frameworks",
    "check": "interop.parity",
    "compare": "interop.parity",
    "replay": "interop.parity",
    "ParityReport": "interop.parity",
    "doctor": "interop.health",
    "operator": "interop.operators",
    "as_torch_module": "interop.operators",
    "as_keras_layer": "interop.operators",
    "Signature": "interop.signature",
    "TensorSpec": "interop.signature",
}

__all__ = [
    "load",
    "convert",
    "explain",
    "guard",
    "framework_of",
    "check",
    "compare",
    "replay",
    "doctor",
    "operator",
    "as_torch_module",
    "as_keras_layer",
    "Runtime",
    "Signature",
    "TensorSpec",
    "ParityReport",
    "Explanation",
    "InteropError",
    "MissingExtraError",
    "ConversionError",
    "CopyRequiredError",
    "AliasingError",
    "ModelFileError",
    "InputError",
    "ParityError",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
