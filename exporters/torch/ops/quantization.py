"""Quantised operators."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._casts import cast_to
from exporters.torch._table import lower
from exporters.torch._values import torch_dtype
from exporters.torch._windows import pad_spatial, window_of
from interop.dtypes import dtype_of

_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def _along(parameter, x, axis, block_size):
    """A scale or zero point in a shape that broadcasts to ``x``: one value, one a channel of the axis, or one a block."""
    if parameter is None or parameter.ndim == 0 or (parameter.ndim == 1 and parameter.shape[0] == 1 and not block_size):
        return None if parameter is None else parameter.reshape([])
    axis %= x.ndim
    if block_size:
        return parameter.repeat_interleave(block_size, axis).narrow(axis, 0, x.shape[axis])
    return parameter.reshape([-1 if place == axis else 1 for place in range(x.ndim)])


def _range(entry):
    """The smallest and the largest integer of a type."""
    if entry.kind == "uint":
        return 0, 2**entry.bits - 1
    return -(2 ** (entry.bits - 1)), 2 ** (entry.bits - 1) - 1


@lower("QuantizeLinear", takes=("dtypes",))
def quantize_linear(
    x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1, dtypes
):
    entry = dtype_of(output_dtype or dtypes[0] or ("uint8" if y_zero_point is None else y_zero_point.dtype))
    work = torch_dtype(precision) if precision else y_scale.dtype
    scaled = cast_to(x, work) / _along(cast_to(y_scale, work), x, axis, block_size)
    zero = _along(y_zero_point, x, axis, block_size)
    if entry.kind == "float":
        return cast_to(scaled, entry, saturate=bool(saturate))
    wide = torch.round(scaled.float() if scaled.dtype != torch.float64 else scaled)
    if zero is not None:
        wide = wide + zero.to(wide.dtype)
    return torch.clamp(wide, *_range(entry)).to(torch.int32).to(torch_dtype(entry))


@lower("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    dtype = torch_dtype(output_dtype) if output_dtype else x_scale.dtype
    scale, zero = _along(cast_to(x_scale, dtype), x, axis, block_size), _along(x_zero_point, x, axis, block_size)
    if x.dtype.is_floating_point:
        return x.to(dtype) * scale
    whole = x.to(torch.int32) if zero is None else x.to(torch.int32) - zero.to(torch.int32)
    return whole.to(dtype) * scale


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(x):
    low, high = torch.clamp(x.amin(), max=0), torch.clamp(x.amax(), min=0)
    scale = (high - low) / 255
    safe = torch.where(scale == 0, 1, scale)
    zero = torch.clamp(torch.round(-low / safe), 0, 255)
    y = torch.clamp(torch.round(x / safe) + zero, 0, 255)
    return y.to(torch.uint8), scale, zero.to(torch.uint8)


def _shifted(x, zero_point, axis, dtype):
    x = x.to(dtype)
    if zero_point is None:
        return x
    zero = zero_point.to(dtype)
    if zero.ndim == 1 and zero.shape[0] > 1:
        zero = zero.reshape([-1 if place == axis % x.ndim else 1 for place in range(x.ndim)])
    elif zero.ndim == 1:
        zero = zero.reshape([])
    return x - zero


@lower("MatMulInteger")
def mat_mul_integer(A, B, a_zero_point=None, b_zero_point=None):
    a, b = _shifted(A, a_zero_point, -2, torch.int32), _shifted(B, b_zero_point, -1, torch.int32)
    return torch.matmul(a, b)


@lower("QLinearMatMul")
def qlinear_mat_mul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    product = mat_mul_integer(a, b, a_zero_point, b_zero_point).float()
    a_scale, b_scale, y_scale = a_scale.float(), b_scale.float(), y_scale.float()
    if a_scale.ndim == 1 and a_scale.shape[0] != 1:
        a_scale = a_scale[:, None]
    return _requantized(product * (a_scale * b_scale / y_scale), y_zero_point)


def _requantized(real, zero_point):
    entry = dtype_of(zero_point.dtype)
    return torch.clamp(torch.round(real) + zero_point.to(real.dtype), *_range(entry)).to(zero_point.dtype)


def _convolved(x, w, x_zero, w_zero, auto_pad, dilations, group, pads, strides):
    """The exact convolution, in float64, which holds its integers."""
    x, w = _shifted(x, x_zero, 1, torch.float64), _shifted(w, w_zero, 0, torch.float64)
    window = window_of(w.shape[2:], strides, dilations)
    x = pad_spatial(x, window.pads(x.shape[2:], auto_pad, pads))
    return _CONV[window.rank](x, w, None, window.strides, 0, window.dilations, group)


@lower("ConvInteger")
def conv_integer(
    x,
    w,
    x_zero_point=None,
    w_zero_point=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    return _convolved(x, w, x_zero_point, w_zero_point, auto_pad, dilations, group, pads, strides).to(torch.int32)


@lower("QLinearConv")
def qlinear_conv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    y = _convolved(x, w, x_zero_point, w_zero_point, auto_pad, dilations, group, pads, strides)
    line = [-1, *[1] * (y.ndim - 2)]
    if B is not None:
        y = y + B.to(y.dtype).reshape(line)
    scale = x_scale * w_scale / y_scale
    return _requantized(y.float() * (scale.reshape(line) if scale.ndim else scale), y_zero_point)
