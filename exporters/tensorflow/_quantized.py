"""Linear quantisation and exact integer products, which the quantised operators are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._casts import cast_to
from exporters.tensorflow._tensors import rank_of, shape_of, static_shape
from interop.dtypes import dtype_of

__all__ = [
    "dequantize",
    "dynamic_quantize",
    "is_zero",
    "multiply_integers",
    "per_axis",
    "quantize",
    "requantize",
    "unflattened",
]


def quantize(x: Any, scale: Any, zero_point: Any, dtype: tf.DType, *, saturate: bool = True) -> Any:
    """``round(x / scale) + zero_point`` in the range of the type; floats are not rounded to integers first.

    Args:
        x: the tensor, in the type in which to divide.
        scale: of that type too, of a shape that broadcasts against the tensor.
        zero_point: of the quantised type, or None.
        dtype: the quantised type.
        saturate: for float8 types.
    """
    return requantize(x / scale, zero_point, dtype, saturate=saturate)


def requantize(y: Any, zero_point: Any, dtype: tf.DType, *, saturate: bool = True) -> Any:
    """``quantize`` after the division."""
    if dtype_of(dtype).is_floating:
        shifted = y if is_zero(zero_point) else y + cast_to(tf.convert_to_tensor(zero_point), y.dtype)
        return cast_to(shifted, dtype, saturate=saturate)
    y = tf.round(y)
    if y.dtype.size < 4:  # float16 does not hold all values of 16 bits
        y = tf.cast(y, tf.float32)
    if not is_zero(zero_point):
        y += cast_to(tf.convert_to_tensor(zero_point), y.dtype)
    low, high = _limits(dtype)
    return cast_to(tf.minimum(tf.maximum(y, low), high), dtype)


def dequantize(x: Any, scale: Any, zero_point: Any, dtype: tf.DType) -> Any:
    """``(x - zero_point) * scale``; the scale has the result's type and broadcasts against the tensor."""
    if is_zero(zero_point):
        return cast_to(x, dtype) * scale
    bits = dtype_of(x.dtype).bits
    is_exact = bits <= 8 or (bits <= 16 and dtype in (tf.float32, tf.float64))
    work = dtype if is_exact else tf.int32
    difference = cast_to(x, work) - cast_to(tf.convert_to_tensor(zero_point), work)
    return tf.cast(difference, dtype) * scale


def dynamic_quantize(x: Any) -> tuple[Any, Any, Any]:
    """The tensor as uint8 over its own range, which is made to hold 0, with its scale and zero point."""
    high, low = tf.maximum(tf.reduce_max(x), 0.0), tf.minimum(tf.reduce_min(x), 0.0)
    scale = tf.where(tf.equal(high, low), 1.0, (high - low) / 255.0)
    zero_point = tf.cast(tf.minimum(tf.maximum(tf.round(-low / scale), 0.0), 255.0), tf.uint8)
    return quantize(x, scale, zero_point, tf.uint8), scale, zero_point


def is_zero(zero_point: Any) -> bool:
    """Whether there is no zero point, or it is known to be zero."""
    if zero_point is None:
        return True
    return isinstance(zero_point, np.ndarray) and not zero_point.astype(np.float32).any()


def _limits(dtype: tf.DType) -> tuple[float, float]:
    entry = dtype_of(dtype)
    if entry.kind == "uint":
        return 0.0, float(2**entry.bits - 1)
    return float(-(2 ** (entry.bits - 1))), float(2 ** (entry.bits - 1) - 1)


def per_axis(function: Callable[..., Any], x: Any, parameters: Sequence[Any], axis: int, block: int = 0) -> Any:
    """Apply an elementwise function to a tensor and parameters that each belong to it, to an axis of it or to a block.

    Args:
        function: called with the tensor and the parameters, all in shapes that broadcast.
        x: the tensor.
        parameters: tensors, arrays, or None; scalars, vectors along the axis, or one element a block along the axis.
        axis: the axis, counted from either end.
        block: elements in a block, 0 for none.
    """
    rank = rank_of(x)
    axis %= max(rank, 1)
    if block:
        return _per_block(function, x, parameters, axis, block)
    spread = [p if p is None or rank_of(p) != 1 else unflattened(p, rank, axis) for p in parameters]
    return function(x, *spread)


def unflattened(vector: Any, rank: int, axis: int) -> Any:
    """A vector as a tensor of a higher rank, along one axis; a single element as a scalar."""
    if vector.shape[0] == 1:
        return vector.reshape([]) if isinstance(vector, np.ndarray) else tf.reshape(vector, [])
    shape = [-1 if i == axis else 1 for i in range(rank)]
    return vector.reshape(shape) if isinstance(vector, np.ndarray) else tf.reshape(vector, shape)


def _per_block(function: Callable[..., Any], x: Any, parameters: Sequence[Any], axis: int, block: int) -> Any:
    size = static_shape(x)[axis]
    shape = shape_of(x, tf.int32)
    x, *parameters = (_movable(p) for p in (x, *parameters))
    if size is not None and size % block == 0:
        split = [*shape[:axis], size // block, block, *shape[axis + 1 :]]
        spread = [None if p is None else _expand(p, axis + 1) for p in parameters]
        return tf.reshape(function(tf.reshape(x, split), *spread), shape)
    within = (slice(None),) * axis + (slice(shape[axis]),)
    repeated = [None if p is None else _repeat(p, block, axis)[within] for p in parameters]
    return function(x, *repeated)


def _movable(x: Any) -> Any:
    """The same values in a type that TensorFlow reshapes, slices and repeats."""
    if not isinstance(x, tf.Tensor):
        return x
    wider = {"int4": tf.int8, "int2": tf.int8, "uint4": tf.uint8, "uint2": tf.uint8, "uint16": tf.int32}
    entry = dtype_of(x.dtype)
    return cast_to(x, tf.float32 if entry.is_floating and entry.bits < 16 else wider.get(entry.name, x.dtype))


def _expand(parameter: Any, axis: int) -> Any:
    return np.expand_dims(parameter, axis) if isinstance(parameter, np.ndarray) else tf.expand_dims(parameter, axis)


def _repeat(parameter: Any, block: int, axis: int) -> Any:
    if isinstance(parameter, np.ndarray):
        return np.repeat(parameter, block, axis)
    return tf.repeat(parameter, block, axis)


def multiply_integers(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """The exact matrix product of two 8-bit tensors, less their zero points.

    Args:
        a: int8 or uint8 ``[..., M, K]`` or ``[K]``.
        b: int8 or uint8 ``[..., K, N]`` or ``[K]``.
        a_zero: of the type of ``a``: a scalar, ``[M]`` or ``[..., M, 1]``; None for 0.
        b_zero: of the type of ``b``: a scalar, ``[N]`` or ``[..., 1, N]``; None for 0.

    Returns:
        int32 ``[..., M, N]``, as ``numpy.matmul`` shapes it.
    """
    if rank_of(a) == 1:
        return tf.squeeze(multiply_integers(a[tf.newaxis, :], b, a_zero, b_zero), -2 if rank_of(b) > 1 else 0)
    if rank_of(b) == 1:
        return tf.squeeze(multiply_integers(a, b[:, tf.newaxis], a_zero, b_zero), -1)
    a_shift = None if is_zero(a_zero) else _column(tf.cast(a_zero, tf.int32))
    b_shift = None if is_zero(b_zero) else tf.cast(b_zero, tf.int32)
    product = tf.matmul(a, b, output_type=tf.int32)
    # sum_k (a - p)(b - q) = sum_k a b - p sum_k b - (sum_k a - K p) q
    if a_shift is not None:
        product -= a_shift * _sum(b, -2)
    if b_shift is not None:
        depth = shape_of(a, tf.int32)[-1]
        product -= (_sum(a, -1) - (0 if a_shift is None else depth * a_shift)) * b_shift
    return product


def _column(zero: Any) -> Any:
    return zero[:, tf.newaxis] if rank_of(zero) == 1 and zero.shape[0] != 1 else zero


def _sum(x: Any, axis: int) -> Any:
    return tf.reduce_sum(tf.cast(x, tf.int32), axis, keepdims=True)
