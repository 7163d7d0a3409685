"""Pools over regions of interest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from exporters.tensorflow._sampling import flatten_spatial, gather_corners
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import shape_of

_HALVES = (tf.float16, tf.bfloat16)


@dataclass(frozen=True)
class _Bins:
    """How RoiAlign divides a region.

    Attributes:
        counts: bins along height and width.
        samples: sampling points a bin and axis; 0 for as many as a bin has elements.
        scale: the input's size by the size of what the regions refer to.
        offset: half a pixel where positions refer to pixel centres.
    """

    counts: tuple[int, int]
    samples: int
    scale: float
    offset: float


@lower("RoiAlign", since=10)
def roi_align_10(
    X, rois, batch_indices, *, mode="avg", output_height=1, output_width=1, sampling_ratio=0, spatial_scale=1.0
):
    bins = _Bins((output_height, output_width), sampling_ratio, spatial_scale, 0.0)
    return _roi_align(X, rois, batch_indices, mode, bins)


@lower("RoiAlign", since=16)
def roi_align(
    X,
    rois,
    batch_indices,
    *,
    coordinate_transformation_mode="half_pixel",
    mode="avg",
    output_height=1,
    output_width=1,
    sampling_ratio=0,
    spatial_scale=1.0,
):
    offset = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    bins = _Bins((output_height, output_width), sampling_ratio, spatial_scale, offset)
    return _roi_align(X, rois, batch_indices, mode, bins)


def _roi_align(X, rois, batch_indices, mode, bins):
    wide = tf.cast(X, tf.float32) if X.dtype in _HALVES else X
    corners = tf.cast(rois, wide.dtype) * tf.cast(bins.scale, wide.dtype) - tf.cast(bins.offset, wide.dtype)
    batch, _, *sizes = shape_of(wide, tf.int32)
    axes = [_axis_samples(corners[:, 1 - axis], corners[:, 3 - axis], bins, (axis, sizes[axis])) for axis in range(2)]
    (rows, row_counts), (columns, column_counts) = axes
    # Axes: region, bin row, sample row, bin column, sample column.
    taps = [
        [(index[:, :, :, None, None], weight[:, :, :, None, None]) for index, weight in rows],
        [(index[:, None, None], weight[:, None, None]) for index, weight in columns],
    ]
    images = tf.cast(batch_indices, tf.int32)[:, None, None, None, None] * sizes[0]
    taps[0] = [(index + images, weight) for index, weight in taps[0]]
    table = flatten_spatial(wide)
    table = tf.reshape(table, tf.stack([1, batch * sizes[0] * sizes[1], tf.shape(table)[-1]]))
    parts = gather_corners(table, sizes, [[(i[None], w[None]) for i, w in axis] for axis in taps])
    values = [(value * weight)[0] for value, weight in parts]
    counts = tf.reshape(tf.maximum(row_counts * column_counts, 1), [-1, 1, 1, 1])
    if mode == "avg":
        pooled = tf.reduce_sum(tf.add_n(values), [2, 4]) / tf.cast(counts, wide.dtype)
    else:
        pooled = _largest(values, row_counts, column_counts)
    return tf.cast(tf.transpose(pooled, [0, 3, 1, 2]), X.dtype)


def _axis_samples(start, end, bins, place):
    """Both elements around each sample of each bin along one axis.

    Returns:
        Taps ``[regions, bins, samples]``; and the number of samples a bin, ``[regions]`` int32.
    """
    axis, size = place
    count = bins.counts[axis]
    length = end - start if bins.offset else tf.maximum(end - start, 1.0)
    step = length / count
    samples = tf.fill(tf.shape(start), bins.samples) if bins.samples else tf.cast(tf.math.ceil(step), tf.int32)
    most = bins.samples or tf.reduce_max(tf.maximum(samples, 1))
    inner = (tf.cast(tf.range(most), step.dtype) + 0.5) * (step / tf.cast(tf.maximum(samples, 1), step.dtype))[:, None]
    outer = start[:, None] + tf.cast(tf.range(count), step.dtype) * step[:, None]
    position = outer[:, :, None] + inner[:, None]
    is_used = tf.range(most) < samples[:, None]
    return _edge_taps(position, size, is_used[:, None]), samples


def _edge_taps(position, size, is_used):
    """Elements around a position; up to one element outside counts as on the edge, and all beyond for nothing."""
    last = tf.cast(size - 1, position.dtype)
    is_used = is_used & (position >= -1) & (position <= last + 1)
    position = tf.clip_by_value(position, 0, last)
    low = tf.floor(position)
    fraction = position - low
    index = tf.cast(low, tf.int32)
    zero = tf.zeros_like(fraction)
    return [
        (index, tf.where(is_used, 1 - fraction, zero)),
        (tf.minimum(index + 1, size - 1), tf.where(is_used, fraction, zero)),
    ]


def _largest(values, row_counts, column_counts):
    """The largest weighted corner of all samples of a bin; 0 for a bin without samples."""
    largest = values[0]
    for value in values[1:]:
        largest = tf.maximum(largest, value)
    rows = tf.range(tf.shape(largest)[2]) < row_counts[:, None]
    columns = tf.range(tf.shape(largest)[4]) < column_counts[:, None]
    is_sample = rows[:, None, :, None, None, None] & columns[:, None, None, None, :, None]
    masked = tf.where(is_sample, largest, tf.cast(-np.inf, largest.dtype))
    pooled = tf.reduce_max(masked, [2, 4])
    return tf.where(tf.math.is_inf(pooled) & (pooled < 0), tf.zeros_like(pooled), pooled)


@lower("MaxRoiPool")
def max_roi_pool(X, rois, *, pooled_shape, spatial_scale=1.0):
    wide = tf.cast(X, tf.float32) if X.dtype in _HALVES else X
    sizes = shape_of(wide, tf.int32)[2:]
    corners = tf.cast(rois, wide.dtype)
    edges = _round_half_away(corners[:, 1:] * tf.cast(spatial_scale, wide.dtype))
    rows = _bin_masks(edges[:, 1], edges[:, 3], pooled_shape[0], sizes[0])
    columns = _bin_masks(edges[:, 0], edges[:, 2], pooled_shape[1], sizes[1])

    def pool(region):
        image, row, column = region
        # [C, H, W] to [C, bins, W] to [C, bins, bins].
        lines = _masked_max(tf.expand_dims(wide[image], 1), row[None, :, :, None], 2)
        return _masked_max(tf.expand_dims(lines, 2), column[None, None], 3)

    images = tf.cast(corners[:, 0], tf.int32)
    signature = tf.TensorSpec([X.shape[1], *pooled_shape], wide.dtype)
    pooled = tf.map_fn(pool, (images, rows, columns), fn_output_signature=signature)
    empty = tf.math.is_inf(pooled) & (pooled < 0)
    return tf.cast(tf.where(empty, tf.zeros_like(pooled), pooled), X.dtype)


def _round_half_away(x):
    return tf.sign(x) * tf.floor(tf.abs(x) + 0.5)


def _bin_masks(start, end, count, size):
    """Which elements of an axis each bin covers, ``[regions, bins, size]`` bool."""
    step = tf.maximum(end - start + 1, 1) / count
    bins = tf.cast(tf.range(count), start.dtype)
    first = tf.floor(bins * step[:, None]) + start[:, None]
    behind = tf.math.ceil((bins + 1) * step[:, None]) + start[:, None]
    places = tf.cast(tf.range(size), start.dtype)
    return (places >= first[:, :, None]) & (places < behind[:, :, None])


def _masked_max(x, mask, axis):
    return tf.reduce_max(tf.where(mask, x, tf.cast(-np.inf, x.dtype)), axis)
