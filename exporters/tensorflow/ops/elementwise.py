"""Arithmetic and elementary functions, element by element with broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._table import lower, lower_all
from exporters.tensorflow._tensors import in_dtype, rank_of, through


def _on_signed(function: Callable[[Any], Any], of_unsigned: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """TensorFlow has Abs and Sign for signed types only."""
    return lambda x: of_unsigned(x) if x.dtype.is_unsigned else function(x)


lower_all(
    {
        "Abs": _on_signed(tf.abs, tf.identity),
        "Neg": tf.negative,
        "Sign": _on_signed(tf.sign, lambda x: tf.minimum(x, tf.ones_like(x))),
        "Acos": tf.acos,
        "Acosh": tf.acosh,
        "Asin": tf.asin,
        "Asinh": tf.asinh,
        "Atan": tf.atan,
        "Atanh": tf.atanh,
        "Ceil": tf.math.ceil,
        "Cos": tf.cos,
        "Cosh": tf.cosh,
        "Erf": tf.math.erf,
        "Exp": tf.exp,
        "Floor": tf.floor,
        "Log": tf.math.log,
        "Reciprocal": tf.math.reciprocal,
        "Round": tf.round,
        "Sin": tf.sin,
        "Sinh": tf.sinh,
        "Sqrt": tf.sqrt,
        "Tan": tf.tan,
        "Add": tf.add,
        "Mul": tf.multiply,
        "Sub": tf.subtract,
    }
)


@lower("Div")
def div(A, B):
    return tf.truncatediv(A, B) if A.dtype.is_integer else tf.realdiv(A, B)


@lower("Mod")
def mod(A, B, *, fmod=0):
    if not A.dtype.is_integer:
        return _float_remainder(A, B, truncated=bool(fmod))
    if not fmod or A.dtype.is_unsigned:
        return tf.math.floormod(A, B)
    return through(tf.truncatemod, [tf.int8, tf.int16])(A, B)


def _float_remainder(A, B, truncated):
    if truncated:  # TensorFlow's TruncateMod has no gradient
        return tf.sign(A) * tf.math.floormod(tf.abs(A), tf.abs(B))
    rest = tf.math.floormod(A, B)
    return tf.where(tf.equal(rest, 0), tf.zeros([], A.dtype) * tf.sign(B), rest)  # a zero has the sign of the divisor


@lower("Pow", static=("Y",))
def pow(X, Y):  # noqa: A001  # lowerings carry the operator's name
    if isinstance(Y, np.ndarray) and Y.size == 1 and Y.ndim <= rank_of(X) and Y.item() in _POWERS:
        return _POWERS[Y.item()](X)
    Y = tf.convert_to_tensor(Y)
    if X.dtype == Y.dtype:
        return tf.pow(X, Y)
    return in_dtype(tf.pow, _power_dtype(X.dtype, Y.dtype), X, Y)


_POWERS = {1: tf.identity, 2: tf.square, 3: lambda x: tf.square(x) * x}


def _power_dtype(base, exponent):
    """The type in which to raise to a power where the types of the two differ."""
    if base.is_integer:
        return tf.int64 if exponent.is_integer else tf.float64
    if exponent.is_floating and exponent.size > base.size:
        return exponent
    return base if base.size > 2 else tf.float32


@lower("Sum")
def sum(*data_0):  # noqa: A001  # lowerings carry the operator's name
    return functools.reduce(tf.add, data_0)


@lower("Mean")
def mean(*data_0):
    return sum(*data_0) / tf.constant(len(data_0), data_0[0].dtype)


@lower("Max")
def max(*data_0):  # noqa: A001  # lowerings carry the operator's name
    return functools.reduce(tf.maximum, data_0)


@lower("Min")
def min(*data_0):  # noqa: A001  # lowerings carry the operator's name
    return functools.reduce(tf.minimum, data_0)
