"""Attention with caches, masks and grouped heads, and rotary position embeddings."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

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
        Q, K, V = _split_heads(Q, q_num_heads), _split_heads(K, kv_num_heads), _split_heads(V, kv_num_heads)
    offset = 0
    if past_key is not None:
        offset = past_key.shape[2]
        K, V = torch.cat([past_key, K], 2), torch.cat([past_value, V], 2)
    elif nonpad_kv_seqlen is not None:
        offset = nonpad_kv_seqlen.reshape(-1, 1, 1, 1) - Q.shape[2]
    window = (left_window_size, 0 if is_causal else right_window_size)
    mask = _mask(attn_mask, (Q.shape[2], K.shape[2]), nonpad_kv_seqlen, offset, window, Q)
    if outputs < 4 and not softcap and softmax_precision is None and Q.dtype not in HALVES and nonpad_kv_seqlen is None:
        Y = _fused(Q, K, V, mask, scale)
        return _merge_heads(Y) if packed else Y, K, V, None
    raw = _scores(Q, K, scale)
    capped = softcap * torch.tanh(raw / softcap) if softcap else raw
    masked = capped if mask is None else capped + mask
    weights = _softmax(masked, None if softmax_precision is None else torch_dtype(softmax_precision))
    Y = _product(weights, V)
    shown = {AFTER_SOFTCAP: capped, AFTER_BIAS: masked, AFTER_SOFTMAX: weights}.get(qk_matmul_output_mode, raw)
    return _merge_heads(Y) if packed else Y, K, V, shown


def _fused(Q, K, V, mask, scale):
    """Torch's own kernel; a row without any key is zeros."""
    grouped = Q.shape[1] != K.shape[1]
    Y = functional.scaled_dot_product_attention(Q, K, V, mask, scale=scale, enable_gqa=grouped)
    if mask is None:
        return Y
    empty = (mask == float("-inf")).all(-1, keepdim=True)
    return torch.where(empty, 0, Y)


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
    zero = torch.zeros([], dtype=like.dtype, device=like.device)
    hidden = torch.where(allowed, zero, float("-inf"))
    return hidden if bias is None else hidden + bias


def _scores(Q, K, scale):
    scale = 1 / math.sqrt(Q.shape[3]) if scale is None else scale
    if Q.dtype in HALVES:  # half of the scale on each side, against overflow
        root = torch.tensor(math.sqrt(scale), dtype=Q.dtype, device=Q.device)
        return _product(Q * root, (K * root).transpose(-1, -2))
    return _product(Q * scale, K.transpose(-1, -2))


def _product(left, right):
    """A matrix product of heads; several left heads may share one right head."""
    if left.shape[1] != right.shape[1]:
        right = right.repeat_interleave(left.shape[1] // right.shape[1], 1)
    if left.dtype in HALVES:
        return torch.matmul(left.float(), right.float()).to(left.dtype)
    return torch.matmul(left, right)


def _softmax(scores, precision):
    """A row without any key is zeros."""
    wide = scores if precision is None else scores.to(precision)
    weights = torch.softmax(wide, -1).to(scores.dtype)
    empty = (scores == float("-inf")).all(-1, keepdim=True)
    return torch.where(empty, 0, weights)


def _split_heads(x, heads):
    """``[batch, time, heads * size]`` as ``[batch, heads, time, size]``."""
    batch, time, size = x.shape
    return x.reshape(batch, time, heads, size // heads).transpose(1, 2)


def _merge_heads(x):
    """``[batch, heads, time, size]`` as ``[batch, time, heads * size]``."""
    return x.transpose(1, 2).flatten(2)


@lower("FlexAttention", domain="ai.onnx.preview")
def flex_attention(Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    if softmax_precision is None:
        precision = torch.float64 if Q.dtype == torch.float64 else torch.float32
    else:
        precision = torch_dtype(softmax_precision)
    scores = _scores(Q, K, scale).to(precision)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = torch.softmax(scores, -1)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return _product(weights.to(Q.dtype), V)


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
    turned = _rotate(X[..., :rotary_embedding_dim] if rotary_embedding_dim else X, cos, sin, interleaved)
    result = turned if kept is None else torch.cat([turned, kept], -1)
    return result.reshape(shape) if packed else result


def _rotate(x, cos, sin, interleaved):
    """Turn pairs of features by angles; neighbours are pairs where interleaved, otherwise the halves are."""
    one, other = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    real, imaginary = cos * one - sin * other, sin * one + cos * other
    if interleaved:
        return torch.stack([real, imaginary], -1).reshape(x.shape)
    return torch.cat([real, imaginary], -1)
