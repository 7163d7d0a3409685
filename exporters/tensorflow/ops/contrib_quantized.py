"""ONNX Runtime's own quantised operators, as its quantisation tools emit them.

Source: the operator schemas of onnxruntime, ``docs/ContribOperators.md``.
"""

from __future__ import annotations

import tensorflow as tf

from exporters._graph.contrib import MICROSOFT
from exporters.tensorflow._quantized import (
    dequantize,
    dynamic_quantize,
    multiply_integers,
    per_axis,
    quantize,
    requantize,
)
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of, tf_dtype
from interop.dtypes import dtype_of


@lower("QuantizeLinear", domain=MICROSOFT, static=("y_zero_point",))
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=None):
    dtype = tf.uint8 if y_zero_point is None else _dtype_of(y_zero_point)

    def apply(x, scale, zero_point):
        return quantize(x, scale, zero_point, dtype)

    return per_axis(apply, x, [y_scale, y_zero_point], axis or 0)


@lower("DequantizeLinear", domain=MICROSOFT, static=("x_zero_point",))
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=None):
    def apply(x, scale, zero_point):
        return dequantize(x, scale, zero_point, scale.dtype)

    return per_axis(apply, x, [x_scale, x_zero_point], axis or 0)


def _dtype_of(zero_point):
    return tf_dtype(dtype_of(zero_point.dtype))


def _real(x, scale, zero_point):
    return dequantize(x, scale, zero_point, tf.float32)


def _quantized(y, scale, zero_point, dtype):
    return quantize(y, scale, zero_point, dtype)


@lower("QLinearAdd", domain=MICROSOFT, static=("A_zero_point", "B_zero_point", "C_zero_point"))
def qlinear_add(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point=None):
    total = _real(A, A_scale, A_zero_point) + _real(B, B_scale, B_zero_point)
    return _quantized(total, C_scale, C_zero_point, A.dtype)


@lower("QLinearMul", domain=MICROSOFT, static=("A_zero_point", "B_zero_point", "C_zero_point"))
def qlinear_mul(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point=None):
    product = _real(A, A_scale, A_zero_point) * _real(B, B_scale, B_zero_point)
    return _quantized(product, C_scale, C_zero_point, A.dtype)


@lower("QLinearSigmoid", domain=MICROSOFT, static=("X_zero_point", "Y_zero_point"))
def qlinear_sigmoid(X, X_scale, X_zero_point, Y_scale, Y_zero_point=None):
    return _quantized(tf.sigmoid(_real(X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X.dtype)


@lower("QLinearLeakyRelu", domain=MICROSOFT, static=("X_zero_point", "Y_zero_point"))
def qlinear_leaky_relu(X, X_scale, X_zero_point, Y_scale, Y_zero_point=None, *, alpha=0.01):
    return _quantized(tf.nn.leaky_relu(_real(X, X_scale, X_zero_point), alpha), Y_scale, Y_zero_point, X.dtype)


@lower("QLinearSoftmax", domain=MICROSOFT, static=("x_zero_point", "y_zero_point"))
def qlinear_softmax(X, X_scale, x_zero_point, y_scale, y_zero_point, *, axis=-1, opset):
    x = _real(X, X_scale, x_zero_point)
    if opset >= 13:
        return _quantized(tf.nn.softmax(x, axis), y_scale, y_zero_point, X.dtype)
    shape = shape_of(x, tf.int32)  # in older opsets over all axes from `axis` on
    flat = tf.reshape(x, [*shape[: axis % rank_of(x)], -1])
    return _quantized(tf.reshape(tf.nn.softmax(flat), shape), y_scale, y_zero_point, X.dtype)


@lower("QLinearWhere", domain=MICROSOFT, static=("x_zero_point", "y_zero_point", "z_zero_point"))
def qlinear_where(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    chosen = tf.where(condition, _real(X, x_scale, x_zero_point), _real(Y, y_scale, y_zero_point))
    return _quantized(chosen, z_scale, z_zero_point, X.dtype)


@lower("QLinearConcat", domain=MICROSOFT, static=("Y_zero_point",))
def qlinear_concat(Y_scale, Y_zero_point, *inputs, axis):
    parts = [_real(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return _quantized(tf.concat(parts, axis), Y_scale, Y_zero_point, inputs[0].dtype)


@lower("QLinearGlobalAveragePool", domain=MICROSOFT, static=("x_zero_point", "y_zero_point"))
def qlinear_global_average_pool(X, x_scale, x_zero_point, y_scale, y_zero_point, *, channels_last=0):
    axes = list(range(1, rank_of(X) - 1) if channels_last else range(2, rank_of(X)))
    mean = tf.reduce_mean(_real(X, x_scale, x_zero_point), axes, keepdims=True)
    return _quantized(mean, y_scale, y_zero_point, X.dtype)


def _scaled_product(A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias):
    if rank_of(a_scale) == 1 and a_scale.shape[0] != 1:
        a_scale = a_scale[:, tf.newaxis]
    product = tf.cast(multiply_integers(A, B, a_zero_point, b_zero_point), a_scale.dtype) * (a_scale * b_scale)
    return product if bias is None else product + bias


@lower("MatMulIntegerToFloat", domain=MICROSOFT, static=("a_zero_point", "b_zero_point"))
def mat_mul_integer_to_float(A, B, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    return _scaled_product(A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias)


@lower("DynamicQuantizeMatMul", domain=MICROSOFT, static=("b_zero_point",))
def dynamic_quantize_mat_mul(A, B, b_scale, b_zero_point=None, bias=None):
    a, a_scale, a_zero_point = dynamic_quantize(A)
    return _scaled_product(a, B, a_scale, b_scale, a_zero_point, b_zero_point, bias)


@lower("QGemm", domain=MICROSOFT, static=("a_zero_point", "b_zero_point", "y_zero_point"))
def qgemm(
    A, a_scale, a_zero_point, B, b_scale, b_zero_point, C=None, y_scale=None, y_zero_point=None, *,
    alpha=1.0, transA=0, transB=0,
):  # fmt: skip
    a, b = (tf.transpose(x) if flag else x for x, flag in ((A, transA), (B, transB)))
    product = multiply_integers(a, b, a_zero_point, b_zero_point)
    total = tf.cast(product if C is None else product + C, tf.float32)
    scale = alpha * a_scale * b_scale
    if y_scale is None:
        return total * scale
    return requantize(total * (scale / y_scale), y_zero_point, A.dtype)


@lower("MatMulNBits", domain=MICROSOFT)
def mat_mul_n_bits(
    A,
    B,
    scales,
    zero_points=None,
    g_idx=None,
    bias=None,
    *,
    K,
    N,
    accuracy_level=0,
    bits=4,
    block_size,
    weight_prepacked=0,
):
    if weight_prepacked:
        raise RefusedError("its weight is packed for one kernel of ONNX Runtime (weight_prepacked)")
    blocks = -(-K // block_size)
    codes = tf.cast(tf.reshape(_unpacked(B, bits), [N, blocks, block_size]), scales.dtype)
    scales = tf.reshape(scales, [N, blocks])
    offsets = _offsets(zero_points, scales, bits, N, blocks)
    if g_idx is None:
        weight = (codes - offsets[..., tf.newaxis]) * scales[..., tf.newaxis]
        weight = tf.reshape(weight, [N, blocks * block_size])[:, :K]
    else:  # the block of each column, in any order
        codes = tf.reshape(codes, [N, blocks * block_size])[:, :K]
        weight = (codes - tf.gather(offsets, g_idx, axis=1)) * tf.gather(scales, g_idx, axis=1)
    y = tf.tensordot(A, tf.cast(weight, A.dtype), [[rank_of(A) - 1], [1]])
    return y if bias is None else y + bias


def _unpacked(packed, bits):
    """The numbers of a few bits each that bytes hold, lowest bits first, along the last axis."""
    shifts = tf.constant(list(range(0, 8, bits)), tf.uint8)
    codes = tf.bitwise.right_shift(tf.expand_dims(packed, -1), shifts) & tf.constant(2**bits - 1, tf.uint8)
    return tf.reshape(codes, [*packed.shape[:-1], packed.shape[-1] * (8 // bits)])


def _offsets(zero_points, scales, bits, rows, blocks):
    """What stands for zero in each block, in the scales' type."""
    if zero_points is None:
        return tf.fill([rows, blocks], tf.constant(2 ** (bits - 1), scales.dtype))
    if zero_points.dtype != scales.dtype:  # packed as the weight is, each row beginning with a new byte
        zero_points = _unpacked(tf.reshape(zero_points, [rows, -1]), bits)[:, :blocks]
    return tf.cast(tf.reshape(zero_points, [rows, blocks]), scales.dtype)
