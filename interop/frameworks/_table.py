"""Which frameworks there are, and whose tensor a value is, without importing any."""

from __future__ import annotations

import difflib
import functools
import importlib
import sys
from importlib.metadata import entry_points
from typing import Any, cast

from interop.errors import ConversionError
from interop.extras import require
from interop.frameworks._info import Framework

__all__ = ["ENTRY_POINTS", "FRAMEWORKS", "all_frameworks", "framework", "framework_of", "owner_of"]

FRAMEWORKS: dict[str, str] = {
    "numpy": "interop.frameworks.numpy",
    "torch": "interop.frameworks.torch",
    "tensorflow": "interop.frameworks.tensorflow",
    "onnxruntime": "interop.frameworks.onnxruntime",
    "jax": "interop.frameworks.jax",
    "cupy": "interop.frameworks.cupy",
}
"""Import name of a framework -> the module that knows it."""

ENTRY_POINTS = "interop.frameworks"
"""Entry point group of third parties: the framework's import name = the module that knows it."""

_OWNERS: dict[type, Framework] = {}


@functools.cache
def all_frameworks() -> dict[str, str]:
    """The table together with what installed packages add to it; they cannot replace an entry."""
    found = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return found | FRAMEWORKS


@functools.cache
def framework(name: str) -> Framework:
    """Load a framework and the module that knows it.

    Args:
        name: import name, such as ``"torch"``.

    Raises:
        ConversionError: no such framework.
        MissingExtraError: it is not installed.
    """
    path = all_frameworks().get(name) if isinstance(name, str) else None
    if path is None:
        near = difflib.get_close_matches(str(name), all_frameworks(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConversionError(f"{name!r} is not a framework; there are {', '.join(all_frameworks())}{hint}")
    require(name, "to convert tensors to or from it")
    return cast(Framework, importlib.import_module(path))


def owner_of(kind: type) -> Framework | None:
    """The framework whose tensors are instances of a class; only frameworks that are loaded are asked."""
    owner = _OWNERS.get(kind)
    if owner is not None:
        return owner
    for name in all_frameworks():
        if name in sys.modules and framework(name).owns(kind):
            _OWNERS[kind] = framework(name)
            return _OWNERS[kind]
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        _OWNERS[kind] = cast(Framework, importlib.import_module("interop.frameworks.dlpack"))
    return _OWNERS.get(kind)


def framework_of(x: Any) -> str | None:
    """Name the framework that owns a tensor.

    Args:
        x: anything.

    Returns:
        The framework's name; ``"dlpack"`` for an object of an unknown library that has ``__dlpack__``; None where ``x`` is
        no tensor. No framework is imported for the answer: a tensor of one
        that nobody loaded cannot exist.

    Example:
        >>> framework_of(np.ones(3))
        'numpy'
    """
    owner = owner_of(type(x))
    return None if owner is None else owner.NAME
