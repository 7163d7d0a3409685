"""Linear quantisation and exact integer products, which the quantised operators are made of."""

from __future__ import annotations

from typing import Any

import torch

from exporters.torch._casts import cast_to
from exporters.torch._values import torch_dtype
from interop.dtypes import dtype_of

__all__ = ["along", "dequantize", "dynamic_quantize", "multiply_integers", "quantize", "requantize", "shifted"]


def along(parameter: Any, x: Any, axis: int, block_size: int = 0) -> Any:
    """A scale or zero point in a shape that broadcasts to ``x``: one value, one a channel of the axis, or one a block."""
    if parameter is None or parameter.ndim == 0 or (parameter.ndim == 1 and parameter.shape[0] == 1 and not block_size):
        return None if parameter is None else parameter.reshape([])
    axis %= x.ndim
    if block_size:
        return parameter.repeat_interleave(block_size, axis).narrow(axis, 0, x.shape[axis])
    return parameter.reshape([-1 if place == axis else 1 for place in range(x.ndim)])


def _range(entry: Any) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    if entry.kind == "uint":
        return 0, 2**entry.bits - 1
    return -(2 ** (entry.bits - 1)), 2 ** (entry.bits - 1) - 1


def quantize(x: Any, scale: Any, zero_point: Any, dtype: Any, *, saturate: bool = True) -> Any:
    """``round(x / scale) + zero_point`` in the range of the type; floats are not rounded to integers first.

    Args:
        x: the tensor, in the type in which to divide.
        scale: broadcasts against it.
        zero_point: likewise, or None.
        dtype: the quantised type, as ``dtype_of`` takes it.
        saturate: for float8 types.
    """
    return requantize(x / scale, zero_point, dtype, saturate=saturate)


def requantize(y: Any, zero_point: Any, dtype: Any, *, saturate: bool = True) -> Any:
    """``quantize`` after the division."""
    entry = dtype_of(dtype)
    if entry.kind == "float":
        return cast_to(y, entry, saturate=saturate)
    wide = torch.round(y.float() if y.dtype != torch.float64 else y)
    if zero_point is not None:
        wide = wide + zero_point.to(wide.dtype)
    return torch.clamp(wide, *_range(entry)).to(torch.int32).to(torch_dtype(entry))


def dequantize(x: Any, scale: Any, zero_point: Any) -> Any:
    """``(x - zero_point) * scale`` in the type of the scale, which broadcasts against the tensor."""
    if x.dtype.is_floating_point:
        return x.to(scale.dtype) * scale
    whole = x.to(torch.int32) if zero_point is None else x.to(torch.int32) - zero_point.to(torch.int32)
    return whole.to(scale.dtype) * scale


def dynamic_quantize(x: Any) -> tuple[Any, Any, Any]:
    """The tensor as uint8 over its own range, which is made to hold 0, with its scale and zero point."""
    low, high = torch.clamp(x.amin(), max=0), torch.clamp(x.amax(), min=0)
    scale = (high - low) / 255
    safe = torch.where(scale == 0, 1, scale)
    zero = torch.clamp(torch.round(-low / safe), 0, 255)
    y = torch.clamp(torch.round(x / safe) + zero, 0, 255)
    return y.to(torch.uint8), scale, zero.to(torch.uint8)


def shifted(x: Any, zero_point: Any, axis: int, dtype: torch.dtype) -> Any:
    """The values less their zero point, in a type that holds them."""
    x = x.to(dtype)
    if zero_point is None:
        return x
    zero = zero_point.to(dtype)
    if zero.ndim == 1 and zero.shape[0] > 1:
        zero = zero.reshape([-1 if place == axis % x.ndim else 1 for place in range(x.ndim)])
    elif zero.ndim == 1:
        zero = zero.reshape([])
    return x - zero


def multiply_integers(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """The exact product of two matrices of small integers less their zero points, in int32."""
    return torch.matmul(shifted(a, a_zero, -2, torch.int32), shifted(b, b_zero, -1, torch.int32))
