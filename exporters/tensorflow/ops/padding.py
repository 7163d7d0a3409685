"""Pad in all modes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._movement import carried, is_known, normal_axis, scalar
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of, shape_of, static_shape


@lower("Pad", static=("pads", "axes"))
def pad(data, pads, constant_value=None, axes=None, *, mode="constant"):
    data, restore = carried(data)
    rank = rank_of(data)
    value = None if constant_value is None else scalar(carried(constant_value)[0])
    if is_known(pads) and (axes is None or is_known(axes)):
        return restore(_pad_known(data, _pairs(pads, axes, rank), value, mode))
    pairs = _pairs_by_tensor(pads, axes, rank)
    if mode == "constant":
        return restore(_pad_constant_by_tensor(data, pairs, value))
    for axis in range(rank):
        data = _pad_axis(data, axis, pairs[axis, 0], pairs[axis, 1], mode)
    return restore(data)


def _pairs(pads, axes, rank):
    """``(before, after)`` for every axis."""
    places = range(rank) if axes is None else [normal_axis(int(axis), rank) for axis in axes]
    pairs = [(0, 0)] * rank
    for i, place in enumerate(places):
        pairs[place] = (int(pads[i]), int(pads[i + len(pads) // 2]))
    return pairs


def _pairs_by_tensor(pads, axes, rank):
    """The same as an int64 tensor of shape [rank, 2], where pads or axes are known only when the graph runs."""
    pairs = tf.transpose(tf.reshape(tf.cast(pads, tf.int64), [2, -1]))
    if axes is None:
        return tf.ensure_shape(pairs, [rank, 2])
    axes = tf.cast(axes, tf.int64)
    places = tf.where(axes < 0, axes + rank, axes)
    return tf.scatter_nd(places[:, tf.newaxis], pairs, tf.constant([rank, 2], tf.int64))


def _pad_known(data, pairs, value, mode):
    if mode == "constant":
        data = _cropped(data, pairs)
        grown = [(max(before, 0), max(after, 0)) for before, after in pairs]
        return _pad_constant(data, grown, value) if np.any(grown) else data
    if mode == "reflect" and _fits_reflect(pairs, static_shape(data)):
        return tf.pad(data, pairs, "REFLECT")
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            data = _pad_axis(data, axis, before, after, mode)
    return data


def _fits_reflect(pairs, dims):
    """Whether TensorFlow takes the pads: no crop, and less than the axis is long."""
    return all(
        pair == (0, 0) or (dim is not None and min(pair) >= 0 and max(pair) < dim) for pair, dim in zip(pairs, dims)
    )


def _cropped(data, pairs):
    """Negative pads cut."""
    if all(min(pair) >= 0 for pair in pairs):
        return data
    return data[tuple(slice(max(-before, 0), -max(-after, 0) or None) for before, after in pairs)]


def _pad_constant(data, pairs, value):
    return tf.pad(data, pairs) if value is None else tf.pad(data, pairs, constant_values=value)


def _pad_constant_by_tensor(data, pairs, value):
    cut = tf.maximum(-pairs, 0)
    dims = tf.shape(data, out_type=tf.int64)
    inner = tf.strided_slice(data, cut[:, 0], dims - cut[:, 1], tf.ones_like(dims))
    return _pad_constant(inner, tf.maximum(pairs, 0), value)


def _pad_axis(data, axis, before, after, mode):
    """Gather the elements that reflect, edge and wrap repeat; a negative pad cuts."""
    size = shape_of(data)[axis]
    if all(isinstance(x, int) for x in (size, before, after)):
        return tf.gather(data, _sources(mode, np.arange(-before, size + after), size, np), axis=axis)
    size = tf.cast(size, tf.int64)
    return tf.gather(data, _sources(mode, tf.range(-before, size + after, dtype=tf.int64), size, tf), axis=axis)


def _sources(mode, place, size, xp):
    """Which element stands at each place; ``xp`` is numpy or tensorflow."""
    if mode == "edge":
        return xp.minimum(xp.maximum(place, 0), size - 1)
    if mode == "wrap":
        return place % size
    period = xp.maximum(2 * (size - 1), 1)
    turn = place % period
    return xp.minimum(turn, period - turn)
