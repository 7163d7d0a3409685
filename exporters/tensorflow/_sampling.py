"""Reading an image or volume at positions between its elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from exporters.tensorflow._tensors import shape_of

__all__ = [
    "Taps",
    "flatten_spatial",
    "floor_and_fraction",
    "gather_corners",
    "inside_tap",
    "linear_taps",
    "sum_corners",
]

Taps = list[tuple[Any, Any]]
"""Elements along one axis: indices that lie inside, int32, and their weights."""


def floor_and_fraction(position: Any) -> tuple[Any, Any]:
    """The element before a position, int32, and how far behind it the position lies."""
    low = tf.floor(position)
    return tf.cast(low, tf.int32), position - low


def linear_taps(position: Any, size: Any) -> Taps:
    """The two elements around each position; those outside the input have no weight.

    Args:
        position: positions along an axis, in elements, any shape.
        size: the axis's size.
    """
    low, fraction = floor_and_fraction(position)
    return [inside_tap(low, 1 - fraction, size), inside_tap(low + 1, fraction, size)]


def inside_tap(index: Any, weight: Any, size: Any) -> tuple[Any, Any]:
    """An index that is inside, and the weight, which is zero where it was not."""
    is_inside = (index >= 0) & (index < size)
    return tf.clip_by_value(index, 0, size - 1), tf.where(is_inside, weight, tf.zeros_like(weight))


def flatten_spatial(x: Any) -> Any:
    """``[N, C, ...]`` to ``[N, elements, C]``."""
    batch, channels, *sizes = shape_of(x, tf.int32)
    last = tf.transpose(x, [0, *range(2, x.shape.rank), 1])
    return tf.reshape(last, [batch, math.prod(sizes), channels])


def gather_corners(table: Any, sizes: Sequence[Any], taps: Sequence[Taps]) -> list[tuple[Any, Any]]:
    """The elements at all combinations of the axes' taps.

    Args:
        table: ``[N, elements, C]``.
        sizes: the spatial sizes that ``elements`` is the product of.
        taps: one list an axis, of tensors that broadcast to ``[N, ...]``.

    Returns:
        Pairs of values ``[N, ..., C]`` and weights ``[N, ..., 1]``.
    """
    corners = []
    for combination in itertools.product(*taps):
        index: Any = 0
        weight: Any = 1
        for size, (place, share) in zip(sizes, combination):
            index = index * size + place
            weight = share * weight
        corners.append((tf.gather(table, index, axis=1, batch_dims=1), tf.expand_dims(weight, -1)))
    return corners


def sum_corners(table: Any, sizes: Sequence[Any], taps: Sequence[Taps]) -> Any:
    """The weighted sum over all combinations of the axes' taps, ``[N, ..., C]``; arguments as ``gather_corners``."""
    corners = [value * tf.cast(weight, value.dtype) for value, weight in gather_corners(table, sizes, taps)]
    return corners[0] if len(corners) == 1 else tf.add_n(corners)
