"""Operators that make tensors: constants, ranges and windows; and those that hand on what they are given."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from exporters._graph.contrib import MICROSOFT
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, np_dtype, shape_of, tf_dtype


@lower("Identity")
def identity(input):
    return tf.identity(input) if isinstance(input, tf.Tensor) else input  # sequences and optionals are Python values


@lower("Constant")
def constant(
    *,
    sparse_value=None,
    value=None,
    value_float=None,
    value_floats=None,
    value_int=None,
    value_ints=None,
    value_string=None,
    value_strings=None,
):
    forms = (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    )
    if value is not None:
        return value
    if sparse_value is not None:
        return _dense(sparse_value)
    given = [np.array(data, dtype) for data, dtype in forms if data is not None]
    if len(given) != 1:
        raise RefusedError(f"it has {len(given)} values, not one")
    return given[0]


def _dense(sparse):
    """The array of an ONNX ``SparseTensorProto``, whose indices are linear or one row an element."""
    from onnx import numpy_helper

    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    where = np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)
    dense[where] = values
    return dense


@lower("ConstantOfShape", static=("input",))
def constant_of_shape(input, *, value=None):
    fill = np.zeros([], np.float32) if value is None else value.reshape([])
    return tf.fill(input, tf.constant(fill))


@lower("EyeLike")
def eye_like(input, *, dtype=None, k=0):
    rows, columns = shape_of(input)
    row = tf.range(tf.cast(rows, tf.int64))[:, tf.newaxis]
    column = tf.range(tf.cast(columns, tf.int64))[tf.newaxis, :]
    return tf.cast(tf.equal(column - row, k), input.dtype if dtype is None else tf_dtype(dtype))


@lower("Range", static=("delta",))
def range(start, limit, delta, *, stash_type=1):  # noqa: A001  # lowerings carry the operator's name
    start, limit, delta = (_scalar(bound) for bound in (start, limit, delta))
    if start.dtype.is_integer:
        wide = start.dtype if start.dtype in (tf.int32, tf.int64) else tf.int32
        first, last, step = (tf.cast(bound, wide) for bound in (start, limit, delta))
        return tf.cast(tf.range(first, _reachable(first, last, step, delta), step), start.dtype)
    # TensorFlow's own Range adds up the steps, and with them the rounding errors.
    work = tf_dtype(stash_type) if start.dtype.size == 2 else start.dtype
    first, last, step = (tf.cast(bound, work) for bound in (start, limit, delta))
    count = tf.maximum(tf.math.ceil((last - first) / step), 0)
    return tf.cast(first + tf.cast(tf.range(tf.cast(count, tf.int64)), work) * step, start.dtype)


@lower("Range", domain=MICROSOFT, static=("delta",))
def range_of_runtime(start, limit, delta=None):
    return range(start, limit, np.array(1, np_dtype(start).numpy) if delta is None else delta)


def _scalar(bound):
    """A bound as a scalar; ONNX also takes one of shape (1,)."""
    return tf.reshape(bound, []) if isinstance(bound, tf.Tensor) else np.reshape(bound, ())


def _reachable(first, last, step, delta):
    """The limit, or the start where it lies behind it: TensorFlow makes no empty range of those."""
    if isinstance(delta, np.ndarray):
        return tf.maximum(first, last) if delta > 0 else tf.minimum(first, last)
    return tf.where(step > 0, tf.maximum(first, last), tf.minimum(first, last))


def _window(size, coefficients, periodic, output_datatype):
    """A sum of cosines, ``c0 + c1 cos(2 pi n / N) + c2 cos(4 pi n / N)``, over ``n = 0 .. size - 1``."""
    dtype = tf_dtype(output_datatype)
    work = dtype if dtype in (tf.float32, tf.float64) else tf.float32
    length = tf.cast(size if periodic else size - 1, work)
    angle = tf.cast(tf.range(size), work) * tf.constant(2 * math.pi, work) / length
    total = tf.constant(coefficients[0], work)
    for order, coefficient in enumerate(coefficients[1:], 1):
        total += tf.constant(coefficient, work) * tf.cos(order * angle)
    return tf.cast(total, dtype)


@lower("HannWindow")
def hann_window(size, *, output_datatype=1, periodic=1):
    return _window(size, (0.5, -0.5), periodic, output_datatype)


@lower("HammingWindow")
def hamming_window(size, *, output_datatype=1, periodic=1):
    return _window(size, (25 / 46, -21 / 46), periodic, output_datatype)


@lower("BlackmanWindow")
def blackman_window(size, *, output_datatype=1, periodic=1):
    return _window(size, (0.42, -0.5, 0.08), periodic, output_datatype)


@lower("MelWeightMatrix")
def mel_weight_matrix(num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, *, output_datatype=1):
    bins, length, rate = (tf.cast(number, tf.int64) for number in (num_mel_bins, dft_length, sample_rate))
    edges = _mel_edges(bins, length, rate, lower_edge_hertz, upper_edge_hertz)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    frequency = tf.range(length // 2 + 1)[:, tf.newaxis]
    one = tf.constant(1, tf.int64)
    rise, fall = tf.maximum(centre - left, one), tf.maximum(right - centre, one)  # an empty side is not used
    falling = (right - frequency) / fall
    rising = tf.where(centre > left, (frequency - left) / rise, 1)
    weights = tf.where((left <= frequency) & (frequency <= centre), rising, 0)
    weights = tf.where((centre <= frequency) & (frequency < right), falling, weights)
    return tf.cast(weights, tf_dtype(output_datatype))


def _mel_edges(bins, length, rate, low, high):
    """The spectrogram bins at which the triangles begin, peak and end, equally spaced on the mel scale."""
    low, high = (tf.cast(edge, tf.float64) for edge in (low, high))
    low_mel, high_mel = (2595 / math.log(10) * tf.math.log1p(edge / 700) for edge in (low, high))
    count = bins + 2
    mel = low_mel + tf.cast(tf.range(count), tf.float64) * ((high_mel - low_mel) / tf.cast(count, tf.float64))
    hertz = 700 * tf.math.expm1(mel / 2595 * math.log(10))
    return tf.cast(tf.math.floordiv(tf.cast(length + 1, tf.float64) * hertz, tf.cast(rate, tf.float64)), tf.int64)
