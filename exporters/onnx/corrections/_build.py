"""Small pieces that several translations share. ``op`` is onnxscript's opset; torch.onnx records what is called on it."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import opset18 as op

__all__ = ["axis_of", "dim_size", "filled", "is_floating", "negative", "op", "other_dims", "scalar", "squeezed"]


def is_floating(value: Any) -> bool:
    """Whether an ``ir.Value`` holds floating point numbers."""
    return bool(value.dtype.is_floating_point())


def scalar(number: float, like: Any) -> Any:
    """A 0-d constant of the dtype of ``like``."""
    return op.Constant(value=ir.tensor(number, dtype=like.dtype))


def negative(value: Any) -> Any:
    """Where the sign bit is set, as a bool tensor; of NaN it says False, since ONNX cannot see the sign of a NaN."""
    below = op.Less(value, scalar(0, value))
    return op.Or(below, op.Less(op.Reciprocal(value), scalar(0, value))) if is_floating(value) else below


def axis_of(dim: int, value: Any) -> int:
    """A non-negative axis; a 0-d tensor counts as one of size 1."""
    return dim % max(len(value.shape), 1)


def dim_size(value: Any, axis: int) -> Any:
    """The size of one dim, as an int64 tensor of shape (1,)."""
    return op.Shape(value, start=axis, end=axis + 1)


def other_dims(value: Any, axis: int) -> Any:
    """The shape without one axis, as a 1-D int64 tensor."""
    return op.Concat(op.Shape(value, start=0, end=axis), op.Shape(value, start=axis + 1), axis=0)


def filled(number: float, shape: Any, dtype: ir.DataType) -> Any:
    """A tensor of one number."""
    return op.ConstantOfShape(shape, value=ir.tensor([number], dtype=dtype))


def squeezed(value: Any, axis: int, keepdim: bool) -> Any:
    """Without the axis of size 1, unless it is to be kept."""
    return value if keepdim else op.Squeeze(value, op.Constant(value_ints=[axis]))
