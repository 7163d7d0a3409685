"""Which nodes are computed on the host, while the graph is built or when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import fx

from exporters.torch._table import HOST, Lowering
from exporters.torch._values import is_string
from interop.dtypes import dtype_of

__all__ = ["host_function", "is_host", "is_text"]

_OF_VECTORS = frozenset({"ReduceProd", "ReduceSum", "ScatterElements"})


def host_function(entry: Lowering, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Callable[..., Any] | None:
    """The function for a node's inputs; None where it belongs to tensors.

    Args:
        entry: the operator.
        inputs: fx nodes with a note of what they give, arrays that are known, weights, None for what is left out.
        attributes: the node's.
    """
    function = None if entry.domain else HOST.get(entry.operator)
    given = [x for x in inputs if x is not None]
    if function is None or not given:
        return None
    if any(map(is_text, given)):
        return None if entry.operator == "Cast" else function
    if not all(map(is_host, given)) or any(_is_real(x) for x in given):
        return None
    return function if _fits(entry.operator, given, attributes) else None


def _fits(operator: str, given: Sequence[Any], attributes: Mapping[str, Any]) -> bool:
    if operator == "Cast":
        return dtype_of(attributes["to"]).kind in ("int", "bool")
    if operator == "Expand":
        return isinstance(given[1], np.ndarray)
    if operator in _OF_VECTORS:
        return (
            _rank(given[0]) == 1
            and attributes.get("reduction", "none") == "none"
            and not (len(given) == 1 and attributes.get("noop_with_empty_axes"))
        )
    return not attributes.get("batch_dims") and attributes.get("reduction", "none") == "none"


def is_host(value: Any) -> bool:
    """Whether a value is, or will be, a host array."""
    return isinstance(value, np.ndarray) or (isinstance(value, fx.Node) and bool(value.meta.get("host")))


def is_text(value: Any) -> bool:
    """Whether a value is, or will be, an array of strings."""
    return is_string(value) or (isinstance(value, fx.Node) and bool(value.meta.get("string")))


def _is_real(value: Any) -> bool:
    """Floats belong to tensors."""
    return isinstance(value, np.ndarray) and value.dtype.kind not in "iub"


def _rank(value: Any) -> int | None:
    if isinstance(value, np.ndarray):
        return value.ndim
    kind = value.meta.get("type")
    return None if kind is None or kind.shape is None else len(kind.shape)
