"""Search, selection and scattering."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from exporters.onnx.corrections._build import dim_size, op

__all__ = ["DECOMPOSITIONS", "TRANSLATIONS"]

aten = torch.ops.aten


def masked_select(self: Any, mask: Any) -> Any:
    """Not exported by torch.onnx."""
    flat = op.Constant(value_ints=[-1])
    wide = op.Reshape(op.Expand(self, op.Shape(mask)), flat)
    return op.Compress(wide, op.Reshape(op.Expand(mask, op.Shape(self)), flat))


def searchsorted(
    sorted_sequence: Any,
    self: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Not exported by torch.onnx. Counts the smaller elements, NaN being the largest; memory grows with both sizes."""
    if sorter is not None:
        sorted_sequence = op.GatherElements(sorted_sequence, sorter, axis=-1)
    return _count_before(sorted_sequence, _as_tensor(self, sorted_sequence), right or side == "right", out_int32)


def bucketize(self: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    """Not exported by torch.onnx, where the boundaries are an input."""
    return _count_before(boundaries, _as_tensor(self, boundaries), right, out_int32)


def _as_tensor(value: Any, like: Any) -> Any:
    if isinstance(value, ir.Value):
        return value if value.dtype == like.dtype else op.Cast(value, to=like.dtype)
    return op.Constant(value=ir.tensor(value, dtype=like.dtype))


def _count_before(boundaries: Any, values: Any, right: bool, out_int32: bool) -> Any:
    last = op.Constant(value_ints=[-1])
    across = op.Unsqueeze(boundaries, op.Constant(value_ints=[-2])) if len(boundaries.shape) > 1 else boundaries
    column = op.Unsqueeze(values, last)
    # not >= and not >, rather than < and <=: a NaN is past everything
    before = op.Not(op.Greater(across, column) if right else op.GreaterOrEqual(across, column))
    counts = op.ReduceSum(op.Cast(before, to=ir.DataType.INT32), last, keepdims=0)
    return counts if out_int32 else op.Cast(counts, to=ir.DataType.INT64)


def cdist(x1: Any, x2: Any, p: float, compute_mode: int | None = None) -> Any:
    """Not exported by torch.onnx. Every pair of rows, as ``torch.cdist`` has it below 25 rows and for other norms."""
    difference = op.Sub(op.Unsqueeze(x1, op.Constant(value_ints=[-2])), op.Unsqueeze(x2, op.Constant(value_ints=[-3])))
    return _norm(difference, p, x1.dtype)


def pdist(self: Any, p: float = 2.0) -> Any:
    """Not exported by torch.onnx: the pairs of rows above the diagonal."""
    size = dim_size(self, 0)
    square = op.ConstantOfShape(op.Concat(size, size, axis=0), value=ir.tensor([1], dtype=ir.DataType.INT32))
    above = op.NonZero(op.Trilu(square, op.Constant(value=ir.tensor(1, dtype=ir.DataType.INT64)), upper=1))
    rows = [op.Gather(self, op.Gather(above, op.Constant(value_int=side), axis=0), axis=0) for side in (0, 1)]
    return _norm(op.Sub(*rows), p, self.dtype)


def _norm(difference: Any, p: float, dtype: ir.DataType) -> Any:
    last, size = op.Constant(value_ints=[-1]), op.Abs(difference)
    if p == 0:
        nonzero = op.Not(op.Equal(size, op.Constant(value=ir.tensor(0, dtype=dtype))))
        return op.ReduceSum(op.Cast(nonzero, to=dtype), last, keepdims=0)
    if p == 1:
        return op.ReduceSum(size, last, keepdims=0)
    if p == 2:
        return op.ReduceL2(difference, last, keepdims=0)
    if p == float("inf"):
        return op.ReduceMax(size, last, keepdims=0)
    exponent, root = (op.Constant(value=ir.tensor(number, dtype=dtype)) for number in (p, 1 / p))
    return op.Pow(op.ReduceSum(op.Pow(size, exponent), last, keepdims=0), root)


def scatter(self: Any, dim: int, index: Any, src: Any) -> Any:
    """ONNX wants as many updates as indices; torch takes the corner of a larger ``src``."""
    return op.ScatterElements(self, index, _corner(src, index), axis=dim)


def scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    """As ``scatter``, and equal places add up."""
    return op.ScatterElements(self, index, _corner(src, index), axis=dim, reduction="add")


def _corner(src: Any, index: Any) -> Any:
    rank = len(index.shape)
    if not rank or list(src.shape) == list(index.shape):
        return src
    return op.Slice(src, op.Constant(value_ints=[0] * rank), op.Shape(index), op.Constant(value_ints=list(range(rank))))


def scatter_mean(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    """torch.onnx writes ``reduce="mean"`` as a scatter without reduction: the last value wins."""
    if reduce != "mean":
        return NotImplemented
    counts = torch.ones_like(self) if include_self else torch.zeros_like(self)
    counts = counts.scatter_add(dim, index, torch.ones_like(src)).clamp_min(1)
    total = self.scatter_reduce(dim, index, src, "sum", include_self=include_self)
    return total / counts if self.is_floating_point() else torch.div(total, counts, rounding_mode="floor")


def index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """Not exported by torch.onnx: a scatter whose index is the same along the other dims."""
    shape = [1] * self.dim()
    shape[dim] = -1
    wide = index.view(shape).expand_as(source)
    if reduce == "mean":
        return scatter_mean(self, dim, wide, source, "mean", include_self=include_self)
    return self.scatter_reduce(dim, wide, source, reduce, include_self=include_self)


def _mean(node: torch.fx.Node) -> bool:
    return "mean" in (*node.args[4:5], node.kwargs.get("reduce"))


def _always(node: torch.fx.Node) -> bool:
    return True


TRANSLATIONS = {
    aten.masked_select.default: masked_select,
    aten.searchsorted.Tensor: searchsorted,
    aten.searchsorted.Scalar: searchsorted,
    aten.bucketize.Tensor: bucketize,
    aten.bucketize.Scalar: bucketize,
    aten._cdist_forward.default: cdist,
    aten._pdist_forward.default: pdist,
    aten.scatter.src: scatter,
    aten.scatter_add.default: scatter_add,
}

DECOMPOSITIONS = {
    aten.scatter_reduce.two: (scatter_mean, _mean),
    aten.index_reduce.default: (index_reduce, _always),
}
