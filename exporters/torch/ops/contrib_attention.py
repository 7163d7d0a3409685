"""The attention operators that ONNX Runtime's own tools put into a graph."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters._graph.contrib import GROUP_QUERY_UNUSED, HIDDEN, MICROSOFT, MULTI_HEAD_UNUSED
from exporters.torch._attention import attend, hidden_bias, merge_heads, rotate, split_heads
from exporters.torch._table import lower
from exporters.torch._values import RefusedError, number


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
    packed = input.ndim == 3
    x = input
    if packed:
        size = input.shape[2] // num_heads if num_heads else 2 * cos_cache.shape[1]
        x = split_heads(input, input.shape[2] // size)
    if position_ids.ndim == 1:  # where the first token stands
        position_ids = position_ids[:, None] + torch.arange(x.shape[2], device=x.device)
    turned = _rotated(x, position_ids, cos_cache, sin_cache, interleaved, rotary_embedding_dim or x.shape[3])
    turned = turned * scale if scale else turned
    return merge_heads(turned) if packed else turned


def _rotated(x, positions, cos_cache, sin_cache, interleaved, width):
    """Heads whose first features are turned by the angles of their positions ``[batch, time]``."""
    cos, sin = (functional.embedding(positions, cache)[:, None] for cache in (cos_cache, sin_cache))
    if width == x.shape[3]:
        return rotate(x, cos, sin, interleaved)
    return torch.cat([rotate(x[..., :width], cos, sin, interleaved), x[..., width:]], -1)


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
        past = past_key.shape[2]
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    mask = attention_bias
    if key_padding_mask is not None:
        if key_padding_mask.ndim == 1 and key_padding_mask.shape[0] != q.shape[0]:
            raise RefusedError("its key_padding_mask has the positions of both ends")
        mask = _sum(mask, _padding(key_padding_mask, k.shape[2], q.dtype, mask_filter_value or HIDDEN))
    if unidirectional:
        places = torch.arange(q.shape[2], device=q.device)[:, None] + past
        mask = _sum(mask, hidden_bias(torch.arange(k.shape[2], device=q.device) <= places, q.dtype))
    return merge_heads(attend(q, k, v, mask, scale or None)), k, v


def _sum(mask, more):
    return more if mask is None else mask + more


def _heads(query, key, value, bias, heads):
    """Queries, keys and values as ``[batch, heads, time, size]``, from any of the layouts that may be given."""
    if query.ndim == 5:
        parts = [part.transpose(1, 2) for part in query.unbind(3)]
        key = key if key is not None else query
    elif key.ndim == 5:
        parts = [split_heads(query, heads), *(part.transpose(1, 2) for part in key.unbind(3))]
    else:
        parts = [x if x.ndim == 4 else split_heads(x, heads) for x in (query, key, value)]
    if bias is None:
        return parts
    shifts = bias.split([heads * part.shape[3] for part in parts])
    cross = query.ndim == 3 and key.ndim == 4  # keys that were computed before have their bias already
    shifted = [shift.reshape(heads, 1, -1) for shift in shifts]
    return [part if cross and i else part + shift for i, (part, shift) in enumerate(zip(parts, shifted))]


def _padding(mask, keys, dtype, filling):
    """What hidden keys add to the scores: of a length a sample, or a mask of two or three axes."""
    if mask.ndim == 1:
        mask = torch.arange(keys, device=mask.device) < mask[:, None]
    mask = mask[:, None, None] if mask.ndim == 2 else mask[:, None]
    return torch.where(mask > 0, torch.zeros([], dtype=dtype, device=mask.device), filling)


@lower(
    "GroupQueryAttention",
    domain=MICROSOFT,
    static=("total_sequence_length",),
    takes=("outputs",),
    unused=GROUP_QUERY_UNUSED,
)
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
    length, total = q.shape[2], number(total_sequence_length)
    lengths = seqlens_k.reshape(-1).to(torch.int64) + 1
    # In the first call nothing came before, also where prompts are padded at their end.
    first = torch.scalar_tensor(total, dtype=torch.int64, device=q.device) == length
    past = torch.where(first, 0, lengths - length)
    places = past[:, None] + torch.arange(length, device=q.device)
    if do_rotary:
        where = places if position_ids is None else position_ids
        width = 2 * cos_cache.shape[1]
        q, k = (_rotated(x, where, cos_cache, sin_cache, rotary_interleaved, width) for x in (q, k))
    k, v = _cached(past_key, k, past, total), _cached(past_value, v, past, total)
    allowed = _grouped_mask(places, lengths, k.shape[2], causal, local_window_size)
    mask = _sum(attention_bias, hidden_bias(allowed, q.dtype))
    return merge_heads(attend(q, k, v, mask, scale or None, softcap)), k, v


def _grouped_heads(query, key, value, heads, groups):
    if key is not None:
        return split_heads(query, heads), split_heads(key, groups), split_heads(value, groups)
    return split_heads(query, heads + 2 * groups).split([heads, groups, groups], 1)


def _cached(before, new, past, total):
    """The cache with new tokens put behind those that each sample has."""
    if before is None:
        return new
    kept, added = before.shape[2], new.shape[2]
    place = torch.arange(torch.sym_max(kept, total), device=new.device)
    start = past[:, None]
    source = torch.where((place >= start) & (place < start + added), kept + place - start, place)
    joined = torch.cat([before, new], 2)
    index = source.clamp(0, kept + added - 1)[:, None, :, None]
    return joined.gather(2, index.expand(-1, joined.shape[1], -1, joined.shape[3]))


def _grouped_mask(places, lengths, keys, causal, window):
    """Which key each query may see, ``[batch, 1, queries, keys]``."""
    key = torch.arange(keys, device=places.device)
    place = places[:, None, :, None]
    allowed = key <= place if causal else (key < lengths[:, None, None, None]).expand(-1, 1, places.shape[1], -1)
    return allowed & (key > place - window) if window > 0 else allowed
