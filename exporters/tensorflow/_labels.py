"""Labels and scores of ai.onnx.ml: dictionaries as sorted keys, and what is done to a classifier's scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._tensors import RefusedError

__all__ = ["index_of", "labels_at", "transform_scores", "two_scores"]

# Strings are compared by a hash of this many values first.
HASHES = 2**62


def index_of(x: Any, keys: Sequence[Any] | np.ndarray[Any, Any]) -> Any:
    """Where each element stands among the keys; of equal keys the last counts.

    Args:
        x: a tensor of the keys' type.
        keys: numbers or strings.

    Returns:
        int32 indices in the shape of ``x``; the number of keys where an element is none of them.
    """
    places = {_plain(key): place for place, key in enumerate(keys)}
    nan = [place for place, key in enumerate(keys) if key != key]
    known = [key for key in places if key == key]
    dtype = object if x.dtype == tf.string else x.dtype.as_numpy_dtype
    values = np.array(known, dtype=dtype)
    codes = _codes(values, x.dtype)
    order = np.argsort(codes, kind="stable")
    if len(np.unique(codes)) != len(codes):
        raise RefusedError("two of its keys have the same hash")
    flat = tf.reshape(x, [-1])
    found = tf.searchsorted(codes[order], _code(flat))
    found = tf.minimum(found, len(known) - 1) if known else tf.zeros_like(found)
    targets = np.array([places[known[i]] for i in order] or [len(keys)], np.int32)
    same = tf.gather(tf.constant(values[order]), found) == flat if known else tf.zeros_like(flat, tf.bool)
    index = tf.where(same, tf.gather(targets, found), len(keys))
    if nan and x.dtype.is_floating:
        index = tf.where(tf.math.is_nan(flat), nan[-1], index)
    return tf.reshape(index, tf.shape(x))


def _plain(key: Any) -> Any:
    """A key as a dictionary takes it: strings as bytes, NumPy scalars as Python's."""
    key = key.encode() if isinstance(key, str) else key
    return key.item() if isinstance(key, np.generic) else key


def _codes(values: np.ndarray[Any, Any], dtype: tf.DType) -> np.ndarray[Any, Any]:
    if dtype != tf.string:
        return values
    with tf.init_scope():
        return np.asarray(_code(tf.constant(values, tf.string)).numpy())


def _code(x: Any) -> Any:
    return tf.strings.to_hash_bucket_fast(x, HASHES) if x.dtype == tf.string else x


def labels_at(index: Any, integers: Sequence[int] | None, strings: Sequence[str] | None) -> Any:
    """The labels of class indices."""
    if integers:
        return tf.gather(np.array(integers, np.int64), index)
    return tf.gather(tf.constant(list(strings)), index) if strings else tf.cast(index, tf.int64)


def transform_scores(scores: Any, name: str) -> Any:
    """A ``post_transform``.

    Args:
        scores: ``[batch, classes]``.
        name: NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT.
    """
    if name == "LOGISTIC":
        return tf.sigmoid(scores)
    if name == "SOFTMAX":
        return tf.nn.softmax(scores)
    if name == "PROBIT":
        return tf.math.ndtri(scores)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    if name != "NONE":
        raise RefusedError(f"post_transform {name!r} is not NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT")
    return scores


def _softmax_zero(scores: Any) -> Any:
    """A softmax in which scores of zero stay (almost) zero."""
    highest = tf.reduce_max(scores, -1, keepdims=True)
    powers = tf.where(tf.abs(scores) > 1e-7, tf.exp(scores - highest), scores * tf.exp(-highest))
    total = tf.reduce_sum(powers, -1, keepdims=True)
    half = tf.constant(0.5, scores.dtype)
    return tf.where(total == 0, half, powers / tf.where(total == 0, tf.ones_like(total), total))


def two_scores(score: Any, transform: str, *, probabilities: bool) -> Any:
    """The scores of both classes from the one score ``[batch, 1]`` of the second class.

    Args:
        score: the score.
        transform: a ``post_transform``.
        probabilities: whether the score is a probability, so that the classes add up to one.
    """
    if probabilities and transform in ("NONE", "PROBIT"):
        return transform_scores(tf.concat([1 - score, score], -1), transform)
    return transform_scores(tf.concat([-score, score], -1), transform)
