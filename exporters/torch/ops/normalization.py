"""Normalisations over channels, rows and groups."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._table import lower
from exporters.torch._values import HALVES, torch_dtype


def _wide(x):
    return x.float() if x.dtype in HALVES else x


def _along(parameter, X):
    """A per-channel vector in the shape that broadcasts along axis 1."""
    return parameter.reshape(-1, *[1] * (X.ndim - 2)) if X.ndim > 2 else parameter


@lower("BatchNormalization", since=9)
def batch_normalization_9(X, scale, B, mean, var, *, epsilon=1e-5, momentum=0.9):
    return batch_normalization(X, scale, B, mean, var, epsilon=epsilon, momentum=momentum)


@lower("BatchNormalization", since=14)
def batch_normalization(X, scale, B, input_mean, input_var, *, epsilon=1e-5, momentum=0.9, training_mode=0):
    wide = _wide(X)
    if not training_mode:
        return (_normalized(wide, input_mean, input_var, scale, B, epsilon).to(X.dtype),)
    axes = [0, *range(2, X.ndim)]
    mean = wide.mean(axes)
    var = (wide - _along(mean, wide)).square().mean(axes)
    y = _normalized(wide, mean, var, scale, B, epsilon).to(X.dtype)
    moved = [
        old * momentum + new.to(old.dtype) * (1 - momentum) for old, new in zip((input_mean, input_var), (mean, var))
    ]
    return (y, *moved)


def _normalized(x, mean, var, scale, bias, epsilon):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias``."""
    mean, var, scale, bias = (_along(t.to(x.dtype), x) for t in (mean, var, scale, bias))
    return (x - mean) * (torch.rsqrt(var + epsilon) * scale) + bias


@lower("InstanceNormalization")
def instance_normalization(input, scale, B, *, epsilon=1e-5):
    wide = _wide(input)
    axes = list(range(2, input.ndim))
    centred = wide - wide.mean(axes, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + epsilon)
    return (y * _along(scale.to(y.dtype), y) + _along(B.to(y.dtype), y)).to(input.dtype)


@lower("LayerNormalization", takes=("outputs",))
def layer_normalization(X, Scale, B=None, *, axis=-1, epsilon=1e-5, stash_type=1, outputs=1):
    axes = list(range(axis % X.ndim, X.ndim))
    wide = _wide(X)
    mean = wide.mean(axes, keepdim=True)
    centred = wide - mean
    inverse = torch.rsqrt(centred.square().mean(axes, keepdim=True) + epsilon)
    y = centred * inverse * Scale.to(wide.dtype)
    y = (y if B is None else y + B.to(wide.dtype)).to(X.dtype)
    stash = torch_dtype(stash_type)
    return y, mean.to(stash), inverse.to(stash)


@lower("RMSNormalization")
def rms_normalization(X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    axes = list(range(axis % X.ndim, X.ndim))
    wide = _wide(X)
    y = (wide * torch.rsqrt(wide.square().mean(axes, keepdim=True) + epsilon)).to(X.dtype)
    return y * scale.to(X.dtype)


@lower("GroupNormalization", since=18)
def group_normalization_18(X, scale, bias, *, num_groups, epsilon=1e-5):
    each = X.shape[1] // num_groups
    return _group(X, scale.repeat_interleave(each), bias.repeat_interleave(each), num_groups, epsilon)


@lower("GroupNormalization", since=21)
def group_normalization(X, scale, bias, *, num_groups, epsilon=1e-5, stash_type=1):
    return _group(X, scale, bias, num_groups, epsilon)


def _group(X, scale, bias, num_groups, epsilon):
    wide = _wide(X)
    return functional.group_norm(wide, num_groups, scale.to(wide.dtype), bias.to(wide.dtype), epsilon).to(X.dtype)
