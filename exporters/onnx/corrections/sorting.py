"""Order statistics, none of which torch.onnx exports.

ONNX's TopK gives equal values by ascending index and, in ONNX Runtime, orders NaN above everything, as torch does.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from exporters.onnx.corrections._build import axis_of, dim_size, is_floating, op, scalar, squeezed
from exporters.onnx.corrections.reduction import any_nan, first_nan

__all__ = ["TRANSLATIONS"]

aten = torch.ops.aten

_SORTABLE = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.INT32)


def _smallest(value: Any, count: Any, axis: int, descending: bool = False) -> tuple[Any, Any]:
    """The ``count`` smallest (or largest) in order, and their indices."""
    sortable = value if value.dtype in _SORTABLE else op.Cast(value, to=ir.DataType.INT32)
    values, indices = op.TopK(sortable, count, axis=axis, largest=int(descending), sorted=1)
    return values if sortable is value else op.Cast(values, to=value.dtype), indices


def _at_least_1d(value: Any) -> Any:
    if len(value.shape):
        return value
    flat = op.Reshape(value, op.Constant(value_ints=[1]))
    flat.dtype, flat.shape = value.dtype, ir.Shape([1])
    return flat


def sort_stable(self: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    """``torch.sort(stable=True)``."""
    if not len(self.shape):
        return self, op.Constant(value=ir.tensor(0, dtype=ir.DataType.INT64))
    axis = axis_of(dim, self)
    return _smallest(self, dim_size(self, axis), axis, descending)


def kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """The k-th smallest, counted from 1, and its index."""
    value, axis = _at_least_1d(self), axis_of(dim, self)
    values, indices = _smallest(value, op.Constant(value_ints=[k]), axis)
    return _last(values, axis, keepdim, self), _last(indices, axis, keepdim, self)


def _last(value: Any, axis: int, keepdim: bool, like: Any) -> Any:
    last = op.Slice(value, op.Constant(value_ints=[-1]), op.Constant(value_ints=[_END]), op.Constant(value_ints=[axis]))
    return squeezed(last, axis, keepdim and bool(len(like.shape)))


_END = 2**63 - 1


def median_along(self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The lower of the two middle values, and its index; a NaN of the slice wins."""
    value, axis = _at_least_1d(self), axis_of(dim, self)
    keep = keepdim and bool(len(self.shape))
    count = op.Div(op.Add(dim_size(value, axis), op.Constant(value_ints=[1])), op.Constant(value_ints=[2]))
    values, indices = _smallest(value, count, axis)
    values, indices = _last(values, axis, keepdim, self), _last(indices, axis, keepdim, self)
    if not is_floating(value):
        return values, indices
    spoiled = any_nan(value, [axis], keep)
    return (
        op.Where(spoiled, scalar(math.nan, value), values),
        op.Where(spoiled, first_nan(value, axis, keep), indices),
    )


def median(self: Any) -> Any:
    """The lower median of all elements."""
    return median_along(_flat(self), 0)[0]


def nanmedian_along(self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The lower median of the numbers of each slice; NaN where there is none."""
    if not is_floating(self):
        return median_along(self, dim, keepdim)
    value, axis = _at_least_1d(self), axis_of(dim, self)
    values, indices = _smallest(value, dim_size(value, axis), axis)
    numbers = op.ReduceSum(
        op.Cast(op.Not(op.IsNaN(value)), to=ir.DataType.INT64), op.Constant(value_ints=[axis]), keepdims=1
    )
    middle = op.Div(op.Sub(numbers, op.Constant(value_ints=[1])), op.Constant(value_ints=[2]))
    middle = op.Max(middle, op.Constant(value_ints=[0]))
    keep = keepdim and bool(len(self.shape))
    return tuple(squeezed(op.GatherElements(each, middle, axis=axis), axis, keep) for each in (values, indices))


def nanmedian(self: Any) -> Any:
    """The lower median of all numbers."""
    return nanmedian_along(_flat(self), 0)[0]


def _flat(value: Any) -> Any:
    flat = op.Reshape(value, op.Constant(value_ints=[-1]))
    flat.dtype, flat.shape = value.dtype, ir.Shape([None])
    return flat


def mode(self: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """The smallest of the most frequent values, and the last index of it. Memory grows with the square of the dim."""
    value, axis = _at_least_1d(self), axis_of(dim, self)
    rank = len(value.shape)
    swap = [*range(axis), *range(axis + 1, rank), axis]
    turned = op.Transpose(value, perm=swap)
    turned.dtype = value.dtype
    ordered, _ = _smallest(turned, dim_size(value, axis), -1)
    along, across = op.Constant(value_ints=[-1]), op.Constant(value_ints=[-2])
    same = op.Equal(op.Unsqueeze(ordered, along), op.Unsqueeze(ordered, across))
    counts = op.ReduceSum(op.Cast(same, to=ir.DataType.INT32), along, keepdims=0)
    best = op.ArgMax(counts, axis=-1, keepdims=1)  # the first in ascending order: the smallest value
    found = op.GatherElements(ordered, best, axis=-1)
    found = op.Transpose(found, perm=_inverse(swap))
    hits = op.Cast(op.Equal(value, found), to=ir.DataType.INT32)
    keep = keepdim and bool(len(self.shape))
    return squeezed(found, axis, keep), op.ArgMax(hits, axis=axis, keepdims=keep, select_last_index=1)


def _inverse(permutation: list[int]) -> list[int]:
    return [permutation.index(axis) for axis in range(len(permutation))]


TRANSLATIONS = {
    aten.sort.stable: sort_stable,
    aten.kthvalue.default: kthvalue,
    aten.median.dim: median_along,
    aten.median.default: median,
    aten.nanmedian.dim: nanmedian_along,
    aten.nanmedian.default: nanmedian,
    aten.mode.default: mode,
}
