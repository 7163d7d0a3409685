"""Extrema: ONNX Runtime's ReduceMax, ArgMax and their kin pass over NaN, torch answers NaN and its first index."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from exporters.onnx.corrections._build import axis_of, is_floating, op, scalar

__all__ = ["TRANSLATIONS", "any_nan", "first_nan"]

aten = torch.ops.aten


def any_nan(value: Any, axes: Sequence[int] | None, keepdims: bool) -> Any:
    """Where a slice holds a NaN."""
    found = op.ReduceMax(op.Cast(op.IsNaN(value), to=ir.DataType.INT32), _axes(axes), keepdims=keepdims)
    return op.Cast(found, to=ir.DataType.BOOL)


def first_nan(value: Any, axis: int, keepdims: bool) -> Any:
    """The index of the first NaN, or 0."""
    return op.ArgMax(op.Cast(op.IsNaN(value), to=ir.DataType.INT32), axis=axis, keepdims=keepdims)


def _axes(axes: Sequence[int] | None) -> Any:
    return op.Constant(value_ints=list(axes)) if axes else None


def _extreme(reduce: Callable[..., Any], value: Any, axes: Sequence[int] | None, keepdims: bool) -> Any:
    if value.dtype == ir.DataType.BOOL:  # no such kernel before opset 20
        as_numbers = reduce(op.Cast(value, to=ir.DataType.INT32), _axes(axes), keepdims=keepdims)
        return op.Cast(as_numbers, to=ir.DataType.BOOL)
    found = reduce(value, _axes(axes), keepdims=keepdims)
    if not is_floating(value):
        return found
    return op.Where(any_nan(value, axes, keepdims), scalar(math.nan, value), found)


def _position(locate: Callable[..., Any], value: Any, dim: int | None, keepdim: bool) -> Any:
    if dim is None:
        return _flat_position(locate, value, keepdim)
    if not len(value.shape):
        return op.Constant(value=ir.tensor(0, dtype=ir.DataType.INT64))
    return _position_along(locate, value, axis_of(dim, value), keepdim, is_floating(value))


def _flat_position(locate: Callable[..., Any], value: Any, keepdim: bool) -> Any:
    flat = op.Reshape(value, op.Constant(value_ints=[-1]))
    found = _position_along(locate, flat, 0, False, is_floating(value))
    return op.Reshape(found, op.Constant(value_ints=[1] * len(value.shape))) if keepdim else found


def _position_along(locate: Callable[..., Any], value: Any, axis: int, keepdim: bool, floating: bool) -> Any:
    found = locate(value, axis=axis, keepdims=keepdim)
    if not floating:
        return found
    return op.Where(any_nan(value, [axis], keepdim), first_nan(value, axis, keepdim), found)


def amax(self: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    """NaN of a slice wins, as in torch."""
    return _extreme(op.ReduceMax, self, dim, keepdim)


def amin(self: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    """NaN of a slice wins, as in torch."""
    return _extreme(op.ReduceMin, self, dim, keepdim)


def maximum_of_all(self: Any) -> Any:
    """NaN wins, as in torch."""
    return _extreme(op.ReduceMax, self, None, False)


def minimum_of_all(self: Any) -> Any:
    """NaN wins, as in torch."""
    return _extreme(op.ReduceMin, self, None, False)


def argmax(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The first NaN, as in torch, or the first largest."""
    return _position(op.ArgMax, self, dim, keepdim)


def argmin(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The first NaN, as in torch, or the first smallest."""
    return _position(op.ArgMin, self, dim, keepdim)


def max_along(self: Any, dim: int, keepdim: bool = False) -> Any:
    """The values and indices of ``torch.max(x, dim)``; NaN wins."""
    return amax(self, [dim], keepdim) if len(self.shape) else self, argmax(self, dim, keepdim)


def min_along(self: Any, dim: int, keepdim: bool = False) -> Any:
    """The values and indices of ``torch.min(x, dim)``; NaN wins."""
    return amin(self, [dim], keepdim) if len(self.shape) else self, argmin(self, dim, keepdim)


TRANSLATIONS = {
    aten.amax.default: amax,
    aten.amin.default: amin,
    aten.max.default: maximum_of_all,
    aten.min.default: minimum_of_all,
    aten.argmax.default: argmax,
    aten.argmin.default: argmin,
    aten.max.dim: max_along,
    aten.min.dim: min_along,
}
