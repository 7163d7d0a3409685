"""Operators that depend on the order of elements: TopK, ArgMax, cumulative sums, Unique, NonMaxSuppression."""

from __future__ import annotations

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._values import is_string, number, through_float32, through_int64


@lower("TopK", static=("K",))
def top_k(X, K, *, axis=-1, largest=1, sorted=1):
    """The first of equal elements comes first."""
    count = number(K)
    wide = X.to(torch.int64) if X.dtype in (torch.uint16, torch.uint32, torch.uint64) else X
    values, places = torch.sort(wide, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, count).to(X.dtype), places.narrow(axis, 0, count)


@lower("ArgMax")
def arg_max(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(torch.argmax, data, axis, keepdims, select_last_index)


@lower("ArgMin")
def arg_min(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(torch.argmin, data, axis, keepdims, select_last_index)


def _arg(function, data, axis, keepdims, select_last_index):
    if select_last_index:
        return data.shape[axis] - 1 - function(data.flip(axis), axis, bool(keepdims))
    return function(data, axis, bool(keepdims))


@lower("CumSum", static=("axis",))
def cum_sum(x, axis, *, exclusive=0, reverse=0):
    return through_float32(lambda y: _cumulated(torch.cumsum, y, int(number(axis)), exclusive, reverse, 0), x)


@lower("CumProd", static=("axis",))
def cum_prod(x, axis, *, exclusive=0, reverse=0):
    return through_float32(lambda y: _cumulated(torch.cumprod, y, int(number(axis)), exclusive, reverse, 1), x)


def _cumulated(function, x, axis, exclusive, reverse, neutral):
    x = x.flip(axis) if reverse else x
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, 1), neutral)
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    result = through_int64(lambda y: function(y, axis), x).to(x.dtype)
    return result.flip(axis) if reverse else result


@lower("Unique")
def unique(X, *, axis=None, sorted=1):
    if is_string(X):
        return _unique_of_array(X, axis, sorted)
    data = X.reshape(-1) if axis is None else X
    axis = 0 if axis is None else axis
    values, inverse, counts = torch.unique(data, return_inverse=True, return_counts=True, dim=axis)
    count = data.shape[axis]
    first = torch.full([values.shape[axis]], count, dtype=torch.int64, device=X.device)
    first = first.scatter_reduce(0, inverse, torch.arange(count, device=X.device), "amin")
    if not sorted:
        order = torch.argsort(first)
        values, counts, first = values.index_select(axis, order), counts[order], first[order]
        inverse = torch.argsort(order)[inverse]
    return values, first, inverse, counts


def _unique_of_array(X, axis, sorted):
    values, first, inverse, counts = np.unique(
        X.astype(str), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values, first, counts = values[order], first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values.astype(object), *(torch.from_numpy(array.astype(np.int64)) for array in (first, inverse, counts))


@lower("NonMaxSuppression", static=("max_output_boxes_per_class", "iou_threshold", "score_threshold"))
def non_max_suppression(
    boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, *, center_point_box=0
):
    most = 0 if max_output_boxes_per_class is None else int(number(max_output_boxes_per_class))
    overlap = 0.0 if iou_threshold is None else float(number(iou_threshold))
    least = float("-inf") if score_threshold is None else float(number(score_threshold))
    corners = _corners(boxes, center_point_box)
    chosen = []
    for item in range(scores.shape[0]):
        shared = _overlaps(corners[item])
        for kind in range(scores.shape[1]):
            chosen += [[item, kind, box] for box in _selected(scores[item, kind], shared, most, overlap, least)]
    return torch.tensor(chosen, dtype=torch.int64, device=scores.device).reshape(-1, 3)


def _corners(boxes, center_point_box):
    """``y1, x1, y2, x2`` with the smaller coordinate first."""
    if center_point_box:
        x, y, width, height = boxes.unbind(-1)
        return torch.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], -1)
    one, other = boxes[..., :2], boxes[..., 2:]
    return torch.cat([torch.minimum(one, other), torch.maximum(one, other)], -1)


def _overlaps(corners):
    """Intersection over union of each pair of boxes."""
    low = torch.maximum(corners[:, None, :2], corners[None, :, :2])
    high = torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    area = (corners[:, 2:] - corners[:, :2]).prod(-1)
    union = area[:, None] + area[None] - shared
    return torch.where(union > 0, shared / union, 0)


def _selected(scores, shared, most, overlap, least):
    kept: list[int] = []
    for place in torch.argsort(scores, descending=True, stable=True).tolist():
        if len(kept) >= most or not scores[place] > least:
            break
        if all(shared[place, other] <= overlap for other in kept):
            kept.append(place)
    return kept
