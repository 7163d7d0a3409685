"""Reductions and the normalisations that are made of them."""

from __future__ import annotations

import torch

from exporters.torch._table import lower
from exporters.torch._values import HALVES, numbers


def _axes(data, axes, noop_with_empty_axes):
    places = [] if axes is None else [int(axis) for axis in numbers(axes)]
    if places or noop_with_empty_axes:
        return places
    return list(range(data.ndim))


def _reduce(function, data, axes, keepdims, noop_with_empty_axes):
    """Half floats through float32, integers through what the function asks for."""
    places = _axes(data, axes, noop_with_empty_axes)
    wide = data.float() if data.dtype in HALVES else data
    return function(wide, places, bool(keepdims)).to(data.dtype)


def _sum(x, axes, keepdims):
    return torch.sum(x, axes, keepdims) if axes else x


def _floats(x):
    return x if x.dtype.is_floating_point or x.dtype.is_complex else x.double()


def _mean(x, axes, keepdims):
    return torch.mean(_floats(x), axes, keepdims) if axes else x


def _largest(x, axes, keepdims):
    return torch.amax(x, axes, keepdims) if axes else x


def _smallest(x, axes, keepdims):
    return torch.amin(x, axes, keepdims) if axes else x


def _product(x, axes, keepdims):
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdims)
    return x


def _absolute_sum(x, axes, keepdims):
    return _sum(torch.abs(x), axes, keepdims)


def _square_sum(x, axes, keepdims):
    return _sum(torch.square(x), axes, keepdims)


def _norm(x, axes, keepdims):
    return torch.linalg.vector_norm(_floats(x), 2, axes, keepdims) if axes else torch.abs(x)


def _log_sum(x, axes, keepdims):
    return torch.log(_sum(_floats(x), axes, keepdims))


def _log_sum_exp(x, axes, keepdims):
    return torch.logsumexp(_floats(x), axes, keepdims) if axes else x


@lower("ReduceSum", static=("axes",))
def reduce_sum(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(_sum, data, axes, keepdims, noop_with_empty_axes)


@lower("ReduceMean", static=("axes",))
def reduce_mean(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(_mean, data, axes, keepdims, noop_with_empty_axes)


@lower("ReduceMax", static=("axes",))
def reduce_max(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _extreme(_largest, float("-inf"), data, axes, keepdims, noop_with_empty_axes)


@lower("ReduceMin", static=("axes",))
def reduce_min(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _extreme(_smallest, float("inf"), data, axes, keepdims, noop_with_empty_axes)


def _extreme(function, neutral, data, axes, keepdims, noop_with_empty_axes):
    """An extreme of no elements is the neutral value."""
    places = _axes(data, axes, noop_with_empty_axes)
    if not any(type(data.shape[axis]) is int and data.shape[axis] == 0 for axis in places):
        return function(data, places, bool(keepdims))
    if data.dtype == torch.bool:
        limit = neutral > 0
    elif data.dtype.is_floating_point:
        limit = neutral
    else:
        limit = torch.iinfo(data.dtype).min if neutral < 0 else torch.iinfo(data.dtype).max
    total = torch.sum(data, places, bool(keepdims))
    return torch.full_like(total, limit, dtype=data.dtype)


@lower("ReduceProd", static=("axes",))
def reduce_prod(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(_product, data, axes, keepdims, noop_with_empty_axes)


@lower("ReduceL1", static=("axes",))
def reduce_l1(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(_absolute_sum, data, axes, keepdims, noop_with_empty_axes)


@lower("ReduceL2", static=("axes",))
def reduce_l2(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(_norm, data, axes, keepdims, noop_with_empty_axes)


@lower("ReduceLogSum", static=("axes",))
def reduce_log_sum(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(_log_sum, data, axes, keepdims, noop_with_empty_axes)


@lower("ReduceLogSumExp", static=("axes",))
def reduce_log_sum_exp(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(_log_sum_exp, data, axes, keepdims, noop_with_empty_axes)


@lower("ReduceSumSquare", static=("axes",))
def reduce_sum_square(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(_square_sum, data, axes, keepdims, noop_with_empty_axes)


@lower("LpNormalization")
def lp_normalization(input, *, axis=-1, p=2):
    norm = torch.linalg.vector_norm(input, p, axis, keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(input), input / torch.where(norm == 0, 1, norm))


@lower("MeanVarianceNormalization")
def mean_variance_normalization(X, *, axes=(0, 2, 3)):
    centred = X - torch.mean(X, list(axes), True)
    deviation = torch.sqrt(torch.mean(torch.square(centred), list(axes), True))
    return centred / (deviation + 1e-9)
