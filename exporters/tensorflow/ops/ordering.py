"""Operators that depend on the order of elements: TopK, ArgMax, cumulative sums, Unique, NonMaxSuppression."""

from __future__ import annotations

import math

import tensorflow as tf

from exporters.tensorflow._movement import normal_axis, scalar
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of, static_shape, through


@lower("TopK", static=("K",))
def top_k(X, K, *, axis=-1, largest=1, sorted=1):
    count, rank = scalar(K), rank_of(X)
    axis = normal_axis(axis, rank)
    order = [i for i in range(rank) if i != axis]
    order.insert(rank - 1, axis)
    is_last = axis == rank - 1
    data = X if is_last else tf.transpose(X, order)
    # With index_type=int64 TensorFlow's gradient of top_k fails.
    values, places = tf.math.top_k(data if largest else _reversed_order(data), count, sorted=bool(sorted))
    places = tf.cast(places, tf.int64)
    values = values if largest else _reversed_order(values)
    if is_last:
        return values, places
    back = [order.index(i) for i in range(rank)]
    return tf.transpose(values, back), tf.transpose(places, back)


def _reversed_order(data):
    """The elements so that the smallest is the largest; integers cannot overflow this way."""
    return tf.bitwise.invert(data) if data.dtype.is_integer else -data


@lower("ArgMax")
def arg_max(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(tf.argmax, data, math.inf, axis, keepdims, select_last_index)


@lower("ArgMin")
def arg_min(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(tf.argmin, data, -math.inf, axis, keepdims, select_last_index)


def _arg(function, data, best, axis, keepdims, select_last_index):
    axis = normal_axis(axis, rank_of(data))
    if data.dtype.is_floating:
        data = tf.where(tf.math.is_nan(data), tf.constant(best, data.dtype), data)  # NaN wins, as in NumPy and torch
    if select_last_index:
        data = tf.reverse(data, [axis])
    place = function(data, axis, output_type=tf.int64)
    if select_last_index:
        place = tf.cast(shape_of(data)[axis], tf.int64) - 1 - place
    return tf.expand_dims(place, axis) if keepdims else place


@lower("CumSum", static=("axis",))
def cum_sum(x, axis, *, exclusive=0, reverse=0):
    return _cumulated(tf.cumsum, x, axis, exclusive, reverse)


@lower("CumProd", static=("axis",))
def cum_prod(x, axis, *, exclusive=0, reverse=0):
    return _cumulated(tf.math.cumprod, x, axis, exclusive, reverse)


def _cumulated(function, x, axis, exclusive, reverse):
    """Half floats are added up in float32, as torch does."""
    options = {"axis": scalar(axis), "exclusive": bool(exclusive), "reverse": bool(reverse)}
    return through(lambda data: function(data, **options), (tf.float16, tf.bfloat16))(x)


@lower("Unique")
def unique(X, *, axis=None, sorted=1):
    if X.dtype.is_complex:
        raise RefusedError("TensorFlow cannot look for equal complex numbers")
    data = tf.reshape(X, [-1]) if axis is None else X
    axis = 0 if axis is None else normal_axis(axis, rank_of(X))
    values, inverse, counts = tf.raw_ops.UniqueWithCountsV2(x=data, axis=[axis], out_idx=tf.int64)
    count = tf.shape(counts)[0]
    first = tf.math.unsorted_segment_min(tf.range(tf.shape(inverse, tf.int64)[0]), inverse, count)
    if sorted:
        order = _sorting_order(values, axis)
        values, counts, first = tf.gather(values, order, axis=axis), tf.gather(counts, order), tf.gather(first, order)
        inverse = tf.gather(tf.cast(tf.math.invert_permutation(order), tf.int64), inverse)
    return values, first, inverse, counts


def _sorting_order(values, axis):
    """The order of the slices along an axis, the first elements counting most."""
    if values.dtype == tf.string:
        values = _as_bytes(values)
    elif values.dtype == tf.bool:
        values = tf.cast(values, tf.uint8)
    rows = tf.shape(values)[axis]
    front = [axis, *(i for i in range(rank_of(values)) if i != axis)]
    keys = tf.reshape(tf.transpose(values, front), [rows, -1])
    if static_shape(values)[1:] == [] or static_shape(keys)[1] == 1:
        return tf.argsort(keys[:, 0], stable=True)

    def refine(column, order):
        finer = tf.argsort(tf.gather(keys[:, column], order), stable=True)
        return column - 1, tf.gather(order, finer)

    last = tf.shape(keys)[1] - 1
    return tf.while_loop(lambda column, _: column >= 0, refine, (last, tf.range(rows)))[1]


def _as_bytes(values):
    """The bytes of strings along a new last axis; their order is the order of the code points."""
    length = tf.maximum(tf.reduce_max(tf.strings.length(values)), 1)
    return tf.io.decode_raw(values, tf.uint8, fixed_length=length)


@lower("NonMaxSuppression", static=("max_output_boxes_per_class", "iou_threshold", "score_threshold"))
def non_max_suppression(
    boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, *, center_point_box=0
):
    boxes = _corners(boxes) if center_point_box else boxes
    batch, classes, count = shape_of(scores)
    most = 0 if max_output_boxes_per_class is None else scalar(max_output_boxes_per_class)
    most = tf.cast(tf.minimum(tf.cast(most, tf.int64), tf.cast(count, tf.int64)), tf.int32)
    overlap = 0.0 if iou_threshold is None else scalar(iou_threshold)
    least = float("-inf") if score_threshold is None else scalar(score_threshold)

    def select(place):
        item, kind = place // classes, place % classes
        chosen, found = tf.raw_ops.NonMaxSuppressionV4(
            boxes=boxes[item],
            scores=scores[item, kind],
            max_output_size=most,
            iou_threshold=overlap,
            score_threshold=least,
            pad_to_max_output_size=True,
        )
        return chosen, found

    chosen, found = tf.map_fn(select, tf.range(batch * classes), fn_output_signature=(tf.int32, tf.int32))
    where = tf.where(tf.sequence_mask(found, most))
    boxes_chosen = tf.cast(tf.gather_nd(chosen, where), tf.int64)
    classes = tf.cast(classes, tf.int64)
    return tf.stack([where[:, 0] // classes, where[:, 0] % classes, boxes_chosen], axis=1)


def _corners(boxes):
    """Corners ``y1, x1, y2, x2`` of boxes given by centre, width and height."""
    x, y, width, height = tf.unstack(boxes, num=4, axis=-1)
    return tf.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], axis=-1)
