"""Comparisons, logic and bits, element by element with broadcasting."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._casts import cast_to
from exporters.tensorflow._table import lower, lower_all

lower_all(
    {
        "And": tf.logical_and,
        "Or": tf.logical_or,
        "Xor": tf.math.logical_xor,
        "Not": tf.logical_not,
        "Equal": tf.equal,
        "Greater": tf.greater,
        "GreaterOrEqual": tf.greater_equal,
        "Less": tf.less,
        "LessOrEqual": tf.less_equal,
        "BitwiseAnd": tf.bitwise.bitwise_and,
        "BitwiseOr": tf.bitwise.bitwise_or,
        "BitwiseXor": tf.bitwise.bitwise_xor,
        "BitwiseNot": tf.bitwise.invert,
    }
)


def _comparable(X):
    """TensorFlow compares no float8 values."""
    return cast_to(X, tf.float32) if X.dtype.size == 1 else X


@lower("IsNaN")
def is_nan(X):
    return tf.math.is_nan(_comparable(X))


@lower("IsInf")
def is_inf(X, *, detect_negative=1, detect_positive=1):
    X = _comparable(X)
    if detect_negative and detect_positive:
        return tf.math.is_inf(X)
    if not detect_negative and not detect_positive:
        return tf.zeros_like(X, tf.bool)
    return tf.equal(X, tf.constant(float("inf" if detect_positive else "-inf"), X.dtype))


@lower("BitShift")
def bit_shift(X, Y, *, direction=None):
    bits = X.dtype.size * 8
    outside = tf.greater_equal(tf.cast(Y, tf.uint64), tf.constant(bits, tf.uint64))  # a negative shift is a large one
    inside = tf.where(outside, tf.zeros_like(Y), Y)
    if direction == "LEFT":
        return tf.where(outside, tf.zeros_like(X), tf.bitwise.left_shift(X, inside))
    last = tf.where(outside, tf.constant(bits - 1, X.dtype), inside)
    shifted = tf.bitwise.right_shift(X, last)
    return shifted if not X.dtype.is_unsigned else tf.where(outside, tf.zeros_like(X), shifted)
