"""Sliding windows, as convolutions and pools use them: padding, output sizes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from exporters._graph import windows
from exporters._graph.windows import Pads
from exporters.tensorflow._layout import channels_first, channels_last

__all__ = ["Pads", "Window", "channels_first", "channels_last", "is_static", "pad_spatial", "window_of"]


class Window(windows.Window):
    """A window whose sizes may be scalar tensors."""

    @staticmethod
    def at_least_zero(size: Any) -> Any:
        """See ``windows.Window``."""
        return tf.maximum(size, 0)


window_of = Window.of


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
