"""Normalisations."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._layout import channels_first, channels_last
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of, shape_of, tf_dtype

_HALVES = (tf.float16, tf.bfloat16)


@lower("BatchNormalization", takes=("outputs", "training"))
def batch_normalization(
    X, scale, B, input_mean, input_var, *, epsilon=1e-5, momentum=0.9, training_mode=0, outputs=1, training=False
):
    if training_mode or training:
        return _train_batch(X, scale, B, (input_mean, input_var), epsilon, momentum, unbiased=not training_mode)
    if rank_of(X) == 4 and X.dtype == tf.float32 and scale.dtype == input_mean.dtype == tf.float32:
        y, *_ = tf.raw_ops.FusedBatchNormV3(
            x=channels_last(X),
            scale=scale,
            offset=B,
            mean=input_mean,
            variance=input_var,
            epsilon=epsilon,
            is_training=False,
        )
        return channels_first(y)
    return _normalize(X, _along(input_mean, X), _along(input_var, X), _along(scale, X), _along(B, X), epsilon)


def _train_batch(X, scale, B, running, epsilon, momentum, *, unbiased):
    """ONNX's running variance is the batch's own; torch's, which a module in training keeps, is the unbiased one."""
    axes = [axis for axis in range(rank_of(X)) if axis != 1]
    mean, var = tf.nn.moments(_wide(X), axes)
    y = _normalize(X, _along(mean, X), _along(var, X), _along(scale, X), _along(B, X), epsilon)
    if unbiased:
        count = tf.cast(tf.size(X, tf.int64) // tf.shape(X, tf.int64)[1], var.dtype)
        var = var * count / (count - 1)
    moved = [
        old * tf.cast(momentum, old.dtype) + tf.cast(new, old.dtype) * tf.cast(1 - momentum, old.dtype)
        for old, new in zip(running, (mean, var))
    ]
    return y, *moved


def _along(parameter, X):
    """A per-channel vector in the shape that broadcasts along axis 1."""
    return tf.reshape(parameter, [-1] + [1] * (rank_of(X) - 2)) if rank_of(X) > 2 else parameter


def _wide(x):
    return tf.cast(x, tf.float32) if x.dtype in _HALVES else x


def _normalize(x, mean, var, scale, bias, epsilon):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias``, 16-bit types through float32."""
    wide = _wide(x)
    mean, var, scale, bias = (None if t is None else tf.cast(t, wide.dtype) for t in (mean, var, scale, bias))
    return tf.cast(tf.nn.batch_normalization(wide, mean, var, bias, scale, epsilon), x.dtype)


@lower("InstanceNormalization")
def instance_normalization(input, scale, B, *, epsilon=1e-5):
    mean, var = tf.nn.moments(_wide(input), list(range(2, rank_of(input))), keepdims=True)
    return _normalize(input, mean, var, _along(scale, input), _along(B, input), epsilon)


@lower("LayerNormalization", takes=("outputs",))
def layer_normalization(X, Scale, B=None, *, axis=-1, epsilon=1e-5, stash_type=1, outputs=1):
    rank = rank_of(X)
    axes = list(range(axis % rank, rank))
    wide = _wide(X)
    mean = tf.reduce_mean(wide, axes, keepdims=True)
    # From here on the deviation is all that is read: tf.nn.batch_normalization makes an outer product of the inverse and
    # the scale, which costs more than both multiplications.
    deviation = wide - mean
    var = tf.reduce_mean(tf.square(deviation), axes, keepdims=True)
    inverse = tf.math.rsqrt(var + tf.cast(epsilon, var.dtype))
    y = deviation * inverse * tf.cast(Scale, wide.dtype)
    y = tf.cast(y if B is None else y + tf.cast(B, wide.dtype), X.dtype)
    if outputs == 1:
        return y
    stash = tf_dtype(stash_type)
    return y, tf.cast(mean, stash), tf.cast(inverse, stash)


@lower("RMSNormalization")
def rms_normalization(X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    rank = rank_of(X)
    wide = _wide(X)
    square = tf.reduce_mean(tf.square(wide), list(range(axis % rank, rank)), keepdims=True)
    y = tf.cast(wide * tf.math.rsqrt(square + tf.cast(epsilon, wide.dtype)), X.dtype)
    return y * tf.cast(scale, X.dtype)


@lower("GroupNormalization", since=18)
def group_normalization_18(X, scale, bias, *, num_groups, epsilon=1e-5):
    shape = tf.concat([[1, num_groups, 1], [1] * (rank_of(X) - 2)], 0)
    return _group(X, tf.reshape(scale, shape), tf.reshape(bias, shape), num_groups, epsilon)


@lower("GroupNormalization", since=21)
def group_normalization(X, scale, bias, *, num_groups, epsilon=1e-5, stash_type=1):
    shape = [1, num_groups, -1] + [1] * (rank_of(X) - 2)
    return _group(X, tf.reshape(scale, shape), tf.reshape(bias, shape), num_groups, epsilon)


def _group(X, scale, bias, num_groups, epsilon):
    batch, channels, *spatial = shape_of(X)
    grouped = tf.reshape(X, tf.stack([batch, num_groups, channels // num_groups, *spatial]))
    mean, var = tf.nn.moments(_wide(grouped), list(range(2, rank_of(grouped))), keepdims=True)
    y = tf.reshape(_normalize(grouped, mean, var, scale, bias, epsilon), tf.shape(X))
    return tf.ensure_shape(y, X.shape)


@lower("LRN")
def lrn(X, *, alpha=1e-4, beta=0.75, bias=1.0, size):
    before = (size - 1) // 2
    wide = _wide(X)
    pads = [[0, 0], [before, size - 1 - before]] + [[0, 0]] * (rank_of(X) - 2)
    squares = tf.pad(tf.square(wide), pads)
    count = shape_of(X)[1]
    total = tf.add_n([squares[:, start : start + count] for start in range(size)])
    return tf.cast(wide / tf.pow(bias + alpha / size * total, beta), X.dtype)
