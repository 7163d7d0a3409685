"""Scaled dot-product attention on heads: masks, caches, groups of heads, rotary positions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from exporters.torch._values import HALVES

__all__ = ["attend", "fused", "hidden_bias", "merge_heads", "product", "rotate", "scores", "softmax", "split_heads"]


def attend(q: Any, k: Any, v: Any, mask: Any, scale: float | None, softcap: float | None = None) -> Any:
    """What the queries get of the values; a row without any key is zeros.

    Args:
        q: ``[batch, heads, queries, size]``.
        k: ``[batch, groups, keys, size]``.
        v: ``[batch, groups, keys, size]``.
        mask: floats that are added to the scores, or None.
        scale: of the scores; None for one over the root of the size.
        softcap: the largest score, where there is one.
    """
    if not softcap and q.dtype not in HALVES:
        return fused(q, k, v, mask, scale)
    raw = scores(q, k, scale)
    capped = softcap * torch.tanh(raw / softcap) if softcap else raw
    return product(softmax(capped if mask is None else capped + mask, None), v)


def hidden_bias(allowed: Any, dtype: torch.dtype) -> Any:
    """A condition as floats to add: minus infinity where it does not hold."""
    zero = torch.zeros([], dtype=dtype, device=allowed.device)
    return torch.where(allowed, zero, float("-inf"))


def fused(q: Any, k: Any, v: Any, mask: Any, scale: float | None) -> Any:
    """Torch's own kernel; a row without any key is zeros."""
    grouped = q.shape[1] != k.shape[1]
    y = functional.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=grouped)
    if mask is None:
        return y
    empty = (mask == float("-inf")).all(-1, keepdim=True)
    return torch.where(empty, 0, y)


def scores(q: Any, k: Any, scale: float | None) -> Any:
    """The scaled scores ``[batch, heads, queries, keys]``."""
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    if q.dtype in HALVES:  # half of the scale on each side, against overflow
        root = torch.tensor(math.sqrt(scale), dtype=q.dtype, device=q.device)
        return product(q * root, (k * root).transpose(-1, -2))
    return product(q * scale, k.transpose(-1, -2))


def product(left: Any, right: Any) -> Any:
    """A matrix product of heads; several left heads may share one right head."""
    if left.shape[1] != right.shape[1]:
        right = right.repeat_interleave(left.shape[1] // right.shape[1], 1)
    if left.dtype in HALVES:
        return torch.matmul(left.float(), right.float()).to(left.dtype)
    return torch.matmul(left, right)


def softmax(scores: Any, precision: torch.dtype | None) -> Any:
    """A row without any key is zeros, and so is its gradient."""
    empty = (scores == float("-inf")).all(-1, keepdim=True)
    wide = torch.where(empty, 0, scores if precision is None else scores.to(precision))
    return torch.where(empty, 0, torch.softmax(wide, -1).to(scores.dtype))


def split_heads(x: Any, heads: int) -> Any:
    """``[batch, time, heads * size]`` as ``[batch, heads, time, size]``."""
    batch, time, size = x.shape
    return x.reshape(batch, time, heads, size // heads).transpose(1, 2)


def merge_heads(x: Any) -> Any:
    """``[batch, heads, time, size]`` as ``[batch, time, heads * size]``."""
    return x.transpose(1, 2).flatten(2)


def rotate(x: Any, cos: Any, sin: Any, interleaved: Any) -> Any:
    """Turn pairs of features by angles; neighbours are pairs where interleaved, otherwise the halves are."""
    one, other = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    real, imaginary = cos * one - sin * other, sin * one + cos * other
    if interleaved:
        return torch.stack([real, imaginary], -1).reshape(x.shape)
    return torch.cat([real, imaginary], -1)
