"""Pools."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from exporters.tensorflow._layout import channels_first, channels_last
from exporters.tensorflow._pools import fold_windows, lowest, pool_of, take_slices, tap_counts
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of, shape_of
from exporters.tensorflow._windows import is_static, pad_spatial, window_of


@lower("MaxPool", takes=("outputs",))
def max_pool(
    X,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations=None,
    kernel_shape,
    pads=None,
    storage_order=0,
    strides=None,
    outputs=1,
):
    pool = pool_of(
        X, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    if outputs > 1:
        return _max_and_indices(X, pool, storage_order)
    wide = tf.cast(X, tf.float32) if X.dtype in _EXACT_IN_FLOAT32 else X
    if _has_kernel(wide, pool):
        return tf.cast(_kernel_max(wide, pool), X.dtype)
    padded = pad_spatial(X, pool.reach, lowest(X.dtype), first=2)
    return fold_windows(padded, pool, tf.maximum)


_EXACT_IN_FLOAT32 = (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.float16, tf.bfloat16)


def _has_kernel(x, pool):
    # The gradient of TensorFlow's three-dimensional kernel takes values that differ by 1e-5 for equal.
    return pool.window.rank <= 2 and x.dtype == tf.float32 and not pool.window.is_dilated


def _kernel_max(X, pool):
    x, reach = channels_last(X), pool.reach
    size, steps = pool.window.kernel, pool.window.strides
    if pool.window.rank == 2 and is_static(reach) and min(min(pair) for pair in reach) >= 0:
        padding = [[0, 0], *(list(pair) for pair in reach), [0, 0]] if any(map(any, reach)) else "VALID"
        return channels_first(tf.nn.max_pool2d(x, size, steps, padding))
    x = pad_spatial(x, reach, lowest(x.dtype))
    return channels_first(tf.nn.max_pool(x, size, steps, "VALID"))


def _max_and_indices(X, pool, storage_order):
    """Maxima, and where they stand in the whole input, counted without padding."""
    shape = shape_of(X)
    place = _places(shape, storage_order)
    best = pad_spatial(X, pool.reach, lowest(X.dtype), first=2)
    place = pad_spatial(place, pool.reach, 0, first=2)
    # The innermost axis first: then the first of equal elements wins in row-major order.
    for axis in reversed(range(pool.window.rank)):
        values, places = take_slices(best, pool, axis), take_slices(place, pool, axis)
        best, place = values[0], places[0]
        for value, other in zip(values[1:], places[1:]):
            is_better = value > best
            best, place = tf.where(is_better, value, best), tf.where(is_better, other, place)
    return best, place


def _places(shape, storage_order):
    """The flat index of each element; with ``storage_order`` 1 the spatial axes are counted first to last."""
    order = list(range(2, len(shape)))
    order = [0, 1, *(reversed(order) if storage_order else order)]
    place, step = tf.zeros([1] * len(shape), tf.int64), 1
    for axis in reversed(order):
        line = [1] * len(shape)
        line[axis] = -1
        place = place + tf.reshape(tf.range(tf.cast(shape[axis], tf.int64)), line) * step
        step = step * shape[axis]
    return place


@lower("AveragePool")
def average_pool(
    X, *, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, kernel_shape, pads=None, strides=None
):
    pool = pool_of(
        X, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    wide = tf.cast(X, tf.float32) if X.dtype in (tf.float16, tf.bfloat16) else X
    full = math.prod(kernel_shape)
    counts = tap_counts(pool, pool.pads if count_include_pad else [(0, 0)] * pool.window.rank, wide.dtype)
    mean = _box_sum(wide, pool, full)
    if not (isinstance(counts, np.ndarray) and (counts == full).all()):
        mean = mean * (full / tf.constant(counts) if isinstance(counts, np.ndarray) else full / counts)
    return tf.cast(mean, X.dtype)


def _box_sum(X, pool, divisor):
    """The sum over each window, divided; zeros stand in the padding."""
    if pool.window.rank > 3 or pool.window.is_dilated or (pool.window.rank == 3 and X.dtype != tf.float32):
        padded = pad_spatial(X, pool.reach, 0, first=2)
        return fold_windows(padded, pool, tf.add) / divisor
    x = pad_spatial(channels_last(X), pool.reach)
    mean = channels_first(tf.nn.avg_pool(x, pool.window.kernel, pool.window.strides, "VALID"))
    return mean if divisor == math.prod(pool.window.kernel) else mean * (math.prod(pool.window.kernel) / divisor)


@lower("LpPool")
def lp_pool(X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None):
    pool = pool_of(
        X, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    wide = tf.cast(X, tf.float32) if X.dtype in (tf.float16, tf.bfloat16) else X
    return tf.cast(_root(_box_sum(_power(wide, p), pool, 1), p), X.dtype)


def _power(x, p):
    return tf.abs(x) if p == 1 else tf.square(x) if p == 2 else tf.pow(tf.abs(x), tf.cast(p, x.dtype))


def _root(x, p):
    return x if p == 1 else tf.sqrt(x) if p == 2 else tf.pow(x, tf.cast(1 / p, x.dtype))


def _global(reduce):
    """Reduce all spatial axes, channels last so that the transposes of neighbours cancel."""

    def pool(X):
        rank = rank_of(X)
        return channels_first(reduce(channels_last(X), list(range(1, rank - 1)), keepdims=True))

    return pool


@lower("GlobalAveragePool")
def global_average_pool(X):
    return _global(tf.reduce_mean)(X)


@lower("GlobalMaxPool")
def global_max_pool(X):
    return _global(tf.reduce_max)(X)


@lower("GlobalLpPool")
def global_lp_pool(X, *, p=2):
    return _root(_global(tf.reduce_sum)(_power(X, p)), p)


@lower("MaxUnpool", static=("output_shape",))
def max_unpool(X, I, output_shape=None, *, kernel_shape, pads=None, strides=None):  # noqa: E741  # the schema's name
    """The indices count in the shape that kernel, strides and pads give; a larger output shape adds zeros behind."""
    window = window_of(kernel_shape, strides, None)
    shape = shape_of(X, tf.int32)
    padding = window.pads(shape[2:], "NOTSET", pads)
    axes = zip(shape[2:], window.kernel, window.strides, padding)
    full = [*shape[:2], *((size - 1) * stride + kernel - sum(pair) for size, kernel, stride, pair in axes)]
    flat = tf.zeros([math.prod(full)], X.dtype)
    flat = tf.tensor_scatter_nd_update(flat, tf.reshape(I, [-1, 1]), tf.reshape(X, [-1]))
    y = tf.reshape(flat, tf.stack(full))
    if output_shape is None:
        return y
    wanted = [int(size) for size in output_shape] if isinstance(output_shape, np.ndarray) else output_shape
    sizes = [wanted[axis] if isinstance(wanted, list) else tf.cast(wanted[axis], tf.int32) for axis in range(len(full))]
    return tf.pad(y, tf.stack([tf.stack([0, size - have]) for size, have in zip(sizes, full)]))
