"""Operators that pick elements by index or write them by index."""

from __future__ import annotations

import math

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._values import as_tensor, number, numbers


def _from_start(indices, size):
    """Indices counted from the start; negative ones count from the end."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@lower("Gather", static=("indices",))
def gather(data, indices, *, axis=0):
    axis %= data.ndim
    if isinstance(indices, torch.Tensor):
        places = _from_start(indices, data.shape[axis])
        return data.index_select(axis, places.reshape(-1)).reshape(
            *data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]
        )
    array = np.asarray(indices)
    if array.ndim == 0:
        return data.select(axis, array.item())
    if array.size == 1 and array.ndim == 1 and type(array.item()) is int:
        start = array.item() % data.shape[axis] if array.item() < 0 else array.item()
        return data.narrow(axis, start, 1)
    places = _from_start(as_tensor(array, data), data.shape[axis])
    picked = data.index_select(axis, places.reshape(-1))
    return picked.reshape(*data.shape[:axis], *array.shape, *data.shape[axis + 1 :])


@lower("GatherElements")
def gather_elements(data, indices, *, axis=0):
    return torch.gather(data, axis, _from_start(indices, data.shape[axis]))


@lower("GatherND")
def gather_nd(data, indices, *, batch_dims=0):
    depth = indices.shape[-1]
    places = [_from_start(indices[..., i], data.shape[batch_dims + i]) for i in range(depth)]
    batch = [
        torch.arange(data.shape[i], device=data.device).reshape([-1 if j == i else 1 for j in range(indices.ndim - 1)])
        for i in range(batch_dims)
    ]
    return data[(*batch, *places)]


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@lower("ScatterND")
def scatter_nd(data, indices, updates, *, reduction="none"):
    depth = indices.shape[-1]
    dims = data.shape
    place = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=data.device)
    for i in range(depth):
        place = place * dims[i] + _from_start(indices[..., i], dims[i])
    rest = math.prod(dims[depth:])
    rows = data.reshape(math.prod(dims[:depth]), rest)
    index = place.reshape(-1, 1).expand(-1, rest)
    return _scattered(rows, 0, index, updates.reshape(-1, rest), reduction).reshape(dims)


def _scattered(data, axis, index, updates, reduction):
    if reduction == "none":
        return data.scatter(axis, index, updates)
    return data.scatter_reduce(axis, index, updates, _REDUCE[reduction])


@lower("ScatterElements")
def scatter_elements(data, indices, updates, *, axis=0, reduction="none"):
    return _scattered(data, axis, _from_start(indices, data.shape[axis]), updates, reduction)


@lower("Scatter")
def scatter(data, indices, updates, *, axis=0):
    return scatter_elements(data, indices, updates, axis=axis)


@lower("TensorScatter")
def tensor_scatter(past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    axis %= past_cache.ndim
    batch, length, count = past_cache.shape[0], past_cache.shape[axis], update.shape[axis]
    start = torch.zeros(batch, dtype=torch.int64, device=update.device) if write_indices is None else write_indices
    # Which row of the update each row of the cache takes.
    source = torch.arange(length, device=update.device) - start.to(torch.int64)[:, None]
    if mode == "circular":
        source = source % length
    line = [batch, *[1] * (axis - 1), length, *[1] * (past_cache.ndim - axis - 1)]
    is_new = ((source >= 0) & (source < count)).reshape(line)
    places = torch.clamp(source, 0, count - 1).reshape(line)
    rows = torch.gather(update, axis, places.expand(*update.shape[:axis], length, *update.shape[axis + 1 :]))
    return torch.where(is_new, rows, past_cache)


@lower("Slice", static=("starts", "ends", "axes", "steps"))
def slice_(data, starts, ends, axes=None, steps=None):
    firsts, lasts = numbers(starts), numbers(ends)
    places = range(len(firsts)) if axes is None else [int(axis) % data.ndim for axis in numbers(axes)]
    strides = [1] * len(firsts) if steps is None else numbers(steps)
    for axis, first, last, step in zip(places, firsts, lasts, strides):
        if step > 0:
            data = data[(slice(None),) * axis + (slice(_bounded(first), _bounded(last), step),)]
        else:
            places_ = _backwards(first, last, step, data.shape[axis])
            data = data.index_select(axis, torch.tensor(places_, dtype=torch.int64, device=data.device))
    return data


def _bounded(bound):
    return max(-(2**62), min(bound, 2**62)) if isinstance(bound, int) else bound


def _backwards(first, last, step, size):
    return list(range(size))[slice(first, last if last >= -size else None, step)]


@lower("OneHot", static=("depth",))
def one_hot(indices, depth, values, *, axis=-1):
    count = int(number(depth))
    places = indices.to(torch.int64) if indices.dtype != torch.int64 else indices
    places = torch.where(places < 0, places + count, places)
    axis = axis % (indices.ndim + 1)
    line = torch.arange(count, device=indices.device).reshape(-1, *[1] * (indices.ndim - axis))
    return torch.where(places.unsqueeze(axis) == line, values[1], values[0])


@lower("NonZero")
def non_zero(X):
    return torch.nonzero(X).T


@lower("Where")
def where(condition, X, Y):
    return torch.where(condition, X, Y)


@lower("Compress")
def compress(input, condition, *, axis=None):
    data, axis = (input.reshape(-1), 0) if axis is None else (input, axis)
    return data.index_select(axis, torch.nonzero(condition)[:, 0])


@lower("Trilu", static=("k",))
def trilu(input, k=None, *, upper=1):
    diagonal = 0 if k is None else number(k)
    return torch.triu(input, diagonal) if upper else torch.tril(input, diagonal)
