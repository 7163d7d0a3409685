"""Reductions and the normalisations that are made of them."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._movement import is_known
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of, through


def _in_float(function):
    """A function of floats for integers too: calculated in float64 and cut off."""

    def converted(data, axes, keepdims):
        if data.dtype.is_floating:
            return function(data, axes, keepdims)
        return tf.cast(function(tf.cast(data, tf.float64), axes, keepdims), data.dtype)

    return converted


def _l1(data, axes, keepdims):
    return tf.reduce_sum(data if data.dtype.is_unsigned else tf.abs(data), axes, keepdims)


def _l2(data, axes, keepdims):
    return _safe_sqrt(tf.reduce_sum(tf.square(data), axes, keepdims))


def _safe_sqrt(total):
    """The square root with the gradient 0 at 0, as torch has it for norms, where TensorFlow gives NaN."""
    is_zero = tf.equal(total, 0)
    return tf.where(is_zero, total, tf.sqrt(tf.where(is_zero, tf.ones_like(total), total)))


def _maximum(data, axes, keepdims):
    return (tf.reduce_any if data.dtype == tf.bool else tf.reduce_max)(data, axes, keepdims)


def _minimum(data, axes, keepdims):
    return (tf.reduce_all if data.dtype == tf.bool else tf.reduce_min)(data, axes, keepdims)


REDUCTIONS = {
    "ReduceL1": _l1,
    "ReduceL2": _in_float(_l2),
    "ReduceLogSum": _in_float(lambda data, axes, keepdims: tf.math.log(tf.reduce_sum(data, axes, keepdims))),
    "ReduceLogSumExp": _in_float(tf.reduce_logsumexp),
    "ReduceMax": _maximum,
    "ReduceMean": tf.reduce_mean,
    "ReduceMin": _minimum,
    "ReduceProd": tf.reduce_prod,
    "ReduceSum": tf.reduce_sum,
    "ReduceSumSquare": lambda data, axes, keepdims: tf.reduce_sum(tf.square(data), axes, keepdims),
}


_ADDED_WIDER = (
    tf.float16,
    tf.bfloat16,
)  # sums of many small numbers lose too much in half floats; torch adds in float32


def _register(operator, function):
    is_sum = operator not in ("ReduceMax", "ReduceMin")

    # Before opset 18 (ReduceSum: 13) the axes are an attribute, which binds to the same name.
    @lower(operator, static=("axes",))
    def reduce(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
        places = _axes(data, axes, noop_with_empty_axes)
        return through(lambda x: function(x, places, bool(keepdims)), _ADDED_WIDER if is_sum else ())(data)

    return reduce


def _axes(data, axes, noop_with_empty_axes):
    """The axes for TensorFlow: None means all of them, an empty list none."""
    if axes is None or (is_known(axes) and len(axes) == 0):
        return [] if noop_with_empty_axes else None
    if is_known(axes):
        return [int(axis) for axis in axes]
    if noop_with_empty_axes or axes.shape.num_elements():
        return axes
    if axes.shape.num_elements() == 0:
        return None
    return tf.cond(tf.size(axes) > 0, lambda: axes, lambda: tf.range(rank_of(data), dtype=axes.dtype))


for _operator, _function in REDUCTIONS.items():
    _register(_operator, _function)


@lower("LpNormalization")
def lp_normalization(input, *, axis=-1, p=2):
    if p == 1:
        return tf.math.divide_no_nan(input, tf.reduce_sum(tf.abs(input), axis, keepdims=True))
    return tf.math.divide_no_nan(input, _l2(input, axis, True))


@lower("MeanVarianceNormalization")
def mean_variance_normalization(X, *, axes=(0, 2, 3)):
    centred = X - tf.reduce_mean(X, list(axes), keepdims=True)
    deviation = tf.sqrt(tf.reduce_mean(tf.square(centred), list(axes), keepdims=True))
    return centred / (deviation + tf.constant(1e-9, X.dtype))
