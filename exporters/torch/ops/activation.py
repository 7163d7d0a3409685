"""Activation functions."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._table import lower, lower_all
from exporters.torch._values import through_float32

lower_all(
    {
        "Relu": torch.relu,
        "Sigmoid": torch.sigmoid,
        "Softplus": functional.softplus,
        "Softsign": functional.softsign,
        "Tanh": torch.tanh,
        "HardSwish": functional.hardswish,
    }
)


@lower("Mish")
def mish(X):
    return functional.mish(X)


@lower("Celu")
def celu(X, *, alpha=1.0):
    return functional.celu(X, alpha)


@lower("Clip")
def clip(input, min=None, max=None):
    if min is None and max is None:
        return input
    lifted = input if min is None else torch.maximum(input, min)
    return lifted if max is None else torch.minimum(lifted, max)


@lower("Elu")
def elu(X, *, alpha=1.0):
    return functional.elu(X, alpha)


@lower("Gelu")
def gelu(X, *, approximate="none"):
    return functional.gelu(X, approximate=approximate)


@lower("HardSigmoid")
def hard_sigmoid(X, *, alpha=0.2, beta=0.5):
    return torch.clamp(alpha * X + beta, 0, 1)


@lower("LeakyRelu")
def leaky_relu(X, *, alpha=0.01):
    return functional.leaky_relu(X, alpha)


@lower("PRelu")
def prelu(X, slope):
    return torch.where(X > 0, X, _per_channel(slope, X) * X)


def _per_channel(slope, X):
    """Before opset 7 a vector belonged to the channels; onnx's converter leaves it, where it does not broadcast."""
    if slope.ndim == 1 and X.ndim > 2 and slope.shape[0] not in (1, X.shape[-1]) and slope.shape[0] == X.shape[1]:
        return slope.reshape(-1, *[1] * (X.ndim - 2))
    return slope


@lower("Selu")
def selu(X, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return gamma * torch.where(X > 0, X, alpha * torch.expm1(torch.clamp(X, max=0)))


@lower("Shrink")
def shrink(input, *, bias=0.0, lambd=0.5):
    x = input if input.dtype.is_floating_point else input.double()
    inner = torch.where(x > lambd, x - bias, torch.zeros_like(x))
    return torch.where(x < -lambd, x + bias, inner).to(input.dtype)


@lower("ThresholdedRelu")
def thresholded_relu(X, *, alpha=1.0):
    return torch.where(alpha < X, X, torch.zeros_like(X))


@lower("Swish")
def swish(X, *, alpha=1.0):
    return functional.silu(X) if alpha == 1 else X * torch.sigmoid(alpha * X)


@lower("SwiGLU")
def swiglu(A, B, *, alpha=1.0):
    return swish(A, alpha=alpha) * B


@lower("Softmax")
def softmax(input, *, axis=-1):
    return torch.softmax(input, axis)


@lower("LogSoftmax")
def log_softmax(input, *, axis=-1):
    return torch.log_softmax(input, axis)


@lower("Hardmax")
def hardmax(input, *, axis=-1):
    places = torch.argmax(input, axis, keepdim=True)
    return torch.zeros_like(input).scatter(axis, places, 1)


@lower("LRN")
def lrn(X, *, alpha=1e-4, beta=0.75, bias=1.0, size):
    return through_float32(lambda x: _lrn(x, alpha, beta, bias, size), X)


def _lrn(x, alpha, beta, bias, size):
    before = (size - 1) // 2
    squares = functional.pad(x.square(), [0, 0] * (x.ndim - 2) + [before, size - 1 - before])
    total = squares.unfold(1, size, 1).sum(-1)
    return x / torch.pow(bias + alpha / size * total, beta)
