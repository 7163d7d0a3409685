"""Pad in all modes."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._table import lower
from exporters.torch._values import numbers


@lower("Pad", static=("pads", "axes"))
def pad(data, pads, constant_value=None, axes=None, *, mode="constant"):
    pairs = _pairs(numbers(pads), None if axes is None else numbers(axes), data.ndim)
    if mode == "constant":
        return _constant(data, pairs, 0 if constant_value is None else constant_value)
    for axis, (before, after) in enumerate(pairs):
        if not (type(before) is int and type(after) is int and before == after == 0):
            data = _padded_axis(data, axis, before, after, mode)
    return data


def _pairs(pads, axes, rank):
    """``(before, after)`` for every axis."""
    places = range(rank) if axes is None else [int(axis) % rank for axis in axes]
    pairs = [(0, 0)] * rank
    for i, place in enumerate(places):
        pairs[place] = (pads[i], pads[i + len(pads) // 2])
    return pairs


def _constant(data, pairs, value):
    flat = [amount for pair in reversed(pairs) for amount in pair]
    if not isinstance(value, torch.Tensor):
        return functional.pad(data, flat, value=value)
    if data.dtype == torch.bool:
        return torch.where(functional.pad(torch.ones_like(data), flat), functional.pad(data, flat), value.reshape([]))
    # The value is a tensor, which functional.pad does not take: it is put where a mask of the data has nothing.
    inside = functional.pad(torch.ones_like(data, dtype=torch.bool), flat)
    return torch.where(inside, functional.pad(data, flat), value.reshape([]).to(data.dtype))


def _padded_axis(data, axis, before, after, mode):
    """Gather the elements that reflect, edge and wrap repeat; a negative pad cuts."""
    size = data.shape[axis]
    place = torch.arange(-before, size + after, device=data.device)
    if mode == "edge":
        source = torch.clamp(place, 0, size - 1)
    elif mode == "wrap":
        source = place % size
    else:
        period = 2 * (size - 1)
        turn = place % period if not isinstance(period, int) or period > 0 else torch.zeros_like(place)
        source = torch.minimum(turn, period - turn)
    return data.index_select(axis, source)
