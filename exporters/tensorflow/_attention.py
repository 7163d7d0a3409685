"""Scaled dot-product attention on heads: masks as one additive bias, groups of heads without copies of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._tensors import shape_of, static_shape

__all__ = ["Mask", "attend", "causal_positions", "merge_heads", "pad_mask", "product", "rotate", "split_heads"]


@dataclass
class Mask:
    """Which key each query may see, gathered condition by condition.

    Attributes:
        allowed: bool, broadcasts to ``[batch, heads, queries, keys]``; None where all are.
        bias: floats that are added to the scores, or None.
        whole_rows: whether a row may have no key at all.
    """

    allowed: Any = None
    bias: Any = None
    whole_rows: bool = False

    def restrict(self, allowed: Any, *, whole_rows: bool) -> None:
        """Allow only what another condition allows too."""
        self.allowed = allowed if self.allowed is None else tf.logical_and(self.allowed, allowed)
        self.whole_rows = self.whole_rows or whole_rows

    def total(self, dtype: tf.DType) -> Any:
        """The bias of all conditions together, or None."""
        if self.allowed is None:
            return self.bias
        zero, never = np.zeros([], dtype.as_numpy_dtype), np.array(-np.inf, dtype.as_numpy_dtype)
        hidden = tf.where(self.allowed, zero, never)
        return hidden if self.bias is None else self.bias + hidden


def product(left: Any, right: Any, *, transpose_right: bool = False) -> Any:
    """A matrix product of heads; several left heads may share one right head.

    Args:
        left: ``[batch, heads, rows, inner]``.
        right: ``[batch, groups, inner, columns]``; ``[batch, groups, columns, inner]`` where it is to be transposed.
        transpose_right: whether it is.
    """
    heads, groups = static_shape(left)[1], static_shape(right)[1]
    if heads is not None and heads == groups:
        return _matmul(left, right, transpose_right)
    batch, heads, rows, inner = shape_of(left, tf.int32)
    groups = shape_of(right, tf.int32)[1]
    columns = shape_of(right, tf.int32)[2 if transpose_right else 3]
    folded = tf.reshape(left, [batch, groups, heads // groups * rows, inner])
    return tf.reshape(_matmul(folded, right, transpose_right), [batch, heads, rows, columns])


def _matmul(left: Any, right: Any, transpose_right: bool) -> Any:
    """TensorFlow adds half floats up as such on CPU, which is slow and less exact than the single sum ONNX expects."""
    if left.dtype not in (tf.float16, tf.bfloat16):
        return tf.matmul(left, right, transpose_b=transpose_right)
    wide = tf.matmul(tf.cast(left, tf.float32), tf.cast(right, tf.float32), transpose_b=transpose_right)
    return tf.cast(wide, left.dtype)


def attend(scores: Any, values: Any, mask: Mask, precision: tf.DType | None = None) -> tuple[Any, Any, Any]:
    """What the queries get of the values; a row without any key is zeros.

    Args:
        scores: ``[batch, heads, queries, keys]``.
        values: ``[batch, groups, keys, size]``.
        mask: see ``Mask``.
        precision: dtype of the softmax where it is not that of the scores.

    Returns:
        The result ``[batch, heads, queries, size]``, the masked scores and their softmax. What is not used costs nothing.
    """
    bias = mask.total(scores.dtype)
    if bias is None or not mask.whole_rows:
        masked = scores if bias is None else scores + bias
        weights = _softmax_in(masked, precision)
        return product(weights, values), masked, weights
    zero = np.zeros([], scores.dtype.as_numpy_dtype)
    empty = tf.reduce_max(bias, -1, keepdims=True) == np.array(-np.inf, scores.dtype.as_numpy_dtype)
    # The softmax of a row of -inf is NaN, also in its gradient: such a row stays unmasked, and its result is dropped. The
    # mask is smaller than the scores, which are not touched again.
    weights = _softmax_in(scores + tf.where(empty, zero, bias), precision)
    return tf.where(empty, zero, product(weights, values)), scores + bias, tf.where(empty, zero, weights)


def _softmax_in(scores: Any, precision: tf.DType | None) -> Any:
    return tf.cast(_softmax(tf.cast(scores, precision or scores.dtype)), scores.dtype)


def _softmax(scores: Any) -> Any:
    """TensorFlow's softmax of float16 adds up in float16; here only the results of its steps are rounded."""
    if scores.dtype != tf.float16:
        return tf.nn.softmax(scores)
    powers = tf.exp(scores - tf.stop_gradient(tf.reduce_max(scores, -1, keepdims=True)))
    total = tf.reduce_sum(tf.cast(powers, tf.float32), -1, keepdims=True)
    return powers / tf.cast(total, tf.float16)


def pad_mask(mask: Any, keys: Any, value: Any) -> Any:
    """A mask whose last dim is filled up to the number of keys."""
    given = shape_of(mask, tf.int32)[-1]
    if isinstance(given, int) and isinstance(keys, int) and given == keys:
        return mask
    rank = len(static_shape(mask))
    paddings = tf.scatter_nd([[rank - 1, 1]], [tf.cast(keys, tf.int32) - given], [rank, 2])
    padded = tf.pad(mask, paddings, constant_values=value)
    padded.set_shape([*static_shape(mask)[:-1], keys if isinstance(keys, int) else None])
    return padded


def causal_positions(queries: Any, keys: Any, offset: Any) -> tuple[Any, Any]:
    """The places of queries and keys among all keys, such that they broadcast to ``[(batch, 1,) queries, keys]``."""
    query = tf.range(tf.cast(queries, tf.int32))[:, tf.newaxis]
    if isinstance(offset, tf.Tensor) and offset.shape.rank == 1:
        offset = offset[:, tf.newaxis, tf.newaxis, tf.newaxis]
    return query + offset, tf.range(tf.cast(keys, tf.int32))


def split_heads(tensor: Any, heads: int) -> Any:
    """``[batch, time, heads * size]`` as ``[batch, heads, time, size]``."""
    batch, time, size = shape_of(tensor, tf.int32)
    return tf.transpose(tf.reshape(tensor, [batch, time, heads, size // heads]), [0, 2, 1, 3])


def merge_heads(tensor: Any) -> Any:
    """``[batch, heads, time, size]`` as ``[batch, time, heads * size]``."""
    batch, heads, time, size = shape_of(tensor, tf.int32)
    return tf.reshape(tf.transpose(tensor, [0, 2, 1, 3]), [batch, time, heads * size])


def rotate(x: Any, cos: Any, sin: Any, interleaved: Any) -> Any:
    """Turn pairs of features by angles.

    Args:
        x: ``[..., size]``.
        cos: ``[..., size / 2]``, cosines of the angles.
        sin: sines of the angles.
        interleaved: whether neighbours are pairs, otherwise the halves are.
    """
    one, other = (x[..., 0::2], x[..., 1::2]) if interleaved else tf.split(x, 2, -1)
    real, imaginary = cos * one - sin * other, sin * one + cos * other
    if interleaved:
        return tf.reshape(tf.stack([real, imaginary], -1), tf.shape(x) if None in static_shape(x) else x.shape)
    return tf.concat([real, imaginary], -1)
