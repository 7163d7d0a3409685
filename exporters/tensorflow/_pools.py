"""Pools over windows of any rank, dilation, rounding and element type.

A maximum and a sum over a box are separable: one axis after another, each as a few strided slices. That is the general
way; the common cases go to TensorFlow's own kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._tensors import shape_of
from exporters.tensorflow._windows import Window, window_of

__all__ = ["Pool", "fold_windows", "lowest", "pool_of", "take_slices", "tap_counts"]


@dataclass(frozen=True)
class Pool:
    """A window laid over an input.

    Attributes:
        window: the window.
        sizes: the input's spatial sizes, ints or scalar tensors.
        pads: the padding that the operator asks for.
        outputs: the output's spatial sizes.
        is_rounded_up: whether a last window may reach beyond the padding.
    """

    window: Window
    sizes: list[Any]
    pads: list[tuple[Any, Any]]
    outputs: list[Any]
    is_rounded_up: bool

    @property
    def reach(self) -> list[tuple[Any, Any]]:
        """The padding that the outputs need: more at the end where sizes are rounded up."""
        if not self.is_rounded_up:
            return self.pads
        window = self.window
        axes = zip(self.sizes, self.pads, self.outputs, window.strides, window.spans)
        return [(begin, _at_least_zero((n - 1) * s + span - size - begin)) for size, (begin, _), n, s, span in axes]


def _at_least_zero(value: Any) -> Any:
    return max(value, 0) if isinstance(value, int) else tf.maximum(value, 0)


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
    sizes = shape_of(x, tf.int32)[2:]
    padding = window.pads(sizes, auto_pad, pads)
    is_same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    axes = zip(sizes, padding, window.strides, window.spans)
    outputs = [
        -(-size // s) if is_same else _output_size(size, pair, s, span, bool(ceil_mode)) for size, pair, s, span in axes
    ]
    return Pool(window, sizes, padding, outputs, bool(ceil_mode) and not is_same)


def _output_size(size: Any, pads: tuple[int, int], stride: int, span: int, ceil: bool) -> Any:
    begin, end = pads
    room = size + begin + end - span
    if not ceil:
        return room // stride + 1
    count = -(-room // stride) + 1
    # A window that would start in the padding at the end is left out.
    starts_outside = (count - 1) * stride >= size + begin
    if isinstance(count, int):
        return count - int(starts_outside)
    return count - tf.cast(starts_outside, tf.int32)


def lowest(dtype: tf.DType) -> Any:
    """What never wins a maximum."""
    return -np.inf if dtype.is_floating else dtype.min


def take_slices(x: Any, pool: Pool, axis: int) -> list[Any]:
    """Per tap of the window along a spatial axis, the elements that it meets; ``x`` is padded by ``pool.reach``."""
    window, count = pool.window, pool.outputs[axis]
    stride, dilation = window.strides[axis], window.dilations[axis]
    lead = (slice(None),) * (axis + 2)
    starts = [tap * dilation for tap in range(window.kernel[axis])]
    return [x[(*lead, slice(start, start + (count - 1) * stride + 1, stride))] for start in starts]


def fold_windows(x: Any, pool: Pool, join: Callable[[Any, Any], Any]) -> Any:
    """Join all elements of each window, one axis after another; ``x`` is padded by ``pool.reach``."""
    for axis in range(pool.window.rank):
        first, *others = take_slices(x, pool, axis)
        for other in others:
            first = join(first, other)
        x = first
    return x


def tap_counts(pool: Pool, pads: Sequence[tuple[Any, Any]], dtype: tf.DType) -> Any:
    """How many taps of each window lie inside the input widened by ``pads``.

    Returns:
        ``[1, 1, *outputs]``, an array where all sizes are known.
    """
    counts: Any = np.ones([1] * (pool.window.rank + 2), dtype.as_numpy_dtype)
    for axis, (begin, end) in enumerate(pads):
        shape = [1] * (pool.window.rank + 2)
        shape[axis + 2] = -1
        inside = _axis_counts(pool, axis, begin, end)
        if isinstance(inside, np.ndarray):
            counts = counts * inside.astype(dtype.as_numpy_dtype).reshape(shape)
        else:
            counts = counts * tf.reshape(tf.cast(inside, dtype), shape)
    return counts


def _axis_counts(pool: Pool, axis: int, begin: Any, end: Any) -> Any:
    window = pool.window
    count, size, origin = pool.outputs[axis], pool.sizes[axis], pool.pads[axis][0]
    known = all(isinstance(value, int) for value in (count, size, origin, begin, end))
    steps = np.arange(count) if known else tf.range(count)
    places = (steps * window.strides[axis] - origin)[:, None]
    places = places + np.arange(window.kernel[axis], dtype=np.int32)[None] * window.dilations[axis]
    if known:
        return ((places >= -begin) & (places < size + end)).sum(1)
    return tf.reduce_sum(tf.cast((places >= -begin) & (places < size + end), tf.int32), 1)
