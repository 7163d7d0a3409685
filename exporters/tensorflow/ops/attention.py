"""Attention with caches, masks and grouped heads, and rotary position embeddings."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from exporters.tensorflow._attention import (
    Mask,
    attend,
    causal_positions,
    merge_heads,
    pad_mask,
    product,
    rotate,
    split_heads,
)
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of, shape_of, tf_dtype

AFTER_SOFTCAP, AFTER_BIAS, AFTER_SOFTMAX = 1, 2, 3


@lower("Attention")
def attention(
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    *,
    is_causal=0,
    kv_num_heads=None,
    left_window_size=-1,
    q_num_heads=None,
    qk_matmul_output_mode=0,
    right_window_size=-1,
    scale=None,
    softcap=0.0,
    softmax_precision=None,
):
    packed = rank_of(Q) == 3
    if packed:
        Q, K, V = split_heads(Q, q_num_heads), split_heads(K, kv_num_heads), split_heads(V, kv_num_heads)
    offset = 0
    if past_key is not None:
        offset = shape_of(past_key, tf.int32)[2]
        K, V = tf.concat([past_key, K], 2), tf.concat([past_value, V], 2)
    elif nonpad_kv_seqlen is not None:
        offset = tf.cast(nonpad_kv_seqlen, tf.int32) - shape_of(Q, tf.int32)[2]
    lengths = shape_of(Q, tf.int32)[2], shape_of(K, tf.int32)[2]
    mask = _mask(attn_mask, lengths, nonpad_kv_seqlen)
    _restrict_to_window(mask, lengths, offset, left_window_size, 0 if is_causal else right_window_size)

    raw = _scores(Q, K, scale)
    capped = softcap * tf.tanh(raw / softcap) if softcap else raw
    precision = None if softmax_precision is None else tf_dtype(softmax_precision)
    Y, masked, weights = attend(capped, V, mask, precision)
    shown = {AFTER_SOFTCAP: capped, AFTER_BIAS: masked, AFTER_SOFTMAX: weights}.get(qk_matmul_output_mode, raw)
    return merge_heads(Y) if packed else Y, K, V, shown


def _scores(Q, K, scale):
    if scale is None:
        size = shape_of(Q)[3]
        scale = 1 / math.sqrt(size) if isinstance(size, int) else tf.math.rsqrt(tf.cast(size, Q.dtype))
    if Q.dtype in (tf.float16, tf.bfloat16):  # half of the scale on each side, against overflow
        root = tf.cast(tf.sqrt(tf.cast(scale, tf.float32)), Q.dtype)
        return product(Q * root, K * root, transpose_right=True)
    return product(Q * tf.cast(scale, Q.dtype), K, transpose_right=True)


def _mask(attn_mask, lengths, nonpad_kv_seqlen):
    mask = Mask()
    _, keys = lengths
    if attn_mask is not None and attn_mask.dtype == tf.bool:
        mask.restrict(pad_mask(attn_mask, keys, False), whole_rows=True)
    elif attn_mask is not None:
        mask.bias = pad_mask(attn_mask, keys, np.array(-np.inf, attn_mask.dtype.as_numpy_dtype))
        mask.whole_rows = True
    if nonpad_kv_seqlen is not None:
        valid = tf.cast(nonpad_kv_seqlen, tf.int32)[:, tf.newaxis, tf.newaxis, tf.newaxis]
        mask.restrict(tf.range(tf.cast(keys, tf.int32)) < valid, whole_rows=True)
    return mask


def _restrict_to_window(mask, lengths, offset, left, right):
    """Hide keys that stand too far before or behind a query; -1 leaves a side open."""
    if left < 0 and right < 0:
        return
    queries, keys = lengths
    query, key = causal_positions(queries, keys, offset)
    # A query sees itself, unless there are fewer keys than queries or the cache has padding.
    seen = right == 0 and left < 0 and not (isinstance(offset, tf.Tensor) and offset.shape.rank == 1)
    if left >= 0:
        mask.restrict(key >= query - left, whole_rows=not seen)
    if right >= 0:
        mask.restrict(key <= query + right, whole_rows=not seen)


@lower("FlexAttention", domain="ai.onnx.preview")
def flex_attention(Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    if softmax_precision is None:
        precision = tf.float64 if Q.dtype == tf.float64 else tf.float32
    else:
        precision = tf_dtype(softmax_precision)
    scores = tf.cast(_scores(Q, K, scale), precision)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = tf.nn.softmax(scores)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return product(tf.cast(weights, Q.dtype), V)


@lower("RotaryEmbedding")
def rotary_embedding(
    X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0
):
    packed = rank_of(X) == 3
    if packed:
        batch, time, size = shape_of(X, tf.int32)
        X = tf.reshape(X, [batch, time, num_heads, size // num_heads])
    heads_axis = 2 if packed else 1
    if position_ids is not None:
        cos_cache, sin_cache = tf.gather(cos_cache, position_ids), tf.gather(sin_cache, position_ids)
    cos, sin = tf.expand_dims(cos_cache, heads_axis), tf.expand_dims(sin_cache, heads_axis)
    kept = X[..., rotary_embedding_dim:] if rotary_embedding_dim else None
    turned = rotate(X[..., :rotary_embedding_dim] if rotary_embedding_dim else X, cos, sin, interleaved)
    result = turned if kept is None else tf.concat([turned, kept], -1)
    return tf.reshape(result, [batch, time, size]) if packed else result
