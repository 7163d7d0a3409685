"""ONNX Runtime's own operators, as its optimizer and quantizer write them.

Source: the operator schemas of onnxruntime, ``docs/ContribOperators.md``.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters._graph.contrib import FLOAT32_MIN_EPSILON, MICROSOFT
from exporters.torch._table import lower
from exporters.torch._values import HALVES, RefusedError


@lower("Gelu", domain=MICROSOFT)
def gelu(X):
    return functional.gelu(X)


@lower("BiasGelu", domain=MICROSOFT)
def bias_gelu(A, B):
    return functional.gelu(A + B)


@lower("FastGelu", domain=MICROSOFT)
def fast_gelu(X, bias=None):
    return functional.gelu(X if bias is None else X + bias, approximate="tanh")


@lower("QuickGelu", domain=MICROSOFT)
def quick_gelu(X, *, alpha=1.702):
    return X * torch.sigmoid(alpha * X)


@lower("FusedMatMul", domain=MICROSOFT)
def fused_mat_mul(A, B, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    if min(A.ndim, B.ndim) < 2:
        raise RefusedError("an input is a vector; only matrices and batches of them are served")
    a = A.movedim(0, -2) if transBatchA else A
    b = B.movedim(0, -2) if transBatchB else B
    product = torch.matmul(a.transpose(-1, -2) if transA else a, b.transpose(-1, -2) if transB else b)
    return product if alpha == 1 else alpha * product


_ACTIVATIONS = {"Relu": torch.relu, "Sigmoid": torch.sigmoid, "Tanh": torch.tanh}


def _activate(x, name, alpha, beta):
    """The activation of a fused operator, whose parameters come in the order of its own attributes."""
    if not name:
        return x
    if name == "LeakyRelu":
        return functional.leaky_relu(x, 0.01 if alpha is None else alpha)
    if name == "HardSigmoid":
        return torch.clamp((0.2 if alpha is None else alpha) * x + (0.5 if beta is None else beta), 0, 1)
    if name not in _ACTIVATIONS:
        raise RefusedError(f"the activation {name} is not one of {', '.join(_ACTIVATIONS)}, LeakyRelu, HardSigmoid")
    return _ACTIVATIONS[name](x)


@lower("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    A,
    B,
    C=None,
    *,
    activation=None,
    activation_alpha=None,
    activation_beta=None,
    activation_gamma=None,
    alpha=1.0,
    beta=1.0,
    transA=0,
    transB=0,
):
    y = fused_mat_mul(A, B, alpha=alpha, transA=transA, transB=transB)
    y = y if C is None else y + beta * C
    return _activate(y, activation, activation_alpha, activation_beta)


def _layer_norm(x, gamma, beta, epsilon):
    """Normalised over the last axis, with its mean and inverse deviation; computed in float32 at least."""
    wide = x.float() if x.dtype in HALVES else x
    mean = wide.mean(-1, keepdim=True)
    centred = wide - mean
    inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + epsilon)
    y = centred * inverse * gamma.to(wide.dtype)
    return (y if beta is None else y + beta.to(wide.dtype)).to(x.dtype), mean, inverse


def _rms_norm(x, scale, axes, epsilon):
    """Divided by the root of its mean square over the axes, and the inverse of that root."""
    wide = x.float() if x.dtype in HALVES else x
    inverse = torch.rsqrt(wide.square().mean(axes, keepdim=True) + epsilon)
    return (wide * inverse * scale.to(wide.dtype)).to(x.dtype), inverse


@lower("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(input, skip, gamma, beta=None, bias=None, *, epsilon=FLOAT32_MIN_EPSILON):
    total = input + skip if bias is None else input + skip + bias
    return *_layer_norm(total, gamma, beta, epsilon), total


@lower("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(input, skip, gamma, bias=None, *, epsilon=FLOAT32_MIN_EPSILON):
    total = input + skip if bias is None else input + skip + bias
    y, inverse = _rms_norm(total, gamma, [-1], epsilon)
    return y, torch.zeros_like(inverse), inverse, total


@lower("SimplifiedLayerNormalization")
def simplified_layer_normalization(X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    return _rms_norm(X, scale, list(range(axis % X.ndim, X.ndim)), epsilon)


@lower("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    input_ids,
    segment_ids,
    word_embedding,
    position_embedding,
    segment_embedding,
    gamma,
    beta,
    mask=None,
    position_ids=None,
    *,
    epsilon=FLOAT32_MIN_EPSILON,
    mask_index_type=None,
):
    batch, length = input_ids.shape
    if position_ids is None:
        position_ids = torch.arange(length, device=input_ids.device)[None]
    total = functional.embedding(input_ids, word_embedding) + functional.embedding(position_ids, position_embedding)
    if segment_embedding is not None:
        total = total + functional.embedding(segment_ids, segment_embedding)
    seen = torch.zeros(batch, dtype=torch.int32, device=total.device) if mask is None else mask.sum(1).to(torch.int32)
    return _layer_norm(total, gamma, beta, epsilon)[0], seen, total


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
    codes = _unpacked(B, bits).reshape(N, blocks, block_size).to(scales.dtype)
    scales = scales.reshape(N, blocks)
    offsets = _offsets(zero_points, scales, bits)
    if g_idx is None:
        weight = ((codes - offsets[..., None]) * scales[..., None]).reshape(N, blocks * block_size)[:, :K]
    else:  # the block of each column, in any order
        columns = codes.reshape(N, blocks * block_size)[:, :K]
        weight = (columns - offsets[:, g_idx.long()]) * scales[:, g_idx.long()]
    return functional.linear(A, weight.to(A.dtype), bias)


def _unpacked(packed, bits):
    """The numbers of a few bits each that bytes hold, lowest bits first, along the last axis."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    codes = (packed[..., None] >> shifts) & (2**bits - 1)
    return codes.reshape(*packed.shape[:-1], packed.shape[-1] * (8 // bits))


def _offsets(zero_points, scales, bits):
    """What stands for zero in each block, in the scales' type."""
    if zero_points is None:
        return torch.full_like(scales, 2 ** (bits - 1))
    rows, blocks = scales.shape
    if zero_points.dtype != scales.dtype:  # packed as the weight is, each row beginning with a new byte
        zero_points = _unpacked(zero_points.reshape(rows, -1), bits)[:, :blocks]
    return zero_points.reshape(rows, blocks).to(scales.dtype)
