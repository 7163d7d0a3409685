"""Activation functions."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from exporters.tensorflow._table import lower, lower_all
from exporters.tensorflow._tensors import in_dtype, rank_of, shape_of, static_shape


def _like(value, x):
    return tf.constant(value, x.dtype)


lower_all(
    {
        "Relu": tf.nn.relu,
        "Sigmoid": tf.sigmoid,
        "Softplus": tf.nn.softplus,
        "Softsign": tf.nn.softsign,
        "Tanh": tf.tanh,
        "Mish": lambda X: X * tf.tanh(tf.nn.softplus(X)),
        "HardSwish": lambda X: X * tf.nn.relu6(X + _like(3, X)) * _like(1 / 6, X),
    }
)


@lower("Celu")
def celu(X, *, alpha=1.0):
    if alpha == 1:
        return tf.nn.elu(X)
    scale = _like(alpha, X)
    return tf.nn.relu(X) + scale * tf.math.expm1(tf.minimum(X, _like(0, X)) / scale)


@lower("Clip", static=("min", "max"))
def clip(input, min=None, max=None):
    if input.dtype.is_floating and _is_number(min, 0) and _is_number(max, 6):
        return tf.nn.relu6(input)
    lifted = input if min is None else tf.maximum(input, min)
    return lifted if max is None else tf.minimum(lifted, max)


def _is_number(bound, number):
    return isinstance(bound, np.ndarray) and bound.size == 1 and bound.item() == number


@lower("Elu")
def elu(X, *, alpha=1.0):
    return tf.nn.elu(X) if alpha == 1 else tf.where(X > 0, X, _like(alpha, X) * tf.nn.elu(X))


@lower("Gelu")
def gelu(X, *, approximate="none"):
    if approximate == "none" and X.dtype in (tf.float32, tf.float64):
        # torch's form; with Erfc, as in tf.nn.gelu, it takes half as long again.
        return _like(0.5, X) * X * (_like(1, X) + tf.math.erf(X * _like(math.sqrt(0.5), X)))
    return tf.nn.gelu(X, approximate=approximate == "tanh")


@lower("HardSigmoid")
def hard_sigmoid(X, *, alpha=0.2, beta=0.5):
    return tf.minimum(tf.maximum(_like(alpha, X) * X + _like(beta, X), _like(0, X)), _like(1, X))


@lower("LeakyRelu")
def leaky_relu(X, *, alpha=0.01):
    return tf.nn.leaky_relu(X, alpha)


@lower("PRelu")
def prelu(X, slope):
    return tf.where(tf.greater(X, _like(0, X)), X, _per_channel(slope, X) * X)


def _per_channel(slope, X):
    """Before opset 7 a vector belonged to the channels; onnx's converter leaves it, where it does not broadcast."""
    if rank_of(slope) == 1 and rank_of(X) > 1:
        size, channels, last = slope.shape[0], *static_shape(X)[1:2], static_shape(X)[-1]
        if size not in (None, 1, last) and last is not None and size == channels:
            return tf.reshape(slope, [-1] + [1] * (rank_of(X) - 2))
    return slope


@lower("Selu")
def selu(X, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    if math.isclose(alpha, 1.6732632423, rel_tol=1e-6) and math.isclose(gamma, 1.0507009873, rel_tol=1e-6):
        return tf.nn.selu(X)
    return _like(gamma, X) * elu(X, alpha=alpha)


@lower("Shrink")
def shrink(input, *, bias=0.0, lambd=0.5):
    def apply(x):
        inner = tf.where(x > _like(lambd, x), x - _like(bias, x), _like(0, x))
        return tf.where(x < _like(-lambd, x), x + _like(bias, x), inner)

    return apply(input) if input.dtype.is_floating else in_dtype(apply, tf.float64, input)


@lower("ThresholdedRelu")
def thresholded_relu(X, *, alpha=1.0):
    return tf.where(tf.greater(X, _like(alpha, X)), X, _like(0, X))


@lower("Swish")
def swish(X, *, alpha=1.0):
    # Plain nodes: tf.nn.silu adds a custom gradient, a function of its own in the file.
    return X * tf.sigmoid(X if alpha == 1 else _like(alpha, X) * X)


@lower("SwiGLU")
def swiglu(A, B, *, alpha=1.0):
    return swish(A, alpha=alpha) * B


@lower("Softmax")
def softmax(input, *, axis=-1):
    return tf.nn.softmax(input, axis)


@lower("LogSoftmax")
def log_softmax(input, *, axis=-1):
    return tf.nn.log_softmax(input, axis)


@lower("Hardmax")
def hardmax(input, *, axis=-1):
    axis %= rank_of(input)
    depth = shape_of(input, tf.int32)[axis]
    return tf.one_hot(tf.argmax(input, axis), depth, axis=axis, dtype=input.dtype)
