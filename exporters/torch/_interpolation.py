"""Interpolation along one axis, as Resize defines it: where each output lies on the input, and the weights around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Axis", "Filter", "nearest_places", "outside", "source_positions", "taps"]


@dataclass(frozen=True)
class Axis:
    """How one axis is resized.

    Attributes:
        position: the axis.
        size: its input size.
        output: its output size.
        scale: the scale that the model gives, None where it gives sizes: then output / size, kept as a fraction.
        region: start and end of the region of interest, in units of the input.
    """

    position: int
    size: Any
    output: Any
    scale: Any = None
    region: tuple[Any, Any] = (0.0, 1.0)

    @property
    def length(self) -> Any:
        """The output size before rounding down."""
        return self.output if self.scale is None else self.scale * self.size

    @property
    def ratio(self) -> Any:
        """Output per input."""
        return self.output / self.size if self.scale is None else self.scale

    def shrink(self, places: Any) -> Any:
        """Places on the output divided by the scale; exact where the result is a whole number."""
        return places * self.size / self.output if self.scale is None else places / self.scale


@dataclass(frozen=True)
class Filter:
    """What Resize does around a source position.

    Attributes:
        mode: "linear" or "cubic".
        cubic: the coefficient a of the cubic.
        antialias: whether the filter is stretched when the axis shrinks.
        exclude_outside: whether taps outside the input count for nothing.
    """

    mode: str
    cubic: float
    antialias: bool
    exclude_outside: bool


def source_positions(axis: Axis, mode: str, device: Any = None) -> Any:
    """Where each output lies on the input, ``[output]`` float64.

    Args:
        axis: the axis.
        mode: Resize's coordinate_transformation_mode.
        device: where to make the tensor.
    """
    steps = torch.arange(axis.output, device=device).double()
    last = axis.size - 1
    if mode == "align_corners":
        return steps * 0 if axis.length == 1 else steps * last / (axis.length - 1)
    if mode == "asymmetric":
        return axis.shrink(steps)
    if mode == "tf_half_pixel_for_nn":
        return axis.shrink(steps + 0.5)
    if mode == "tf_crop_and_resize":
        start, end = axis.region
        if axis.length == 1:
            return steps * 0 + (start + end) * last / 2
        return start * last + steps * (end - start) * last / (axis.length - 1)
    if mode == "pytorch_half_pixel" and axis.length == 1:
        return steps * 0 - 0.5
    half = axis.shrink(steps + 0.5) - 0.5
    if mode == "half_pixel_symmetric":
        return half + axis.size / 2 * (1 - axis.output / axis.length)
    return half


def outside(axis: Axis, positions: Any) -> Any:
    """Which positions lie outside the input, ``[output]`` bool."""
    return (positions < 0) | (positions > axis.size - 1)


_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: torch.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: torch.floor(x + 0.5),
    "floor": torch.floor,
    "ceil": torch.ceil,
}


def nearest_places(axis: Axis, positions: Any, rounding: str) -> Any:
    """The index of the input element for each output, ``[output]`` int64."""
    return _ROUNDINGS[rounding](positions).long().clamp(min=0).clamp(max=axis.size - 1)


def taps(axis: Axis, positions: torch.Tensor, kind: Filter) -> tuple[torch.Tensor, torch.Tensor]:
    """The input elements around each output and their weights.

    Returns:
        Indices ``[output, taps]`` int64 and weights ``[output, taps]`` float64.
    """
    reach = 1.0 if kind.mode == "linear" else 2.0
    shrink = min(axis.ratio, 1.0) if kind.antialias else 1.0
    before = int(-reach / shrink // 1) + 1
    around = torch.arange(before, 2 - before, device=positions.device)
    places = torch.floor(positions).long()[:, None] + around
    distance = (places - positions[:, None]) * shrink
    weights = torch.clamp(1 - distance.abs(), min=0) if kind.mode == "linear" else _cubic(distance, kind.cubic)
    if kind.exclude_outside:
        weights = torch.where((places >= 0) & (places < axis.size), weights, 0)
    if kind.exclude_outside or kind.antialias:
        weights = weights / weights.sum(1, keepdim=True)
    return places.clamp(min=0).clamp(max=axis.size - 1), weights


def _cubic(distance: torch.Tensor, a: float) -> torch.Tensor:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), equation 4."""
    x = distance.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return torch.where(x <= 1, near, torch.where(x < 2, far, 0))
