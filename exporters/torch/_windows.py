"""Sliding windows, as convolutions and pools use them: padding and output sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

__all__ = ["Pads", "Window", "pad_spatial", "window_of"]

Pads = list[tuple[Any, Any]]


@dataclass(frozen=True)
class Window:
    """A window over the spatial axes.

    Attributes:
        kernel: its size, one number a spatial axis.
        strides: its steps.
        dilations: distance between its taps.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    @property
    def spans(self) -> tuple[int, ...]:
        """How far it reaches on each axis, the gaps between its taps counted."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))

    def pads(self, sizes: Sequence[Any], auto_pad: str, pads: Sequence[int] | None) -> Pads:
        """The padding before and after each axis.

        Args:
            sizes: the input's spatial sizes.
            auto_pad: the ONNX attribute.
            pads: the ONNX attribute, all begins and then all ends.
        """
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            axes = zip(sizes, self.spans, self.strides)
            return [_same(size, span, stride, auto_pad == "SAME_LOWER") for size, span, stride in axes]
        if auto_pad == "VALID" or not pads:
            return [(0, 0)] * self.rank
        return list(zip(pads[: self.rank], pads[self.rank :]))


def window_of(kernel: Sequence[int], strides: Sequence[int] | None, dilations: Sequence[int] | None) -> Window:
    """The window of a node's attributes; strides and dilations are 1 where they are left out."""
    ones = [1] * len(kernel)
    return Window(tuple(kernel), tuple(strides or ones), tuple(dilations or ones))


def _same(size: Any, span: int, stride: int, lower: bool) -> tuple[Any, Any]:
    if stride == 1:
        total: Any = span - 1
    else:
        total = (-(-size // stride) - 1) * stride + span - size
        total = max(total, 0) if isinstance(total, int) else torch.sym_max(total, 0)  # type: ignore[no-untyped-call]  # torch has no types for it
    small = total // 2
    return (total - small, small) if lower else (small, total - small)


def pad_spatial(x: Any, pads: Pads, value: Any = 0) -> Any:
    """Pad the last axes, one pair an axis; negative pads crop."""
    flat = [pad for pair in reversed(pads) for pad in pair]
    if all(isinstance(pad, int) and pad == 0 for pad in flat):
        return x
    return functional.pad(x, flat, value=value)
