"""Scaled dot product attention: any rank, and rows that a mask empties."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from exporters.onnx.corrections._build import op, scalar

__all__ = ["TRANSLATIONS"]

aten = torch.ops.aten


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """A query that a mask keeps from every key answers zeros, as in torch.

    torch.onnx answers the mean of the values for a bool mask and NaN for one of -inf, and takes four dims only.
    """
    if enable_gqa:
        key, value = _repeated(key, query), _repeated(value, query)
    scores = _scores(query, key, scale)
    if is_causal:
        attn_mask = _causal(query, key)
    if attn_mask is not None:
        scores = op.Add(scores, _bias(attn_mask, query, known_bool=is_causal))
    weights = op.Softmax(scores, axis=-1)
    if attn_mask is not None and not is_causal:
        weights = op.Where(_empty_rows(scores, query), scalar(0, query), weights)
    if dropout_p:
        chance = op.Constant(value=ir.tensor(dropout_p, dtype=ir.DataType.FLOAT))
        weights, _ = op.Dropout(weights, chance, op.Constant(value=ir.tensor(True)))
    return op.MatMul(weights, value)


def _scores(query: Any, key: Any, scale: float | None) -> Any:
    """Both sides take the root of the scale, as in torch, so that half precision does not overflow."""
    rank = len(query.shape)
    swapped = op.Transpose(key, perm=[*range(rank - 2), rank - 1, rank - 2])
    if isinstance(scale, ir.Value):
        root = op.Sqrt(op.CastLike(scale, query))
    elif scale is not None or isinstance(query.shape[-1], int):
        root = scalar(math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale), query)
    else:
        width = op.CastLike(op.Squeeze(op.Shape(query, start=-1)), query)
        root = op.Sqrt(op.Reciprocal(op.Sqrt(width)))
    return op.MatMul(op.Mul(query, root), op.Mul(swapped, root))


def _bias(mask: Any, query: Any, known_bool: bool) -> Any:
    if known_bool or mask.dtype == ir.DataType.BOOL:
        return op.Where(mask, scalar(0, query), scalar(-math.inf, query))
    return mask if mask.dtype == query.dtype else op.CastLike(mask, query)


def _empty_rows(scores: Any, query: Any) -> Any:
    best = op.ReduceMax(scores, op.Constant(value_ints=[-1]), keepdims=1)
    return op.Equal(best, scalar(-math.inf, query))


def _causal(query: Any, key: Any) -> Any:
    sizes = [op.Shape(each, start=-2, end=-1) for each in (query, key)]
    square = op.ConstantOfShape(op.Concat(*sizes, axis=0), value=ir.tensor([1], dtype=ir.DataType.INT32))
    return op.Cast(op.Trilu(square, upper=0), to=ir.DataType.BOOL)


def _repeated(side: Any, query: Any) -> Any:
    """Each head of a key or value as often as the query has heads for it; both have the query's rank."""
    heads, own = (op.Shape(each, start=-3, end=-2) for each in (query, side))
    times = op.Div(heads, own)
    rank = len(side.shape)
    grouped = op.Unsqueeze(side, op.Constant(value_ints=[rank - 2]))
    before, after = op.Shape(side, end=rank - 2), op.Shape(side, start=rank - 2)
    wide = op.Expand(grouped, op.Concat(before, times, after, axis=0))
    return op.Reshape(wide, op.Concat(op.Shape(side, end=rank - 3), heads, after, axis=0))


TRANSLATIONS = {aten.scaled_dot_product_attention.default: scaled_dot_product_attention}
