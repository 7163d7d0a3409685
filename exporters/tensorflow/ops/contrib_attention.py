"""The attention operators that ONNX Runtime's own tools put into a graph."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from exporters._graph.contrib import GROUP_QUERY_UNUSED, HIDDEN, MICROSOFT, MULTI_HEAD_UNUSED
from exporters.tensorflow._attention import Mask, attend, merge_heads, product, rotate, split_heads
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of, static_shape


@lower("RotaryEmbedding", domain=MICROSOFT, unused=("is_packed_batching",))
def rotary_embedding(
    input,
    position_ids,
    cos_cache,
    sin_cache,
    *,
    interleaved=None,
    is_packed_batching=None,
    num_heads=None,
    rotary_embedding_dim=None,
    scale=None,
):
    packed = rank_of(input) == 3
    x = input
    if packed:
        size = shape_of(input, tf.int32)[2] // num_heads if num_heads else 2 * shape_of(cos_cache, tf.int32)[1]
        x = split_heads(input, shape_of(input, tf.int32)[2] // size)
    if rank_of(position_ids) == 1:  # where the first token stands
        position_ids = position_ids[:, tf.newaxis] + tf.cast(tf.range(shape_of(x, tf.int32)[2]), position_ids.dtype)
    turned = _rotated(x, position_ids, cos_cache, sin_cache, interleaved, rotary_embedding_dim or None)
    turned = turned * scale if scale else turned
    return merge_heads(turned) if packed else turned


def _rotated(x, positions, cos_cache, sin_cache, interleaved, width):
    cos, sin = (tf.gather(cache, positions)[:, tf.newaxis] for cache in (cos_cache, sin_cache))
    if width is None:
        return rotate(x, cos, sin, interleaved)
    return tf.concat([rotate(x[..., :width], cos, sin, interleaved), x[..., width:]], -1)


@lower(
    "MultiHeadAttention",
    domain=MICROSOFT,
    takes=("outputs",),
    unused=MULTI_HEAD_UNUSED,
)
def multi_head_attention(
    query,
    key=None,
    value=None,
    bias=None,
    key_padding_mask=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    past_sequence_length=None,
    cache_indirection=None,
    *,
    mask_filter_value=None,
    num_heads,
    scale=None,
    unidirectional=0,
    outputs=1,
):
    if outputs > 3:
        raise RefusedError("its scores are asked for, which are not expressed")
    q, k, v = _heads(query, key, value, bias, num_heads)
    past = 0
    if past_key is not None:
        past = shape_of(past_key, tf.int32)[2]
        k, v = tf.concat([past_key, k], 2), tf.concat([past_value, v], 2)
    mask = Mask(bias=attention_bias)
    if key_padding_mask is not None:
        if rank_of(key_padding_mask) == 1 and static_shape(key_padding_mask)[0] not in (None, static_shape(q)[0]):
            raise RefusedError("its key_padding_mask has the positions of both ends")
        hidden = _padding(key_padding_mask, shape_of(k, tf.int32)[2], q.dtype, mask_filter_value or HIDDEN)
        mask.bias = hidden if mask.bias is None else mask.bias + hidden
    if unidirectional:
        places = tf.range(shape_of(q, tf.int32)[2])[:, tf.newaxis] + past
        mask.restrict(tf.range(shape_of(k, tf.int32)[2]) <= places, whole_rows=False)
    return _attend(q, k, v, mask, scale, 0.0), k, v


def _heads(query, key, value, bias, heads):
    """Queries, keys and values as ``[batch, heads, time, size]``, from any of the layouts that may be given."""
    if rank_of(query) == 5:
        parts = [tf.transpose(part, [0, 2, 1, 3]) for part in tf.unstack(query, 3, axis=3)]
        key = key if key is not None else query
    elif rank_of(key) == 5:
        packed = [tf.transpose(part, [0, 2, 1, 3]) for part in tf.unstack(key, 2, axis=3)]
        parts = [split_heads(query, heads), *packed]
    else:
        parts = [x if rank_of(x) == 4 else split_heads(x, heads) for x in (query, key, value)]
    if bias is None:
        return parts
    sizes = [heads * shape_of(part)[3] for part in parts]
    shifts = tf.split(bias, sizes if all(isinstance(size, int) for size in sizes) else tf.stack(sizes), num=3)
    cross = rank_of(query) == 3 and rank_of(key) == 4  # keys that were computed before have their bias already
    shifted = [tf.reshape(shift, [heads, 1, -1]) for shift in shifts]
    return [part if cross and i else part + shift for i, (part, shift) in enumerate(zip(parts, shifted))]


def _padding(mask, keys, dtype, filling):
    if rank_of(mask) == 1:
        mask = tf.cast(tf.range(keys) < tf.cast(mask, tf.int32)[:, tf.newaxis], tf.int32)
    mask = mask[:, tf.newaxis, tf.newaxis] if rank_of(mask) == 2 else mask[:, tf.newaxis]
    return tf.where(mask > 0, np.zeros([], dtype.as_numpy_dtype), np.array(filling, dtype.as_numpy_dtype))


def _attend(q, k, v, mask, scale, softcap):
    size = shape_of(q)[3]
    if not scale:
        scale = 1 / math.sqrt(size) if isinstance(size, int) else tf.math.rsqrt(tf.cast(size, q.dtype))
    scores = product(q * tf.cast(scale, q.dtype), k, transpose_right=True)
    if softcap:
        scores = softcap * tf.tanh(scores / softcap)
    result, *_ = attend(scores, v, mask)
    return merge_heads(result)


@lower("GroupQueryAttention", domain=MICROSOFT, takes=("outputs",), unused=GROUP_QUERY_UNUSED)
def group_query_attention(
    query,
    key,
    value,
    past_key,
    past_value,
    seqlens_k,
    total_sequence_length,
    cos_cache=None,
    sin_cache=None,
    position_ids=None,
    attention_bias=None,
    head_sink=None,
    k_scale=None,
    v_scale=None,
    q_norm_weight=None,
    k_norm_weight=None,
    query_seqlens=None,
    *,
    causal=1,
    do_rotary=None,
    k_norm_epsilon=None,
    k_quant_type="NONE",
    kv_cache_bit_width=None,
    kv_num_heads,
    local_window_size=-1,
    num_heads,
    q_norm_epsilon=None,
    qk_norm_epsilon=9.999999974752427e-07,
    qk_output=0,
    rotary_interleaved=None,
    scale=None,
    sliding_window_cache=0,
    smooth_softmax=-1,
    softcap=None,
    v_quant_type="NONE",
    outputs=1,
):
    q, k, v = _grouped_heads(query, key, value, num_heads, kv_num_heads)
    length = shape_of(q, tf.int32)[2]
    total = tf.reshape(tf.cast(total_sequence_length, tf.int32), [])
    lengths = tf.cast(tf.reshape(seqlens_k, [-1]), tf.int32) + 1
    # In the first call nothing came before, also where prompts are padded at their end.
    past = tf.where(total == length, 0, lengths - length)
    places = past[:, tf.newaxis] + tf.range(length)
    if do_rotary:
        where = places if position_ids is None else position_ids
        width = 2 * shape_of(cos_cache, tf.int32)[1]
        width = None if isinstance(width, int) and width == static_shape(q)[3] else width
        q, k = (_rotated(x, where, cos_cache, sin_cache, rotary_interleaved, width) for x in (q, k))
    k, v = _cached(past_key, k, past, total), _cached(past_value, v, past, total)
    mask = _grouped_mask(places, lengths, shape_of(k, tf.int32)[2], causal, local_window_size)
    mask.bias = attention_bias
    return _attend(q, k, v, mask, scale, softcap), k, v


def _grouped_heads(query, key, value, heads, groups):
    if key is not None:
        return split_heads(query, heads), split_heads(key, groups), split_heads(value, groups)
    together = split_heads(query, heads + 2 * groups)
    return tf.split(together, [heads, groups, groups], 1)


def _cached(before, new, past, total):
    """The cache with new tokens put behind those that each sample has."""
    if before is None:
        return new
    kept, added = shape_of(before, tf.int32)[2], shape_of(new, tf.int32)[2]
    place = tf.range(tf.maximum(kept, total))
    start = past[:, tf.newaxis]
    source = tf.where((place >= start) & (place < start + added), kept + place - start, place)
    joined = tf.concat([before, new], 2)
    return tf.gather(joined, tf.minimum(source, kept + added - 1), axis=2, batch_dims=1)


def _grouped_mask(places, lengths, keys, causal, window):
    key = tf.range(keys)
    place = places[:, tf.newaxis, :, tf.newaxis]
    mask = Mask()
    if causal:
        mask.restrict(key <= place, whole_rows=False)
    else:
        mask.restrict(key < lengths[:, tf.newaxis, tf.newaxis, tf.newaxis], whole_rows=False)
    if window > 0:
        mask.restrict(key > place - window, whole_rows=False)
    return mask
