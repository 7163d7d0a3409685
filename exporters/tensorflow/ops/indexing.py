"""Operators that pick elements by index or write them by index."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._movement import (
    carried,
    dims_of_shape,
    dims_tensor,
    flat_index,
    is_known,
    normal_axis,
    normal_indices,
    scalar,
    strides_of,
)
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of

INT32_MAX = 2**31 - 1


@lower("Gather", static=("indices",))
def gather(data, indices, *, axis=0):
    axis = normal_axis(axis, rank_of(data))
    data, restore = carried(data)
    if is_known(indices) and np.ndim(indices) == 0:
        dims = dims_of_shape(data)
        if dims is not None and dims[int(indices)] is not None:
            return tf.constant(dims[int(indices)], data.dtype)
        return restore(data[(slice(None),) * axis + (int(indices),)])
    return restore(tf.gather(data, normal_indices(indices, shape_of(data)[axis]), axis=axis))


@lower("GatherElements", static=("indices",))
def gather_elements(data, indices, *, axis=0):
    axis = normal_axis(axis, rank_of(data))
    indices = normal_indices(indices, shape_of(data)[axis])
    data, restore = carried(data)
    if rank_of(data) == 1:
        return restore(tf.gather(data, indices))
    return restore(tf.gather(tf.reshape(data, [-1]), flat_index(data, indices, axis)))


@lower("GatherND", static=("indices",))
def gather_nd(data, indices, *, batch_dims=0):
    depth = _depth(indices)
    indices = normal_indices(indices, shape_of(data)[batch_dims : batch_dims + depth])
    data, restore = carried(data)
    return restore(tf.gather_nd(data, indices, batch_dims=batch_dims))


def _depth(indices):
    depth = indices.shape[-1]
    if depth is None:
        raise RefusedError("the last dim of the indices is not known while the graph is built")
    return depth


_WRITE = {
    "none": tf.tensor_scatter_nd_update,
    "add": tf.tensor_scatter_nd_add,
    "max": tf.tensor_scatter_nd_max,
    "min": tf.tensor_scatter_nd_min,
}


@lower("ScatterND", static=("indices",))
def scatter_nd(data, indices, updates, *, reduction="none"):
    depth = _depth(indices)
    dims = shape_of(data)
    indices = normal_indices(indices, dims[:depth])
    if reduction == "mul":
        strides = tf.cast(dims_tensor(strides_of(dims[:depth])), indices.dtype)
        rows = tf.reshape(data, dims_tensor([-1, *dims[depth:]]))
        factors = _products(updates, tf.reduce_sum(indices * strides, -1), tf.shape(rows)[0])
        return tf.reshape(rows * factors, dims_tensor(dims))
    data, restore = carried(data)
    return restore(_WRITE[reduction](data, indices, carried(updates)[0]))


def _products(updates, places, count):
    """The product of all updates that go to each place, one where there is none."""
    return tf.math.unsorted_segment_prod(updates, places, count)


@lower("ScatterElements", static=("indices",))
def scatter_elements(data, indices, updates, *, axis=0, reduction="none"):
    axis = normal_axis(axis, rank_of(data))
    indices = normal_indices(indices, shape_of(data)[axis])
    places = tf.reshape(flat_index(data, indices, axis), [-1])
    dims = dims_tensor(shape_of(data))
    data, restore = carried(data)
    flat, updates = tf.reshape(data, [-1]), tf.reshape(carried(updates)[0], [-1])
    if reduction == "mul":
        return tf.reshape(flat * _products(updates, places, tf.size(flat)), dims)
    return restore(tf.reshape(_WRITE[reduction](flat, places[:, tf.newaxis], updates), dims))


@lower("Scatter", static=("indices",))
def scatter(data, indices, updates, *, axis=0):
    return scatter_elements(data, indices, updates, axis=axis)


@lower("TensorScatter")
def tensor_scatter(past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    axis = normal_axis(axis, rank_of(past_cache))
    past, restore = carried(past_cache)
    update, _ = carried(update)
    batch, length, count = shape_of(past)[0], shape_of(past)[axis], shape_of(update)[axis]
    start = tf.zeros([batch], tf.int64) if write_indices is None else tf.cast(write_indices, tf.int64)
    # Which row of the update each row of the cache takes: a gather, so that neither needs a transpose.
    source = tf.range(tf.cast(length, tf.int64)) - start[:, tf.newaxis]
    if mode == "circular":
        source %= tf.cast(length, tf.int64)
    count = tf.cast(count, tf.int64)
    is_new = (source >= 0) & (source < count)
    rows = tf.gather(update, tf.clip_by_value(source, 0, count - 1), axis=axis, batch_dims=1)
    mask = tf.reshape(is_new, dims_tensor([batch, *[1] * (axis - 1), length, *[1] * (rank_of(past) - axis - 1)]))
    return restore(tf.where(mask, rows, past))


@lower("Slice", static=("starts", "ends", "axes", "steps"))
def slice_(data, starts, ends, axes=None, steps=None):
    rank = rank_of(data)
    data, restore = carried(data)
    if axes is not None and not is_known(axes):
        return restore(_slice_by_tensor(data, starts, ends, axes, steps))
    if axes is None and not (is_known(starts) and is_known(ends)):
        return restore(
            tf.strided_slice(data, *_same_type(starts, ends, tf.ones_like(starts) if steps is None else steps))
        )
    places = range(len(starts)) if axes is None else [normal_axis(int(axis), rank) for axis in axes]
    parts = [slice(None)] * rank
    for i, place in enumerate(places):
        step = 1 if steps is None else _clamped(steps, i)
        start, end = _clamped(starts, i), _clamped(ends, i)
        if isinstance(step, int):
            start, end = _open(start, -step), _open(end, step)
        parts[place] = slice(start, end, None if isinstance(step, int) and step == 1 else step)
    known = _known_dims(data, parts)
    if known is not None:
        return tf.constant(known, data.dtype)
    return restore(data if all(_is_whole(part) for part in parts) else data[tuple(parts)])


def _is_whole(part):
    return part.start is None and part.stop is None and part.step is None


def _known_dims(data, parts):
    """The part of a shape, where the sliced tensor is one and that part of it is known."""
    held = dims_of_shape(data)
    if held is None or any(isinstance(x, tf.Tensor) for x in (parts[0].start, parts[0].stop, parts[0].step)):
        return None
    chosen = held[parts[0]]
    return None if None in chosen else chosen


def _clamped(values, i):
    """One start, end or step, with the numbers that mean "as far as it goes" in the range of int32."""
    return max(-INT32_MAX, min(int(values[i]), INT32_MAX)) if is_known(values) else values[i]


def _open(bound, direction):
    """None where a bound lies beyond every axis in the given direction, so that TensorFlow sees a plain slice."""
    return None if isinstance(bound, int) and abs(bound) == INT32_MAX and (bound > 0) == (direction > 0) else bound


def _same_type(*values):
    return [tf.cast(value, tf.int64) for value in values]


def _slice_by_tensor(data, starts, ends, axes, steps):
    """Axes that only the run knows."""
    rank = rank_of(data)
    steps = tf.ones_like(starts) if steps is None else steps
    starts, ends, steps, axes = _same_type(starts, ends, steps, axes)
    places = tf.where(axes < 0, axes + rank, axes)[:, tf.newaxis]
    dims = tf.shape(data, out_type=tf.int64)
    begin = tf.tensor_scatter_nd_update(tf.zeros_like(dims), places, starts)
    end = tf.tensor_scatter_nd_update(dims, places, ends)
    return tf.strided_slice(data, begin, end, tf.tensor_scatter_nd_update(tf.ones_like(dims), places, steps))


@lower("OneHot", static=("depth",))
def one_hot(indices, depth, values, *, axis=-1):
    depth = scalar(depth)
    depth = int(depth) if is_known(depth) else tf.cast(depth, tf.int64)
    indices = tf.cast(indices, tf.int64)
    indices = tf.where(indices < 0, indices + depth, indices)
    axis = axis + rank_of(indices) + 1 if axis < -1 else axis
    return tf.one_hot(
        indices, tf.cast(depth, tf.int32), on_value=values[1], off_value=values[0], axis=axis, dtype=values.dtype
    )


@lower("NonZero")
def non_zero(X):
    return tf.transpose(tf.where(X if X.dtype == tf.bool else tf.not_equal(X, tf.zeros([], X.dtype))))


@lower("Where")
def where(condition, X, Y):
    (x, restore), (y, _) = carried(X), carried(Y)
    return restore(tf.where(condition, x, y))


@lower("Compress")
def compress(input, condition, *, axis=None):
    data, restore = carried(input if axis is not None else tf.reshape(input, [-1]))
    return restore(tf.gather(data, tf.where(condition)[:, 0], axis=axis or 0))


@lower("ReverseSequence")
def reverse_sequence(input, sequence_lens, *, batch_axis=1, time_axis=0):
    return tf.reverse_sequence(input, sequence_lens, seq_axis=time_axis, batch_axis=batch_axis)


@lower("Trilu", static=("k",))
def trilu(input, k=None, *, upper=1):
    diagonal = 0 if k is None else scalar(k)
    if is_known(diagonal) and diagonal == 0:
        return tf.linalg.band_part(input, 0, -1) if upper else tf.linalg.band_part(input, -1, 0)
    rows, columns = shape_of(input)[-2:]
    offset = tf.range(tf.cast(columns, tf.int64)) - tf.range(tf.cast(rows, tf.int64))[:, tf.newaxis]
    return tf.where(offset >= diagonal if upper else offset <= diagonal, input, tf.zeros([], input.dtype))
