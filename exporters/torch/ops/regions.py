"""Pools over regions of interest."""

from __future__ import annotations

import torch

from exporters.torch._table import lower
from exporters.torch._values import through_float32


@lower("RoiAlign", since=10)
def roi_align_10(
    X, rois, batch_indices, *, mode="avg", output_height=1, output_width=1, sampling_ratio=0, spatial_scale=1.0
):
    bins = (output_height, output_width)
    return _roi_align(X, rois, batch_indices, bins, (mode, sampling_ratio, spatial_scale, 0.0))


@lower("RoiAlign", since=16)
def roi_align(
    X,
    rois,
    batch_indices,
    *,
    coordinate_transformation_mode="half_pixel",
    mode="avg",
    output_height=1,
    output_width=1,
    sampling_ratio=0,
    spatial_scale=1.0,
):
    offset = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    bins = (output_height, output_width)
    return _roi_align(X, rois, batch_indices, bins, (mode, sampling_ratio, spatial_scale, offset))


def _roi_align(X, rois, batch_indices, bins, rules):
    mode, samples, scale, offset = rules

    def align(x, regions):
        made = []
        for region, image in zip(regions * scale - offset, batch_indices.tolist()):
            axes = [
                _axis_taps(region[1 - axis], region[3 - axis], bins[axis], x.shape[2 + axis], samples, offset)
                for axis in (0, 1)
            ]
            made.append(_pooled(x[image], axes, mode))
        return torch.stack(made) if made else x.new_zeros([0, x.shape[1], *bins])

    return through_float32(align, X, rois)


def _axis_taps(start, end, count, size, samples, offset):
    """Both elements around each sample of each bin along one axis: pairs (index, weight), ``[bins, samples]``."""
    length = end - start if offset else torch.clamp(end - start, min=1)
    step = length / count
    number = samples or max(int(torch.ceil(step)), 1)
    inner = (torch.arange(number, device=step.device) + 0.5) * (step / number)
    position = (start + torch.arange(count, device=step.device) * step)[:, None] + inner
    is_used = (position >= -1) & (position <= size)
    position = torch.clamp(position, 0, size - 1)
    low = torch.floor(position)
    fraction, index = position - low, low.long()
    zero = torch.zeros_like(fraction)
    return [
        (index, torch.where(is_used, 1 - fraction, zero)),
        (torch.clamp(index + 1, max=size - 1), torch.where(is_used, fraction, zero)),
    ]


def _pooled(image, axes, mode):
    """``[channels, bins, bins]`` from ``[channels, height, width]``."""
    parts = []
    for row, row_weight in axes[0]:
        for column, column_weight in axes[1]:
            values = image[:, row[:, :, None, None], column]
            parts.append(values * (row_weight[:, :, None, None] * column_weight))
    if mode == "avg":
        return sum(parts).mean([2, 4])
    return torch.stack(parts).amax([0, 3, 5])


@lower("MaxRoiPool")
def max_roi_pool(X, rois, *, pooled_shape, spatial_scale=1.0):
    def pool(x, regions):
        made = []
        for region in regions:
            edges = _round_half_away(region[1:] * spatial_scale)
            rows = _bin_mask(edges[1], edges[3], pooled_shape[0], x.shape[2])
            columns = _bin_mask(edges[0], edges[2], pooled_shape[1], x.shape[3])
            mask = rows[:, None, :, None] & columns[None, :, None, :]
            values = torch.where(mask, x[int(region[0])][:, None, None], float("-inf")).amax([3, 4])
            made.append(torch.where(torch.isneginf(values), 0, values))
        return torch.stack(made)

    return through_float32(pool, X, rois)


def _round_half_away(x):
    return torch.sign(x) * torch.floor(x.abs() + 0.5)


def _bin_mask(start, end, count, size):
    """Which elements of an axis each bin covers, ``[bins, size]`` bool."""
    step = torch.clamp(end - start + 1, min=1) / count
    bins = torch.arange(count, device=step.device)
    first = torch.floor(bins * step) + start
    behind = torch.ceil((bins + 1) * step) + start
    places = torch.arange(size, device=step.device)
    return (places >= first[:, None]) & (places < behind[:, None])
