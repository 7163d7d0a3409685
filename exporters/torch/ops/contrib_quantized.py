"""ONNX Runtime's own quantised operators, as its quantisation tools emit them.

Source: the operator schemas of onnxruntime, ``docs/ContribOperators.md``.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters._graph.contrib import MICROSOFT
from exporters.torch._quantized import along, dequantize, dynamic_quantize, multiply_integers, quantize, requantize
from exporters.torch._table import lower


@lower("QuantizeLinear", domain=MICROSOFT, takes=("dtypes",))
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=None, dtypes):
    dtype = dtypes[0] or ("uint8" if y_zero_point is None else y_zero_point.dtype)
    return quantize(x, along(y_scale, x, axis or 0), along(y_zero_point, x, axis or 0), dtype)


@lower("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=None):
    return dequantize(x, along(x_scale, x, axis or 0), along(x_zero_point, x, axis or 0))


@lower("QLinearAdd", domain=MICROSOFT)
def qlinear_add(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point=None):
    total = dequantize(A, A_scale, A_zero_point) + dequantize(B, B_scale, B_zero_point)
    return quantize(total, C_scale, C_zero_point, A.dtype)


@lower("QLinearMul", domain=MICROSOFT)
def qlinear_mul(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point=None):
    product = dequantize(A, A_scale, A_zero_point) * dequantize(B, B_scale, B_zero_point)
    return quantize(product, C_scale, C_zero_point, A.dtype)


@lower("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(X, X_scale, X_zero_point, Y_scale, Y_zero_point=None):
    return quantize(torch.sigmoid(dequantize(X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X.dtype)


@lower("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(X, X_scale, X_zero_point, Y_scale, Y_zero_point=None, *, alpha=0.01):
    return quantize(functional.leaky_relu(dequantize(X, X_scale, X_zero_point), alpha), Y_scale, Y_zero_point, X.dtype)


@lower("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(X, X_scale, x_zero_point, y_scale, y_zero_point, *, axis=-1, opset):
    x = dequantize(X, X_scale, x_zero_point)
    if opset < 13:  # over all axes from `axis` on
        x = x.flatten(axis % x.ndim)
        axis = -1
    return quantize(torch.softmax(x, axis), y_scale, y_zero_point, X.dtype).reshape(X.shape)


@lower("QLinearWhere", domain=MICROSOFT)
def qlinear_where(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    chosen = torch.where(condition, dequantize(X, x_scale, x_zero_point), dequantize(Y, y_scale, y_zero_point))
    return quantize(chosen, z_scale, z_zero_point, X.dtype)


@lower("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(Y_scale, Y_zero_point, *inputs, axis):
    parts = [dequantize(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return quantize(torch.cat(parts, axis), Y_scale, Y_zero_point, inputs[0].dtype)


@lower("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(X, x_scale, x_zero_point, y_scale, y_zero_point, *, channels_last=0):
    axes = list(range(1, X.ndim - 1) if channels_last else range(2, X.ndim))
    mean = dequantize(X, x_scale, x_zero_point).mean(axes, keepdim=True)
    return quantize(mean, y_scale, y_zero_point, X.dtype)


def _scaled_product(A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias):
    if a_scale.ndim == 1 and a_scale.shape[0] != 1:
        a_scale = a_scale[:, None]
    product = multiply_integers(A, B, a_zero_point, b_zero_point).to(a_scale.dtype) * (a_scale * b_scale)
    return product if bias is None else product + bias


@lower("MatMulIntegerToFloat", domain=MICROSOFT)
def mat_mul_integer_to_float(A, B, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    return _scaled_product(A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias)


@lower("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_mat_mul(A, B, b_scale, b_zero_point=None, bias=None):
    a, a_scale, a_zero_point = dynamic_quantize(A)
    return _scaled_product(a, B, a_scale, b_scale, a_zero_point, b_zero_point, bias)


@lower("QGemm", domain=MICROSOFT)
def qgemm(
    A, a_scale, a_zero_point, B, b_scale, b_zero_point, C=None, y_scale=None, y_zero_point=None, *,
    alpha=1.0, transA=0, transB=0,
):  # fmt: skip
    a, b = (x.T if flag else x for x, flag in ((A, transA), (B, transB)))
    product = multiply_integers(a, b, a_zero_point, b_zero_point)
    total = (product if C is None else product + C).float()
    scale = alpha * a_scale * b_scale
    if y_scale is None:
        return total * scale
    return requantize(total * (scale / y_scale), y_zero_point, A.dtype)
