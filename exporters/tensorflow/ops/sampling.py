"""Sampling of images and volumes at positions that the model computes."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._layout import channels_first
from exporters.tensorflow._sampling import (
    Taps,
    flatten_spatial,
    floor_and_fraction,
    inside_tap,
    linear_taps,
    sum_corners,
)
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import shape_of, static_shape
from exporters.tensorflow._windows import window_of

_HALVES = (tf.float16, tf.bfloat16)


@lower("GridSample")
def grid_sample(X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    sizes = shape_of(X, tf.int32)[2:]
    mode = mode.removeprefix("bi")
    positions = tf.cast(grid, tf.float32) if grid.dtype in _HALVES else grid
    taps = []
    for axis, size in enumerate(sizes):
        place = positions[..., len(sizes) - 1 - axis]
        taps.append(_grid_taps(place, size, (mode, padding_mode, bool(align_corners))))
    table = flatten_spatial(X)
    if mode == "nearest":
        return channels_first(sum_corners(table, sizes, taps))
    wide = table if X.dtype.is_floating and X.dtype not in _HALVES else tf.cast(table, tf.float32)
    return tf.cast(channels_first(sum_corners(wide, sizes, taps)), X.dtype)


def _grid_taps(place, size, rules) -> Taps:
    """The elements that a position between -1 and 1 meets along one axis."""
    mode, padding, align = rules
    count = tf.cast(size, place.dtype)
    position = (place + 1) / 2 * (count - 1) if align else ((place + 1) * count - 1) / 2
    if mode == "nearest":
        position = tf.round(position)
    edges = (tf.zeros_like(count), count - 1) if align else (tf.zeros_like(count) - 0.5, count - 0.5)
    if padding == "border":
        is_outside = (position < edges[0]) | (position > edges[1])
        position = tf.where(is_outside, tf.clip_by_value(position, 0, count - 1), position)
    elif padding == "reflection":
        position = _reflect(position, *edges)
    return [_grid_tap(index, weight, size, padding, edges) for index, weight in _around(position, mode)]


def _around(position, mode) -> Taps:
    if mode == "nearest":
        return [(tf.cast(position, tf.int32), tf.ones_like(position))]
    low, t = floor_and_fraction(position)
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    return [(low + step, _cubic(tf.abs(t - step))) for step in (-1, 0, 1, 2)]


def _cubic(x):
    """Keys's kernel with a = -0.75."""
    near = (1.25 * x - 2.25) * x * x + 1
    far = ((x - 5) * x + 8) * x * -0.75 + 3
    return tf.where(x <= 1, near, far)


def _grid_tap(index, weight, size, padding, edges):
    if padding == "zeros":
        return inside_tap(index, weight, size)
    if padding == "reflection":
        index = tf.cast(_reflect(tf.cast(index, weight.dtype), *edges), tf.int32)
    return tf.clip_by_value(index, 0, size - 1), weight


def _reflect(position, low, high):
    """Fold positions back and forth between two edges."""
    span = high - low
    distance = tf.abs(position - low)
    turns = tf.floor(tf.math.divide_no_nan(distance, span))
    rest = distance - turns * span
    is_even = tf.equal(tf.math.floormod(turns, 2), 0)
    folded = tf.where(is_even, low + rest, high - rest)
    return tf.where(span > 0, folded, low * tf.ones_like(position))


@lower("DeformConv")
def deform_conv(
    X,
    W,
    offset,
    B=None,
    mask=None,
    *,
    dilations=None,
    group=1,
    kernel_shape=None,
    offset_group=1,
    pads=None,
    strides=None,
):
    window = window_of(kernel_shape or [int(size) for size in W.shape[2:]], strides, dilations)
    taps = _deformed_taps(X, offset, window, (offset_group, pads))
    batch, channels, *sizes = shape_of(X, tf.int32)
    grouped = tf.reshape(X, [batch * offset_group, channels // offset_group, *sizes])
    samples = sum_corners(flatten_spatial(grouped), sizes, taps)  # [N * offset groups, kernel, outputs, C]
    if mask is not None:
        samples = samples * tf.reshape(mask, [*tf.unstack(tf.shape(samples))[:-1], 1])
    outputs = shape_of(offset, tf.int32)[2:]
    y = _multiply_taps(samples, W, batch, group)
    y = channels_first(tf.reshape(y, [batch, *outputs, static_shape(W)[0]]))
    return y if B is None else y + tf.reshape(B, [-1] + [1] * window.rank)


def _deformed_taps(X, offset, window, rules):
    """Taps ``[N * offset groups, kernel, outputs]`` along each axis."""
    offset_group, pads = rules
    batch, _, *outputs = shape_of(offset, tf.int32)
    rank, sizes = window.rank, shape_of(X, tf.int32)[2:]
    begins = list(pads[:rank]) if pads else [0] * rank
    moves = tf.reshape(offset, [batch * offset_group, *window.kernel, rank, *outputs])
    taps = []
    for axis in range(rank):
        steps = tf.range(window.kernel[axis]) * window.dilations[axis] - begins[axis]
        starts = tf.range(outputs[axis]) * window.strides[axis]
        place = tf.reshape(steps, [-1] + [1] * (2 * rank - 1 - axis)) + tf.reshape(
            starts, [-1] + [1] * (rank - 1 - axis)
        )
        place = tf.cast(place, moves.dtype) + tf.gather(moves, axis, axis=rank + 1)
        place = tf.reshape(place, [batch * offset_group, _product(window.kernel), _product(outputs)])
        taps.append(linear_taps(place, sizes[axis]))
    return taps


def _product(sizes):
    total = 1
    for size in sizes:
        total = total * size
    return total


def _multiply_taps(samples, W, batch, group):
    """Samples ``[N * offset groups, kernel, outputs, C / offset groups]`` times weights: ``[N, outputs, M]``."""
    _, kernel, count, part = shape_of(samples, tf.int32)
    split = tf.reshape(samples, [batch, -1, kernel, count, part])
    line = tf.transpose(split, [0, 3, 1, 4, 2])  # [N, outputs, offset group, channel, kernel]
    line = tf.reshape(line, [batch, count, group, -1, kernel])
    weights = tf.reshape(W, [group, -1, static_shape(W)[1], kernel])
    y = tf.einsum("nogck,gmck->nogm", line, weights)
    return tf.reshape(y, [batch, count, -1])
