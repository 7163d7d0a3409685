"""Nested arguments and results as a flat list of tensors and a skeleton of plain tuples.

TorchDynamo traces these functions, which is why they are this plain and the skeleton holds nothing but tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interop.operators._errors import OperatorError

__all__ = ["Skeleton", "pack", "unpack"]

Skeleton = Any
"""The index of a tensor, ``("value", plain value)``, or ``(kind, keys, children)`` with the kind tuple, list or dict."""


def pack(value: Any, tensors: list[Any], is_tensor: Callable[[Any], bool]) -> Skeleton:
    """Move the tensors of a nested value to a list.

    Args:
        value: tensors and plain values (None, bool, int, float, str) in tuples, lists and dicts.
        tensors: they are appended here.
        is_tensor: what counts as one.

    Returns:
        What ``unpack`` needs to build the value again.

    Raises:
        OperatorError: the value holds something else.
    """
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return (kind, (), tuple([pack(item, tensors, is_tensor) for item in value]))
    if isinstance(value, dict):
        children = tuple([pack(item, tensors, is_tensor) for item in value.values()])
        return ("dict", tuple(value), children)
    if value is None or type(value) in (bool, int, float, str):  # quick; NumPy's float64 is a float too, and a tensor
        return ("value", value)
    if is_tensor(value):
        tensors.append(value)
        return len(tensors) - 1
    if type(value).__name__ == "SymInt":  # a size under torch.export, which becomes part of the program
        return ("value", int(value))
    if isinstance(value, (int, float, str)):
        return ("value", value)
    raise OperatorError(
        f"an operator takes and gives tensors, None, bool, int, float and str, in tuples, lists and dicts; got {value!r}"
    )


def unpack(skeleton: Skeleton, tensors: Sequence[Any]) -> Any:
    """The nested value, with these tensors in it."""
    if isinstance(skeleton, int):
        return tensors[skeleton]
    if len(skeleton) == 2:
        return skeleton[1]
    kind, keys, children = skeleton
    items = [unpack(child, tensors) for child in children]
    if kind == "dict":
        return dict(zip(keys, items))
    return tuple(items) if kind == "tuple" else items
