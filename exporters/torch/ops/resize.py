"""Resizing of images and volumes."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from exporters.torch._interpolation import Axis, Filter, nearest_places, outside, source_positions, taps
from exporters.torch._table import lower
from exporters.torch._values import HALVES, known_true, numbers


@lower("Resize", static=("roi", "scales", "sizes"))
def resize(
    X,
    roi=None,
    scales=None,
    sizes=None,
    *,
    antialias=0,
    axes=None,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch",
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    positions = [axis % X.ndim for axis in axes] if axes else list(range(X.ndim))
    wanted = [] if sizes is None else numbers(sizes)
    if wanted:
        plan = _plan_sizes(X, positions, wanted, keep_aspect_ratio_policy)
    else:
        plan = [_scaled(position, X.shape[position], s) for position, s in zip(positions, numbers(scales))]
    coordinates = coordinate_transformation_mode
    if coordinates == "tf_crop_and_resize":
        edges = numbers(roi)
        plan = [
            Axis(axis.position, axis.size, axis.output, axis.scale, (edges[i], edges[i + len(plan)]))
            for i, axis in enumerate(plan)
        ]
    plan = [axis for axis in plan if not _is_identity(axis)]
    if mode == "nearest":
        kind = nearest_mode
    else:
        kind = Filter(mode, cubic_coeff_a, bool(antialias), bool(exclude_outside))
    fast = _by_kernel(X, plan, coordinates, kind)
    return _resize_axes(X, plan, (coordinates, extrapolation_value), kind) if fast is None else fast


@lower("Upsample", static=("scales",))
def upsample(X, scales, *, mode="nearest"):
    """Deprecated since opset 10; its rounding is that of Resize with asymmetric coordinates and floor."""
    return resize(X, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _scaled(position, size, scale):
    if float(scale).is_integer():
        return Axis(position, size, size * int(scale), scale)
    return Axis(position, size, math.floor(size * scale), scale)


def _plan_sizes(X, positions, sizes, policy):
    plan = [Axis(position, X.shape[position], size) for position, size in zip(positions, sizes)]
    if policy == "stretch":
        return plan
    ratios = [axis.output / axis.size for axis in plan]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [Axis(axis.position, axis.size, int(ratio * axis.size + 0.5), ratio) for axis in plan]


def _is_identity(axis):
    if axis.region != (0.0, 1.0) or axis.scale not in (None, 1.0):
        return False
    return axis.scale == 1.0 or known_true(axis.output == axis.size)


_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}


def _by_kernel(X, plan, coordinates, kind):
    """Torch's own interpolation, where it computes the same."""
    positions = [axis.position for axis in plan]
    spatial = list(range(2, X.ndim))
    if not plan or X.ndim not in _LINEAR or any(position < 2 for position in positions):
        return None
    if X.dtype not in (torch.float32, torch.float64) or any(not _is_exact(axis) for axis in plan):
        return None
    sizes = [next((axis.output for axis in plan if axis.position == p), X.shape[p]) for p in spatial]
    if isinstance(kind, str):
        if coordinates != "asymmetric" or kind != "floor":
            return None
        return functional.interpolate(X, sizes, mode="nearest")
    if (
        kind.exclude_outside
        or kind.antialias
        or coordinates not in ("half_pixel", "pytorch_half_pixel", "align_corners")
    ):
        return None
    aligned = coordinates == "align_corners"
    if coordinates == "pytorch_half_pixel" and any(not known_true(axis.output > 1) for axis in plan):
        return None
    if kind.mode == "linear":
        return functional.interpolate(X, sizes, mode=_LINEAR[X.ndim], align_corners=aligned)
    if X.ndim == 4 and kind.cubic == -0.75:
        return functional.interpolate(X, sizes, mode="bicubic", align_corners=aligned)
    return None


def _is_exact(axis):
    """Whether the scale is output / input, which is what torch computes it from."""
    return axis.scale is None or float(axis.scale).is_integer() or known_true(axis.output == axis.size * axis.scale)


def _resize_axes(X, plan, rules, kind):
    """One axis after another."""
    y = X
    if not isinstance(kind, str):
        y = X.float() if X.dtype in (*HALVES, torch.float32) else X.double()
    for axis in plan:
        y = _resize_axis(y, axis, rules, kind)
    if y.dtype.is_floating_point and not X.dtype.is_floating_point:
        limits = torch.iinfo(X.dtype)
        y = torch.clamp(torch.round(y), limits.min, limits.max)
    return y.to(X.dtype)


def _resize_axis(y, axis, rules, kind):
    coordinates, extrapolated = rules
    positions = source_positions(axis, coordinates, y.device)
    rest = [1] * (y.ndim - axis.position - 1)
    if isinstance(kind, str):
        result = y.index_select(axis.position, nearest_places(axis, positions, kind))
    else:
        places, weights = taps(axis, positions, kind)
        picked = y.index_select(axis.position, places.reshape(-1))
        picked = picked.reshape(*y.shape[: axis.position], *places.shape, *y.shape[axis.position + 1 :])
        result = (picked * weights.to(y.dtype).reshape(*places.shape, *rest)).sum(axis.position + 1)
    if coordinates != "tf_crop_and_resize":
        return result
    return torch.where(outside(axis, positions).reshape(-1, *rest), extrapolated, result).to(y.dtype)
