"""Sliding windows, as convolutions and pools use them: padding and output sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from exporters._graph import windows
from exporters._graph.windows import Pads

__all__ = ["Pads", "Window", "pad_spatial", "window_of"]


class Window(windows.Window):
    """A window whose sizes may be torch's symbolic ones."""

    @staticmethod
    def at_least_zero(size: Any) -> Any:
        """See ``windows.Window``."""
        return torch.sym_max(size, 0)


window_of = Window.of


def pad_spatial(x: Any, pads: Pads, value: Any = 0) -> Any:
    """Pad the last axes, one pair an axis; negative pads crop."""
    flat = [pad for pair in reversed(pads) for pad in pair]
    if all(isinstance(pad, int) and pad == 0 for pad in flat):
        return x
    return functional.pad(x, flat, value=value)
