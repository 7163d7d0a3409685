"""Sampling of images and volumes at positions that the model computes."""

from __future__ import annotations

import itertools

import torch
from torch.nn import functional

from exporters.torch._table import lower
from exporters.torch._values import through_float32
from exporters.torch._windows import window_of

_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@lower("GridSample")
def grid_sample(X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    name = _MODES.get(mode, mode)

    def sample(x, places):
        if x.ndim in (4, 5) and not (x.ndim == 5 and name == "bicubic"):
            return functional.grid_sample(x, places.to(x.dtype), name, padding_mode, bool(align_corners))
        return _sample(x, places.to(x.dtype), (mode.removeprefix("bi"), padding_mode, bool(align_corners)))

    return through_float32(sample, X, grid)


def _sample(x, grid, rules):
    """Any number of axes."""
    rank = x.ndim - 2
    taps = [_grid_taps(grid[..., rank - 1 - axis], x.shape[2 + axis], rules) for axis in range(rank)]
    return sum_corners(x, taps)


def sum_corners(x, taps):
    """The weighted sum of the elements around each position.

    Args:
        x: ``[batch, channels, *sizes]``.
        taps: per axis the pairs (index, weight), each ``[batch, *positions]``.
    """
    batch, channels, *sizes = x.shape
    flat = x.reshape(batch, channels, -1)
    total = None
    for corner in itertools.product(*taps):
        index, weight = torch.zeros_like(corner[0][0]), torch.ones_like(corner[0][1])
        for (place, factor), size in zip(corner, sizes):
            index, weight = index * size + place, weight * factor
        picked = flat.gather(2, index.reshape(batch, 1, -1).expand(-1, channels, -1))
        part = picked.reshape(batch, channels, *index.shape[1:]) * weight[:, None]
        total = part if total is None else total + part
    return total


def _grid_taps(place, size, rules):
    """The elements that a position between -1 and 1 meets along one axis."""
    mode, padding, align = rules
    position = (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2
    if mode == "nearest":
        position = torch.round(position)
    edges = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    if padding == "border":
        is_outside = (position < edges[0]) | (position > edges[1])
        position = torch.where(is_outside, torch.clamp(position, 0, size - 1), position)
    elif padding == "reflection":
        position = _reflect(position, *edges)
    return [_grid_tap(index, weight, size, padding, edges) for index, weight in _around(position, mode)]


def _around(position, mode):
    if mode == "nearest":
        return [(position.long(), torch.ones_like(position))]
    low = torch.floor(position)
    t, low = position - low, low.long()
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    return [(low + step, _cubic((t - step).abs())) for step in (-1, 0, 1, 2)]


def _cubic(x):
    """Keys's kernel with a = -0.75."""
    near = (1.25 * x - 2.25) * x * x + 1
    far = ((x - 5) * x + 8) * x * -0.75 + 3
    return torch.where(x <= 1, near, far)


def _grid_tap(index, weight, size, padding, edges):
    if padding == "zeros":
        weight = torch.where((index >= 0) & (index < size), weight, 0)
    elif padding == "reflection":
        index = _reflect(index.to(weight.dtype), *edges).long()
    return torch.clamp(index, 0, size - 1), weight


def _reflect(position, low, high):
    """Fold positions back and forth between two edges."""
    span = high - low
    if span <= 0:
        return torch.full_like(position, low)
    distance = (position - low).abs()
    turns = torch.floor(distance / span)
    rest = distance - turns * span
    return torch.where(turns % 2 == 0, low + rest, high - rest)


@lower("DeformConv")
def deform_conv(
    X,
    W,
    offset,
    B=None,
    mask=None,
    *,
    dilations=None,
    group=1,
    kernel_shape=None,
    offset_group=1,
    pads=None,
    strides=None,
):
    window = window_of(W.shape[2:], strides, dilations)
    rank, batch, channels = window.rank, X.shape[0], X.shape[1]
    outputs, kernel = offset.shape[2:], list(window.kernel)
    begins = list(pads[:rank]) if pads else [0] * rank
    moves = offset.reshape(batch * offset_group, *kernel, rank, *outputs)
    taps = []
    for axis in range(rank):
        line = torch.arange(outputs[axis], device=X.device) * window.strides[axis] - begins[axis]
        tap = torch.arange(kernel[axis], device=X.device) * window.dilations[axis]
        place = line.reshape(-1, *[1] * (rank - 1 - axis)) + tap.reshape(-1, *[1] * (rank - 1 - axis), *[1] * rank)
        position = place + moves.select(1 + rank, axis)
        low = torch.floor(position)
        t, low = position - low, low.long()
        taps.append([_grid_tap(low, 1 - t, X.shape[2 + axis], "zeros", None),
                     _grid_tap(low + 1, t, X.shape[2 + axis], "zeros", None)])  # fmt: skip
    samples = sum_corners(X.reshape(batch * offset_group, channels // offset_group, *X.shape[2:]), taps)
    if mask is not None:
        samples = samples * mask.reshape(batch * offset_group, 1, *kernel, *outputs)
    samples = samples.reshape(batch, group, channels // group, -1, *outputs).flatten(2, 3)
    weights = W.reshape(group, W.shape[0] // group, -1)
    y = torch.einsum("ngk...,gmk->ngm...", samples, weights).reshape(batch, W.shape[0], *outputs)
    return y if B is None else y + B.reshape(-1, *[1] * rank)
