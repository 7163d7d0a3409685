"""Sliding windows, as convolutions and pools use them: padding and output sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["Pads", "Window"]

Pads = list[tuple[Any, Any]]


@dataclass(frozen=True)
class Window(ABC):
    """A window over the spatial axes.

    Attributes:
        kernel: its size, one number a spatial axis.
        strides: its steps.
        dilations: distance between its taps.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @classmethod
    def of(cls, kernel: Sequence[int], strides: Sequence[int] | None, dilations: Sequence[int] | None) -> Self:
        """The window of a node's attributes; strides and dilations are 1 where they are left out."""
        ones = [1] * len(kernel)
        return cls(tuple(kernel), tuple(strides or ones), tuple(dilations or ones))

    @staticmethod
    @abstractmethod
    def at_least_zero(size: Any) -> Any:
        """A size of the framework that is not an int, or zero where it is negative."""

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    @property
    def spans(self) -> tuple[int, ...]:
        """How far it reaches on each axis, the gaps between its taps counted."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))

    @property
    def is_dilated(self) -> bool:
        """Whether its taps have gaps between them."""
        return any(d > 1 and k > 1 for k, d in zip(self.kernel, self.dilations))

    def pads(self, sizes: Sequence[Any], auto_pad: str, pads: Sequence[int] | None) -> Pads:
        """The padding before and after each axis.

        Args:
            sizes: the input's spatial sizes, ints or what the framework has for sizes that are not known yet.
            auto_pad: the ONNX attribute.
            pads: the ONNX attribute, all begins and then all ends.

        Returns:
            Pairs of ints, or of the framework's sizes where a SAME padding depends on one.
        """
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            axes = zip(sizes, self.spans, self.strides)
            return [self._same(size, span, stride, auto_pad == "SAME_LOWER") for size, span, stride in axes]
        if auto_pad == "VALID" or not pads:
            return [(0, 0)] * self.rank
        return list(zip(pads[: self.rank], pads[self.rank :]))

    def _same(self, size: Any, span: int, stride: int, lower: bool) -> tuple[Any, Any]:
        if stride == 1:
            total: Any = span - 1
        else:
            total = (-(-size // stride) - 1) * stride + span - size
            total = max(total, 0) if isinstance(total, int) else self.at_least_zero(total)
        small = total // 2
        return (total - small, small) if lower else (small, total - small)
