"""Operators that ONNX Runtime's CPU has, but not for the dtype: it refuses the whole model then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

__all__ = ["DECOMPOSITIONS"]

aten = torch.ops.aten

_NARROW = (torch.int8, torch.int16, torch.uint8)


def bool_where(condition: Any, self: Any, other: Any) -> Any:
    """ONNX Runtime has no Where for bool."""
    if self.dtype != torch.bool or other.dtype != torch.bool:
        return NotImplemented
    return (condition & self) | (~condition & other)


def bool_add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """The sum of bools is their "or"; ONNX's Add takes numbers only."""
    if not isinstance(other, torch.Tensor) or {self.dtype, other.dtype} != {torch.bool}:
        return NotImplemented
    return torch.logical_or(self, other) if alpha else self


def _widened(product: Callable[..., Any]) -> Callable[..., Any]:
    """ONNX Runtime multiplies matrices of int32, not of narrower integers; both wrap around."""

    def multiplied(self: Any, other: Any) -> Any:
        if self.dtype not in _NARROW:
            return NotImplemented
        return product(self.to(torch.int32), other.to(torch.int32)).to(self.dtype)

    return multiplied


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    return getattr(node.meta.get("val"), "dtype", None)


def _is_bool(node: torch.fx.Node) -> bool:
    return _dtype(node) == torch.bool


def _is_narrow(node: torch.fx.Node) -> bool:
    return _dtype(node) in _NARROW


def _is_double(node: torch.fx.Node) -> bool:
    return _dtype(node) == torch.float64


_RESIZES = (
    aten.upsample_nearest1d,
    aten.upsample_nearest2d,
    aten.upsample_nearest3d,
    aten.upsample_bilinear2d,
    aten.upsample_trilinear3d,
    aten.upsample_bicubic2d,
)

DECOMPOSITIONS: dict[Any, tuple[Callable[..., Any], Callable[[torch.fx.Node], bool]]] = {
    aten.where.self: (bool_where, _is_bool),
    aten.add.Tensor: (bool_add, _is_bool),
    **{each.default: (_widened(each.default), _is_narrow) for each in (aten.mm, aten.bmm, aten.matmul)},
    # ONNX Runtime's Resize is for float32; torch's own decompositions gather and weigh
    **{each.vec: (decomposition_table[each.vec], _is_double) for each in _RESIZES},
}
