"""Pools over windows of any rank, padding, dilation, rounding and element type.

A maximum and a sum over a box are separable: one axis after another, each as the elements of its windows side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exporters.torch._windows import Window, pad_spatial, window_of

__all__ = ["Pool", "lowest", "pool_of", "tap_counts", "taps_of"]


@dataclass(frozen=True)
class Pool:
    """A window laid over an input.

    Attributes:
        window: the window.
        sizes: the input's spatial sizes.
        pads: the padding that the operator asks for.
        outputs: the output's spatial sizes.
    """

    window: Window
    sizes: list[Any]
    pads: list[tuple[Any, Any]]
    outputs: list[Any]

    @property
    def reach(self) -> list[tuple[Any, Any]]:
        """The padding that the outputs need: more at the end where sizes are rounded up, less where they are not."""
        window = self.window
        axes = zip(self.sizes, self.pads, self.outputs, window.strides, window.spans)
        return [(begin, (n - 1) * s + span - size - begin) for size, (begin, _), n, s, span in axes]


def pool_of(
    x: Any,
    kernel: Sequence[int],
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Pool:
    """The pool of a node's attributes over a channels-first input."""
    window = window_of(kernel, strides, dilations)
    sizes = list(x.shape[2:])
    padding = window.pads(sizes, auto_pad, pads)
    is_same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    axes = zip(sizes, padding, window.strides, window.spans)
    outputs = [
        -(-size // s) if is_same else _output_size(size, pair, s, span, bool(ceil_mode)) for size, pair, s, span in axes
    ]
    return Pool(window, sizes, padding, outputs)


def _output_size(size: Any, pads: tuple[int, int], stride: int, span: int, ceil: bool) -> Any:
    begin, end = pads
    room = size + begin + end - span
    if not ceil:
        return room // stride + 1
    count = -(-room // stride) + 1
    # A window that would start in the padding at the end is left out.
    return count - 1 if (count - 1) * stride >= size + begin else count


def lowest(dtype: torch.dtype) -> Any:
    """What never wins a maximum."""
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def taps_of(x: Any, pool: Pool, value: Any) -> Any:
    """The elements of each window, ``[batch, channels, *outputs, *kernel]``, ``value`` where a window reaches outside."""
    window = pool.window
    x = pad_spatial(x, pool.reach, value)
    for axis in range(window.rank):
        x = x.unfold(2 + axis, window.spans[axis], window.strides[axis])
    for axis, dilation in enumerate(window.dilations):
        if dilation > 1:
            picked = [slice(None)] * (2 + window.rank + axis) + [slice(None, None, dilation)]
            x = x[tuple(picked)]
    return x


def tap_counts(pool: Pool, pads: Sequence[tuple[Any, Any]], like: torch.Tensor) -> Any:
    """How many taps of each window lie inside the input widened by ``pads``; it broadcasts to the outputs."""
    counts = torch.ones([1] * (pool.window.rank + 2), dtype=like.dtype, device=like.device)
    for axis, (begin, end) in enumerate(pads):
        window, size = pool.window, pool.sizes[axis]
        steps = torch.arange(pool.outputs[axis], device=like.device) * window.strides[axis] - pool.pads[axis][0]
        taps = torch.arange(window.kernel[axis], device=like.device) * window.dilations[axis]
        places = steps[:, None] + taps
        inside = ((places >= -begin) & (places < size + end)).sum(1)
        counts = counts * inside.to(like.dtype).reshape(-1, *[1] * (window.rank - 1 - axis))
    return counts
