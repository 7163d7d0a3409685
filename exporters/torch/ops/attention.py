"""Attention with caches, masks and grouped heads, and rotary position embeddings."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._attention import (
    fused,
    hidden_bias,
    merge_heads,
    product,
    rotate,
    scores,
    softmax,
    split_heads,
)
from exporters.torch._table import lower
from exporters.torch._values import HALVES, torch_dtype

AFTER_SOFTCAP, AFTER_BIAS, AFTER_SOFTMAX = 1, 2, 3


@lower("Attention", takes=("outputs",))
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
    outputs=1,
):
    packed = Q.ndim == 3
    if packed:
        Q, K, V = split_heads(Q, q_num_heads), split_heads(K, kv_num_heads), split_heads(V, kv_num_heads)
    offset = 0
    if past_key is not None:
        offset = past_key.shape[2]
        K, V = torch.cat([past_key, K], 2), torch.cat([past_value, V], 2)
    elif nonpad_kv_seqlen is not None:
        offset = nonpad_kv_seqlen.reshape(-1, 1, 1, 1) - Q.shape[2]
    window = (left_window_size, 0 if is_causal else right_window_size)
    mask = _mask(attn_mask, (Q.shape[2], K.shape[2]), nonpad_kv_seqlen, offset, window, Q)
    if outputs < 4 and not softcap and softmax_precision is None and Q.dtype not in HALVES and nonpad_kv_seqlen is None:
        Y = fused(Q, K, V, mask, scale)
        return merge_heads(Y) if packed else Y, K, V, None
    raw = scores(Q, K, scale)
    capped = softcap * torch.tanh(raw / softcap) if softcap else raw
    masked = capped if mask is None else capped + mask
    weights = softmax(masked, None if softmax_precision is None else torch_dtype(softmax_precision))
    Y = product(weights, V)
    shown = {AFTER_SOFTCAP: capped, AFTER_BIAS: masked, AFTER_SOFTMAX: weights}.get(qk_matmul_output_mode, raw)
    return merge_heads(Y) if packed else Y, K, V, shown


def _mask(attn_mask, lengths, nonpad, offset, window, like):
    """All conditions together as one bias, or None."""
    queries, keys = lengths
    allowed, bias = None, None
    if attn_mask is not None:
        missing = keys - attn_mask.shape[-1]
        if attn_mask.dtype == torch.bool:
            allowed = functional.pad(attn_mask, [0, missing], value=False)
        else:
            bias = functional.pad(attn_mask, [0, missing], value=float("-inf"))
    key = torch.arange(keys, device=like.device)
    query = torch.arange(queries, device=like.device)[:, None] + offset
    left, right = window
    conditions = [key < nonpad.reshape(-1, 1, 1, 1)] if nonpad is not None else []
    conditions += [key >= query - left] if left >= 0 else []
    conditions += [key <= query + right] if right >= 0 else []
    for condition in conditions:
        allowed = condition if allowed is None else allowed & condition
    if allowed is None:
        return bias
    hidden = hidden_bias(allowed, like.dtype)
    return hidden if bias is None else hidden + bias


@lower("FlexAttention", domain="ai.onnx.preview")
def flex_attention(Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    if softmax_precision is None:
        precision = torch.float64 if Q.dtype == torch.float64 else torch.float32
    else:
        precision = torch_dtype(softmax_precision)
    found = scores(Q, K, scale).to(precision)
    if score_mod is not None:
        (found,) = score_mod(found)
    weights = torch.softmax(found, -1)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return product(weights.to(Q.dtype), V)


@lower("RotaryEmbedding")
def rotary_embedding(
    X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0
):
    packed = X.ndim == 3
    shape = X.shape
    if packed:
        X = X.reshape(*shape[:2], num_heads, shape[2] // num_heads)
    heads_axis = 2 if packed else 1
    if position_ids is not None:
        cos_cache, sin_cache = (
            functional.embedding(position_ids, cos_cache),
            functional.embedding(position_ids, sin_cache),
        )
    cos, sin = cos_cache.unsqueeze(heads_axis), sin_cache.unsqueeze(heads_axis)
    kept = X[..., rotary_embedding_dim:] if rotary_embedding_dim else None
    turned = rotate(X[..., :rotary_embedding_dim] if rotary_embedding_dim else X, cos, sin, interleaved)
    result = turned if kept is None else torch.cat([turned, kept], -1)
    return result.reshape(shape) if packed else result
