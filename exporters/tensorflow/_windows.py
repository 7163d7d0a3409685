"""Sliding windows, as convolutions and pools use them: padding, output sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from exporters.tensorflow._layout import channels_first, channels_last

__all__ = ["Pads", "Window", "channels_first", "channels_last", "is_static", "pad_spatial", "window_of"]

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

    @property
    def is_dilated(self) -> bool:
        """Whether its taps have gaps between them."""
        return any(d > 1 and k > 1 for k, d in zip(self.kernel, self.dilations))

    def pads(self, sizes: Sequence[Any], auto_pad: str, pads: Sequence[int] | None) -> Pads:
        """The padding before and after each axis.

        Args:
            sizes: the input's spatial sizes, ints or scalar tensors.
            auto_pad: the ONNX attribute.
            pads: the ONNX attribute, all begins and then all ends.

        Returns:
            Pairs of ints, or of scalar tensors where a SAME padding depends on a size that is not known yet.
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
        total = max(total, 0) if isinstance(total, int) else tf.maximum(total, 0)
    small = total // 2
    return (total - small, small) if lower else (small, total - small)


def is_static(pads: Pads) -> bool:
    """Whether all pads are plain ints."""
    return all(isinstance(pad, int) for pair in pads for pad in pair)


def pad_spatial(x: Any, pads: Pads, value: Any = 0, *, first: int = 1) -> Any:
    """Pad the spatial axes, which start at axis ``first``; negative pads crop.

    Args:
        x: the tensor.
        pads: pairs of ints or scalar tensors; tensors are never negative.
        value: what to pad with.
        first: the first spatial axis: 1 in channels-last layout, 2 in channels-first.
    """
    if is_static(pads) and not any(any(pair) for pair in pads):
        return x
    after = x.shape.rank - first - len(pads)
    if is_static(pads) and any(pad < 0 for pair in pads for pad in pair):
        x = _cropped(x, pads, first)
        pads = [(max(begin, 0), max(end, 0)) for begin, end in pads]
    paddings = [(0, 0)] * first + pads + [(0, 0)] * after
    if not is_static(paddings):
        paddings = tf.stack([tf.stack([tf.cast(pad, tf.int32) for pad in pair]) for pair in paddings])
    return tf.pad(x, paddings, constant_values=tf.cast(value, x.dtype))


def _cropped(x: Any, pads: Pads, first: int) -> Any:
    cut = [slice(None)] * first
    cut += [slice(max(-begin, 0), -max(-end, 0) or None) for begin, end in pads]
    return x[tuple(cut)]
