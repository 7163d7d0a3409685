"""Quantised operators."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._casts import cast_to
from exporters.torch._quantized import (
    along,
    dequantize,
    dynamic_quantize,
    multiply_integers,
    quantize,
    requantize,
    shifted,
)
from exporters.torch._table import lower
from exporters.torch._values import torch_dtype
from exporters.torch._windows import pad_spatial, window_of
from interop.dtypes import dtype_of

_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


@lower("QuantizeLinear", takes=("dtypes",))
def quantize_linear(
    x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1, dtypes
):
    entry = dtype_of(output_dtype or dtypes[0] or ("uint8" if y_zero_point is None else y_zero_point.dtype))
    work = torch_dtype(precision) if precision else y_scale.dtype
    scale, zero = along(cast_to(y_scale, work), x, axis, block_size), along(y_zero_point, x, axis, block_size)
    return quantize(cast_to(x, work), scale, zero, entry, saturate=bool(saturate))


@lower("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    scale = cast_to(x_scale, torch_dtype(output_dtype)) if output_dtype else x_scale
    return dequantize(x, along(scale, x, axis, block_size), along(x_zero_point, x, axis, block_size))


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(x):
    return dynamic_quantize(x)


@lower("MatMulInteger")
def mat_mul_integer(A, B, a_zero_point=None, b_zero_point=None):
    return multiply_integers(A, B, a_zero_point, b_zero_point)


@lower("QLinearMatMul")
def qlinear_mat_mul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    product = multiply_integers(a, b, a_zero_point, b_zero_point).float()
    a_scale, b_scale, y_scale = a_scale.float(), b_scale.float(), y_scale.float()
    if a_scale.ndim == 1 and a_scale.shape[0] != 1:
        a_scale = a_scale[:, None]
    return requantize(product * (a_scale * b_scale / y_scale), y_zero_point, y_zero_point.dtype)


def _convolved(x, w, x_zero, w_zero, auto_pad, dilations, group, pads, strides):
    """The exact convolution, in float64, which holds its integers."""
    x, w = shifted(x, x_zero, 1, torch.float64), shifted(w, w_zero, 0, torch.float64)
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
    return requantize(y.float() * (scale.reshape(line) if scale.ndim else scale), y_zero_point, y_zero_point.dtype)
