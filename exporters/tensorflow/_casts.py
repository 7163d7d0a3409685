"""Conversion between any two element types, by ONNX's rules."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from exporters.tensorflow._bits import decode, encode, has_no_kernels
from exporters.tensorflow._tensors import np_dtype

__all__ = ["cast_to"]

_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_DIGITS = {"float16": range(1, 6), "bfloat16": range(1, 5), "float32": range(6, 10), "float64": range(15, 18)}


def cast_to(x: Any, dtype: tf.DType, *, saturate: bool = True) -> Any:
    """Convert a tensor.

    Args:
        x: a tensor of any type.
        dtype: the type to convert to.
        saturate: for float8, whether what is out of range becomes the largest value or else infinity or NaN.
    """
    if x.dtype == dtype:
        return x
    if dtype == tf.string:
        return _to_string(_known(x))
    if x.dtype == tf.string:
        return _from_string(x, dtype)
    x = _known(x)
    if has_no_kernels(dtype):
        return encode(x, dtype, saturate=saturate)
    if dtype.name in ("int4", "uint4"):
        return tf.cast(tf.cast(x, tf.int32), dtype)
    return _to_float8(x, dtype, saturate) if dtype.name in _FLOAT8 else tf.cast(x, dtype)


def _known(x: Any) -> Any:
    """The same values in a type that TensorFlow converts to all others."""
    if has_no_kernels(x.dtype):
        return decode(x)
    if x.dtype.name in ("int4", "uint4"):
        return tf.cast(x, tf.int8 if x.dtype.name == "int4" else tf.uint8)
    return tf.cast(x, tf.float32) if x.dtype.name in _FLOAT8 else x


def _to_float8(x: Any, dtype: tf.DType, saturate: bool) -> Any:
    real = x if x.dtype.is_floating else tf.cast(x, tf.float32)
    if saturate:
        largest = tf.constant(float(dtype.max), real.dtype)
        real = tf.maximum(tf.minimum(real, largest), -largest)
    return tf.cast(real, dtype)


def _to_string(x: Any) -> Any:
    """The shortest decimal text that reads back as the same value, ``1.0`` for a float without fraction."""
    if x.dtype == tf.bool:
        return tf.where(x, "True", "False")
    if not x.dtype.is_floating:
        return tf.strings.as_string(x)
    wide = x if x.dtype in (tf.float32, tf.float64) else tf.cast(x, tf.float32)
    *shorter, text = (tf.strings.as_string(wide, precision=n, shortest=True) for n in _DIGITS[np_dtype(x).name])
    for candidate in reversed(shorter):
        same = tf.equal(tf.cast(tf.strings.to_number(candidate, wide.dtype), x.dtype), x)
        text = tf.where(same, candidate, text)
    return tf.strings.regex_replace(text, r"^(-?\d+)$", r"\1.0")


def _from_string(x: Any, dtype: tf.DType) -> Any:
    if not dtype.is_integer:
        wide = tf.float64 if dtype == tf.float64 else tf.float32
        return cast_to(tf.strings.to_number(x, wide), dtype)
    # An integer is read as one, since float64 holds only 53 bits; other text as float and truncated.
    is_whole = tf.strings.regex_full_match(x, r"\s*[+-]?\d+\s*")
    exact = tf.uint64 if dtype == tf.uint64 else tf.int64
    whole = tf.strings.to_number(tf.where(is_whole, x, "0"), exact)
    real = tf.cast(tf.strings.to_number(tf.where(is_whole, "0", x), tf.float64), exact)
    return cast_to(tf.where(is_whole, whole, real), dtype)
