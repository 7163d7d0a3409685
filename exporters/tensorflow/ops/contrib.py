"""ONNX Runtime's own float operators, as its optimizer and torch's exporter emit them.

Source: the operator schemas of onnxruntime, ``docs/ContribOperators.md``.
"""

from __future__ import annotations

import tensorflow as tf

from exporters._graph.contrib import FLOAT32_MIN_EPSILON, MICROSOFT
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of


@lower("Gelu", domain=MICROSOFT)
def gelu(X):
    return tf.nn.gelu(X)


@lower("BiasGelu", domain=MICROSOFT)
def bias_gelu(A, B):
    return tf.nn.gelu(A + B)


@lower("FastGelu", domain=MICROSOFT)
def fast_gelu(X, bias=None):
    return tf.nn.gelu(X if bias is None else X + bias, approximate=True)


@lower("QuickGelu", domain=MICROSOFT)
def quick_gelu(X, *, alpha=1.702):
    return X * tf.sigmoid(X * tf.constant(alpha, X.dtype))


@lower("FusedMatMul", domain=MICROSOFT)
def fused_mat_mul(A, B, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    if min(rank_of(A), rank_of(B)) < 2:
        raise RefusedError("an input is a vector; only matrices and batches of them are served")
    a = _first_to_rows(A) if transBatchA else A
    b = _first_to_rows(B) if transBatchB else B
    product = tf.matmul(a, b, transpose_a=bool(transA), transpose_b=bool(transB))
    return product if alpha == 1 else tf.constant(alpha, product.dtype) * product


def _first_to_rows(x):
    """``[M, ..., K]`` to ``[..., M, K]``."""
    rank = rank_of(x)
    return tf.transpose(x, [*range(1, rank - 1), 0, rank - 1])


_ACTIVATIONS = {
    "": lambda x: x,
    "Relu": tf.nn.relu,
    "Sigmoid": tf.sigmoid,
    "Tanh": tf.tanh,
}


def _activate(x, name, alpha, beta):
    """The activation of a fused operator, whose parameters come in the order of its own attributes."""
    if name == "LeakyRelu":
        return tf.nn.leaky_relu(x, 0.01 if alpha is None else alpha)
    if name == "HardSigmoid":
        linear = (0.2 if alpha is None else alpha) * x + (0.5 if beta is None else beta)
        return tf.minimum(tf.maximum(linear, 0.0), 1.0)
    if name not in _ACTIVATIONS:
        raise RefusedError(
            f"the activation {name} is not one of {', '.join(filter(None, _ACTIVATIONS))}, LeakyRelu, HardSigmoid"
        )
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
    if C is not None:
        y += C if beta == 1 else tf.constant(beta, C.dtype) * C
    return _activate(y, activation or "", activation_alpha, activation_beta)


def _layer_norm(x, gamma, beta, epsilon):
    """Normalised over the last axis, with its mean and inverse deviation; computed in float32 at least."""
    wide = tf.cast(x, tf.float32) if x.dtype.size < 4 else x
    mean = tf.reduce_mean(wide, -1, keepdims=True)
    centred = wide - mean
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
    y = centred * inverse * tf.cast(gamma, wide.dtype)
    return tf.cast(y if beta is None else y + tf.cast(beta, wide.dtype), x.dtype), mean, inverse


def _rms_norm(x, scale, axes, epsilon):
    """Divided by the root of its mean square over the axes, and the inverse of that root."""
    wide = tf.cast(x, tf.float32) if x.dtype.size < 4 else x
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(wide), axes, keepdims=True) + epsilon)
    return tf.cast(wide * inverse * tf.cast(scale, wide.dtype), x.dtype), inverse


@lower("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(input, skip, gamma, beta=None, bias=None, *, epsilon=FLOAT32_MIN_EPSILON):
    total = input + skip if bias is None else input + skip + bias
    return *_layer_norm(total, gamma, beta, epsilon), total


@lower("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(input, skip, gamma, bias=None, *, epsilon=FLOAT32_MIN_EPSILON):
    total = input + skip if bias is None else input + skip + bias
    y, inverse = _rms_norm(total, gamma, [-1], epsilon)
    return y, tf.zeros_like(inverse), inverse, total


@lower("SimplifiedLayerNormalization")
def simplified_layer_normalization(X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    return _rms_norm(X, scale, list(range(axis % rank_of(X), rank_of(X))), epsilon)


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
    batch, length = shape_of(input_ids, tf.int32)
    if position_ids is None:
        position_ids = tf.range(length)[tf.newaxis, :]
    total = tf.gather(word_embedding, input_ids) + tf.gather(position_embedding, position_ids)
    if segment_embedding is not None:
        total += tf.gather(segment_embedding, segment_ids)
    seen = tf.zeros([batch], tf.int32) if mask is None else tf.reduce_sum(tf.cast(mask, tf.int32), 1)
    return _layer_norm(total, gamma, beta, epsilon)[0], seen, total
