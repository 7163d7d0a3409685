"""Tools of the operators that move elements without calculating with them: dims, axes, indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._tensors import RefusedError, shape_of, static_shape

__all__ = [
    "carried",
    "dims_of_shape",
    "dims_tensor",
    "flat_index",
    "is_known",
    "normal_axis",
    "normal_indices",
    "partial_dims",
    "product",
    "scalar",
    "strides_of",
]

# Offsets of one axis are added up as constants while the sum stays this small.
CONSTANT_ELEMENTS = 16384


def is_known(value: Any) -> bool:
    """Whether a value wanted static is known while the graph is built."""
    return isinstance(value, (np.ndarray, np.generic, list, tuple, int))


def carried(data: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A tensor in a type that TensorFlow can move about, and the way back to its own type.

    The eight-bit floats and the four-bit integers have few kernels; all other types are carried as they are.

    Raises:
        RefusedError: the type has no kernels at all.
    """
    dtype = data.dtype
    if dtype.name.endswith("fnuz"):
        raise RefusedError(f"TensorFlow has no kernels for {dtype.name}")
    wide = _CARRIERS.get(dtype.name)
    if wide is None:
        return data, lambda result: result
    return tf.cast(data, wide), lambda result: tf.cast(result, dtype)


_CARRIERS = {
    "float8_e4m3fn": tf.float16,
    "float8_e5m2": tf.float16,
    "int4": tf.int8,
    "uint4": tf.uint8,
}


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} of a tensor of rank {rank}; allowed are {-rank} to {rank - 1}")
    return axis % max(rank, 1)


def dims_tensor(dims: Sequence[Any], dtype: tf.DType = tf.int64) -> Any:
    """A shape for TensorFlow: the list itself where all dims are known, one tensor otherwise."""
    if not any(isinstance(dim, tf.Tensor) for dim in dims):
        return list(dims)
    return tf.stack([tf.cast(dim, dtype) for dim in dims])


def dims_of_shape(tensor: Any) -> list[int | None] | None:
    """The dims that a tensor holds, None where one is not known; None where the tensor is not the shape of another."""
    if tf.executing_eagerly() or tensor.op.type != "Shape":
        return None
    return static_shape(tensor.op.inputs[0])


def partial_dims(shape: Any) -> list[int | None] | None:
    """What is known of a tensor that holds a shape: one entry a dim, None for the dims that are not known.

    TensorFlow's shape inference reads it through Shape, Pack, Concat and StridedSlice; -1 counts as not known.
    """
    if is_known(shape):
        return [int(dim) for dim in np.atleast_1d(shape)]
    if shape.shape.rank != 1 or shape.shape[0] is None:
        return None
    inferred = tf.TensorShape(tf.zeros(shape, tf.bool).shape) if not tf.executing_eagerly() else None
    return None if inferred is None or inferred.rank is None else inferred.as_list()


def product(dims: Sequence[int | None]) -> int | None:
    """The number of elements, or None where it is not known."""
    total = 1
    for dim in dims:
        if dim is None:
            return None
        total *= dim
    return total


def scalar(value: Any) -> Any:
    """A scalar from a tensor of one element, a Python number where it is known."""
    if is_known(value):
        return np.asarray(value).reshape(-1)[0].item()
    return value if value.shape.rank == 0 else tf.reshape(value, [])


def normal_indices(indices: Any, size: Any) -> Any:
    """Indices counted from the front; TensorFlow on a CPU refuses negative ones.

    Args:
        indices: integers, an array where they are known.
        size: length of the axis that they count, or a vector of lengths for the last axis of the indices.
    """
    if is_known(indices):
        array = np.asarray(indices)
        if np.all(array >= 0):
            return tf.constant(array)
        if not _has_tensor(size):
            return tf.constant(np.where(array < 0, array + np.asarray(size), array).astype(array.dtype))
        indices = tf.constant(array)
    length = tf.cast(dims_tensor(size) if isinstance(size, list) else size, indices.dtype)
    return tf.where(indices < 0, indices + length, indices)


def _has_tensor(size: Any) -> bool:
    return any(isinstance(dim, tf.Tensor) for dim in (size if isinstance(size, list) else [size]))


def strides_of(dims: Sequence[Any]) -> list[Any]:
    """How many elements lie between neighbours along each axis."""
    strides: list[Any] = [1]
    for dim in reversed(dims[1:]):
        strides.insert(0, strides[0] * dim)
    return strides


def flat_index(data: Any, indices: Any, axis: int) -> Any:
    """Where the elements that GatherElements and ScatterElements name lie in the flattened data.

    Args:
        data: the tensor.
        indices: non-negative integers of the same rank, int32 or int64; along other axes they may be shorter than the data.
        axis: the axis that they count.
    """
    strides, dims = strides_of(shape_of(data)), shape_of(indices)
    place = tf.cast(indices, tf.int64)
    place = place if _is_one(strides[axis]) else place * tf.cast(strides[axis], tf.int64)
    offsets = [
        _offsets(dims[i], strides[i], len(dims) - 1 - i) for i in range(len(dims)) if i != axis and not _is_one(dims[i])
    ]
    constant = [offset for offset in offsets if isinstance(offset, np.ndarray)]
    if len(constant) > 1 and np.prod([offset.size for offset in constant]) <= CONSTANT_ELEMENTS:
        offsets = [sum(constant[1:], constant[0]), *(x for x in offsets if not isinstance(x, np.ndarray))]
    for offset in offsets:
        place += offset
    return place


def _offsets(size: Any, stride: Any, trailing: int) -> Any:
    """The offsets of all places along one axis, ready to broadcast against the axes after it."""
    if isinstance(size, int) and isinstance(stride, int):
        return (np.arange(size, dtype=np.int64) * stride).reshape([-1] + [1] * trailing)
    steps = tf.range(tf.cast(size, tf.int64)) * tf.cast(stride, tf.int64)
    return tf.reshape(steps, [-1] + [1] * trailing)


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and value == 1
