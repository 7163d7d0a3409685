"""Pools."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from exporters.torch._pools import lowest, pool_of, tap_counts, taps_of
from exporters.torch._table import lower
from exporters.torch._values import HALVES, numbers, through_float32
from exporters.torch._windows import pad_spatial, window_of

_MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}


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
    rank, window = pool.window.rank, pool.window
    if outputs == 1 and rank in _MAX and X.dtype.is_floating_point:
        padded = pad_spatial(X, pool.reach, lowest(X.dtype))
        return (_MAX[rank](padded, window.kernel, window.strides, 0, window.dilations),)
    values = taps_of(X, pool, lowest(X.dtype)).flatten(2 + rank)
    best, place = values.max(-1)
    if outputs == 1:
        return (best,)
    index = _flat_index(X.shape, storage_order, X.device).expand(X.shape)
    index = taps_of(index, pool, 0).flatten(2 + rank)
    return best, index.gather(-1, place[..., None])[..., 0]


def _flat_index(shape, storage_order, device):
    """The flat index of each element; with ``storage_order`` 1 the spatial axes are counted first to last."""
    spatial = list(range(2, len(shape)))
    order = [0, 1, *(reversed(spatial) if storage_order else spatial)]
    index, step = torch.zeros([1] * len(shape), dtype=torch.int64, device=device), 1
    for axis in reversed(order):
        line = [1] * len(shape)
        line[axis] = shape[axis]
        index = index + torch.arange(shape[axis], device=device).reshape(line) * step
        step = step * shape[axis]
    return index


@lower("AveragePool")
def average_pool(
    X, *, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, kernel_shape, pads=None, strides=None
):
    pool = pool_of(
        X, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    wide = X.float() if X.dtype in HALVES else X
    counts = tap_counts(pool, pool.pads if count_include_pad else [(0, 0)] * pool.window.rank, wide)
    return (_box_sum(wide, pool) / counts).to(X.dtype)


def _box_sum(X, pool):
    return taps_of(X, pool, 0).flatten(2 + pool.window.rank).sum(-1)


@lower("LpPool")
def lp_pool(X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None):
    pool = pool_of(
        X, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    wide = X.float() if X.dtype in HALVES else X
    return _box_sum(wide.abs().pow(p), pool).pow(1 / p).to(X.dtype)


def _spatial(X):
    return list(range(2, X.ndim))


@lower("GlobalAveragePool")
def global_average_pool(X):
    return through_float32(lambda x: x.mean(_spatial(x), True), X)


@lower("GlobalMaxPool")
def global_max_pool(X):
    return X.amax(_spatial(X), True)


@lower("GlobalLpPool")
def global_lp_pool(X, *, p=2):
    return through_float32(lambda x: torch.linalg.vector_norm(x, p, _spatial(x), True), X)


@lower("MaxUnpool", static=("output_shape",))
def max_unpool(X, I, output_shape=None, *, kernel_shape, pads=None, strides=None):  # noqa: E741  # the schema's name
    """The indices count in the shape that kernel, strides and pads give; a larger output shape adds zeros behind."""
    window = window_of(kernel_shape, strides, None)
    padding = window.pads(X.shape[2:], "NOTSET", pads)
    axes = zip(X.shape[2:], window.kernel, window.strides, padding)
    full = [*X.shape[:2], *((size - 1) * stride + kernel - sum(pair) for size, kernel, stride, pair in axes)]
    flat = torch.zeros([math.prod(full)], dtype=X.dtype, device=X.device)
    y = flat.scatter(0, I.reshape(-1), X.reshape(-1)).reshape(full)
    if output_shape is None:
        return y
    wanted = numbers(output_shape)
    return pad_spatial(y, [(0, want - have) for want, have in zip(wanted, full)])
