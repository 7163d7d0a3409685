"""Quantised operators."""

from __future__ import annotations

import math

import tensorflow as tf

from exporters.tensorflow._casts import cast_to
from exporters.tensorflow._convolutions import convolve
from exporters.tensorflow._layout import channels_first, channels_last
from exporters.tensorflow._quantized import (
    dequantize,
    dynamic_quantize,
    multiply_integers,
    per_axis,
    quantize,
    requantize,
    unflattened,
)
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of, shape_of, tf_dtype
from exporters.tensorflow._windows import window_of
from interop.dtypes import dtype_of

EXACT_FLOAT32 = 2**24 // 255**2
"""That many products of two 8-bit numbers can be summed in float32 without rounding."""


@lower("QuantizeLinear", static=("y_zero_point",))
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    dtype = tf_dtype(output_dtype or ("uint8" if y_zero_point is None else dtype_of(y_zero_point.dtype)))
    work = tf_dtype(precision) if precision else y_scale.dtype

    def apply(x, scale, zero_point):
        return quantize(x, scale, zero_point, dtype, saturate=bool(saturate))

    return per_axis(apply, cast_to(x, work), [cast_to(y_scale, work), y_zero_point], axis, block_size)


@lower("DequantizeLinear", static=("x_zero_point",))
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    dtype = tf_dtype(output_dtype) if output_dtype else x_scale.dtype

    def apply(x, scale, zero_point):
        return dequantize(x, scale, zero_point, dtype)

    return per_axis(apply, x, [cast_to(x_scale, dtype), x_zero_point], axis, block_size)


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(x):
    return dynamic_quantize(x)


@lower("MatMulInteger", static=("a_zero_point", "b_zero_point"))
def mat_mul_integer(A, B, a_zero_point=None, b_zero_point=None):
    return multiply_integers(A, B, a_zero_point, b_zero_point)


@lower("QLinearMatMul", static=("a_zero_point", "b_zero_point", "y_zero_point"))
def qlinear_mat_mul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    product = tf.cast(multiply_integers(a, b, a_zero_point, b_zero_point), tf.float32)
    a_scale, b_scale, y_scale = (tf.cast(scale, tf.float32) for scale in (a_scale, b_scale, y_scale))
    if a_scale.shape.rank == 1 and a_scale.shape[0] != 1:
        a_scale = a_scale[:, tf.newaxis]
    return requantize(product * (a_scale * b_scale / y_scale), y_zero_point, _quantized_dtype(y_zero_point))


def _quantized_dtype(zero_point):
    return tf_dtype(dtype_of(zero_point.dtype))


def _convolve_integers(x, w, x_zero, w_zero, auto_pad, dilations, group, kernel_shape, pads, strides):
    """The exact convolution, channels last, in a float type that holds its integers."""
    work = tf.float64
    if w.shape.is_fully_defined() and math.prod(w.shape[1:]) <= EXACT_FLOAT32:
        work = tf.float32
    if w_zero is not None and rank_of(w_zero) == 1:
        w_zero = unflattened(w_zero, w.shape.rank, 0)
    one = tf.constant(1, work)
    x, w = dequantize(x, one, x_zero, work), dequantize(w, one, w_zero, work)
    window = window_of(kernel_shape or w.shape[2:], strides, dilations)
    edges = window.pads(shape_of(x, tf.int32)[2:], auto_pad, pads)
    kernel = tf.transpose(w, [*range(2, w.shape.rank), 1, 0])
    return convolve(channels_last(x), kernel, window, edges, group)


@lower("ConvInteger", static=("x_zero_point", "w_zero_point"))
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
    y = _convolve_integers(x, w, x_zero_point, w_zero_point, auto_pad, dilations, group, kernel_shape, pads, strides)
    return tf.cast(channels_first(y), tf.int32)


@lower("QLinearConv", static=("x_zero_point", "w_zero_point", "y_zero_point"))
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
    y = _convolve_integers(x, w, x_zero_point, w_zero_point, auto_pad, dilations, group, kernel_shape, pads, strides)
    if B is not None:
        y += tf.cast(B, y.dtype)
    scale = x_scale * w_scale / y_scale  # a vector belongs to the channels, the last axis here
    return channels_first(requantize(tf.cast(y, tf.float32) * scale, y_zero_point, _quantized_dtype(y_zero_point)))
