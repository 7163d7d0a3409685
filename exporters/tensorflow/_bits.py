"""The stored byte of small element types, for which TensorFlow has a dtype but no conversion.

TensorFlow moves float8 ``fnuz``, float4 and 2-bit tensors around, but has no kernel that reads or makes their values. Its
serialisation has no such gap: a ``TensorProto`` of the bytes with another element type in its header is the reinterpreted
tensor. All of it are graph operators, so it works in a SavedModel.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from interop.dtypes import DType, dtype_of

__all__ = ["decode", "encode", "from_bytes", "has_no_kernels", "to_bytes"]

_NO_KERNELS = frozenset({"float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn", "int2", "uint2"})

_DTYPE_FIELD = b"\x08"  # tag of TensorProto.dtype; a later field replaces an earlier one when a message is parsed


def has_no_kernels(dtype: Any) -> bool:
    """Whether values of the type can only be reached through their bytes."""
    return dtype_of(dtype).name in _NO_KERNELS


def to_bytes(x: Any) -> Any:
    """The stored bytes, uint8 of the same shape, of a tensor of any type of one byte or less."""
    if x.dtype == tf.uint8:
        return x
    if x.dtype == tf.int8:
        return tf.bitcast(x, tf.uint8)
    if x.dtype == tf.bool:
        return tf.cast(x, tf.uint8)
    flat = tf.reshape(x, [-1])
    count = tf.size(flat, out_type=tf.int64)
    # SerializeTensor takes few types, SerializeSparse any; its second result is the TensorProto of the values.
    protos = tf.raw_ops.SerializeSparse(
        sparse_indices=tf.zeros([count, 1], tf.int64), sparse_values=flat, sparse_shape=tf.reshape(count, [1])
    )
    stored = tf.reshape(_reinterpreted(protos[1], tf.uint8), tf.shape(x))
    stored.set_shape(x.shape)
    return stored


def from_bytes(stored: Any, dtype: tf.DType) -> Any:
    """The tensor of a type of one byte or less that has the given stored bytes (uint8)."""
    if dtype == tf.uint8:
        return stored
    if dtype == tf.int8:
        return tf.bitcast(stored, tf.int8)
    if dtype == tf.bool:
        return tf.cast(stored, tf.bool)
    made = _reinterpreted(tf.io.serialize_tensor(stored), dtype)
    made.set_shape(stored.shape)
    return made


def decode(x: Any) -> Any:
    """The values of a tensor without kernels: float32, or int8 of 2-bit integers."""
    return tf.gather(tf.constant(_values(dtype_of(x.dtype))), tf.cast(to_bytes(x), tf.int32))


def encode(x: Any, dtype: tf.DType, *, saturate: bool = True) -> Any:
    """A tensor without kernels from real values: rounded half to even, integers truncated and wrapped."""
    entry = dtype_of(dtype)
    if entry.kind != "float":
        return from_bytes(tf.cast(tf.cast(x, tf.int32) & 3, tf.uint8), dtype)
    return from_bytes(_nearest_code(tf.cast(x, tf.float64), entry, saturate), dtype)


def _reinterpreted(proto: Any, dtype: tf.DType) -> Any:
    header = _DTYPE_FIELD + bytes([dtype.as_datatype_enum])
    return tf.io.parse_tensor(tf.strings.join([proto, header]), dtype)


def _nearest_code(x: Any, entry: DType, saturate: bool) -> Any:
    boundaries = _boundaries(entry)
    if saturate or not _has_nan(entry):
        boundaries = boundaries[:-1]
    magnitude = tf.searchsorted(boundaries, tf.reshape(tf.abs(x), [-1]), side="left")
    magnitude = tf.reshape(magnitude, tf.shape(x))
    sign = 1 << (entry.bits - 1)
    negative = tf.bitcast(x, tf.int64) < 0
    if _has_nan(entry):  # the code of -0 is the only NaN
        negative = tf.logical_and(negative, tf.logical_and(magnitude > 0, magnitude < sign))
    code = magnitude + tf.where(negative, sign, 0)
    code = tf.where(tf.math.is_nan(x), int(_nan_code(entry)), code)
    return tf.cast(tf.ensure_shape(code, x.shape), tf.uint8)


def _has_nan(entry: DType) -> bool:
    return entry.name.endswith("fnuz")


@functools.cache
def _nan_code(entry: DType) -> int:
    return int(np.array([np.nan], np.float32).astype(entry.numpy).view(np.uint8)[0])


@functools.cache
def _values(entry: DType) -> np.ndarray[Any, Any]:
    """The value of each byte; a type of fewer bits ignores the upper ones."""
    codes = (np.arange(256) & ((1 << entry.bits) - 1)).astype(np.uint8)
    return codes.view(entry.numpy).astype(np.float32 if entry.kind == "float" else np.int8)


@functools.cache
def _boundaries(entry: DType) -> np.ndarray[Any, Any]:
    """The largest magnitude that rounds to code k, for each k; the last one is where an overflow begins."""
    values = _values(entry)[: 1 << (entry.bits - 1)].astype(np.float64)
    following = np.append(values[1:], 2 * values[-1] - values[-2])
    middle = (values + following) / 2
    is_odd = np.arange(len(middle)) % 2 == 1
    bounds: np.ndarray[Any, Any] = np.where(is_odd, np.nextafter(middle, 0), middle)  # a tie goes to the even code
    return bounds
