"""Operators with random results; a seed makes them repeat from one load of the model to the next."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import tf_dtype


def _seed(seed):
    """TensorFlow's integer seed of an ONNX seed, which is a float or an int."""
    return None if seed is None else int(np.array(seed, np.float32).view(np.int32))


def _like(input, dtype):
    return input.dtype if dtype is None else tf_dtype(dtype)


@lower("RandomNormal", deterministic=False)
def random_normal(*, dtype=1, mean=0.0, scale=1.0, seed=None, shape=None):
    return tf.random.normal(shape, mean, scale, tf_dtype(dtype), _seed(seed))


@lower("RandomNormalLike", deterministic=False)
def random_normal_like(input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return tf.random.normal(tf.shape(input), mean, scale, _like(input, dtype), _seed(seed))


@lower("RandomUniform", deterministic=False)
def random_uniform(*, dtype=1, high=1.0, low=0.0, seed=None, shape=None):
    return tf.random.uniform(shape, low, high, tf_dtype(dtype), _seed(seed))


@lower("RandomUniformLike", deterministic=False)
def random_uniform_like(input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return tf.random.uniform(tf.shape(input), low, high, _like(input, dtype), _seed(seed))


@lower("Bernoulli", deterministic=False)
def bernoulli(input, *, dtype=None, seed=None):
    drawn = tf.random.uniform(tf.shape(input), dtype=input.dtype, seed=_seed(seed))
    return tf.cast(drawn < input, _like(input, dtype))


@lower("Multinomial", deterministic=False)
def multinomial(input, *, dtype=6, sample_size=1, seed=None):
    return tf.random.categorical(input, sample_size, tf_dtype(dtype), _seed(seed))


@lower("Dropout", static=("ratio", "training_mode"), takes=("training", "outputs"), deterministic=False)
def dropout(data, ratio=None, training_mode=None, *, seed=None, outputs=1, training=False):
    if training_mode is None or (isinstance(training_mode, np.ndarray) and not training_mode):
        drops = training
    else:
        drops = True if isinstance(training_mode, np.ndarray) else tf.logical_or(training_mode, training)
    if drops is False:
        return (data, tf.ones_like(data, tf.bool)) if outputs == 2 else data
    ratio = tf.constant(0.5) if ratio is None else tf.cast(ratio, tf.float32)
    rate = ratio if drops is True else tf.where(drops, ratio, 0.0)
    mask = tf.random.uniform(tf.shape(data), seed=_seed(seed)) >= rate
    scale = tf.math.divide_no_nan(1.0, 1.0 - rate)  # a rate of 1 drops everything
    kept = tf.where(mask, data * tf.cast(scale, data.dtype), tf.zeros([], data.dtype))
    return (kept, mask) if outputs == 2 else kept
