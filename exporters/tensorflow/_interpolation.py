"""Interpolation along one axis, as Resize defines it: where each output lies on the input, and the weights around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

__all__ = ["Axis", "Filter", "nearest_places", "outside", "source_positions", "taps"]


@dataclass(frozen=True)
class Axis:
    """How one axis is resized.

    Attributes:
        position: the axis.
        size: its input size; int or scalar int tensor.
        output: its output size; int or scalar int tensor.
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
        """The output size before rounding down, a float64 scalar."""
        return _double(self.output) if self.scale is None else _double(self.scale) * _double(self.size)

    @property
    def ratio(self) -> Any:
        """Output per input, a float64 scalar."""
        return _double(self.output) / _double(self.size) if self.scale is None else _double(self.scale)

    def shrink(self, places: Any) -> Any:
        """Places on the output divided by the scale; exact where the result is a whole number."""
        if self.scale is None:
            return places * _double(self.size) / _double(self.output)
        return places / _double(self.scale)


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


def _double(value: Any) -> Any:
    return tf.cast(value, tf.float64)


def source_positions(axis: Axis, mode: str) -> Any:
    """Where each output lies on the input, ``[output]`` float64.

    Args:
        axis: the axis.
        mode: Resize's coordinate_transformation_mode.
    """
    steps = _double(tf.range(axis.output))
    last = _double(axis.size) - 1
    if mode == "align_corners":
        return steps * last / _at_least_one(axis.length - 1)
    if mode == "asymmetric":
        return axis.shrink(steps)
    if mode == "tf_half_pixel_for_nn":
        return axis.shrink(steps + 0.5)
    if mode == "tf_crop_and_resize":
        start, end = (_double(edge) for edge in axis.region)
        single = (start + end) * last / 2
        several = start * last + steps * (end - start) * last / _at_least_one(axis.length - 1)
        return tf.where(tf.equal(axis.length, 1), single, several)
    half = axis.shrink(steps + 0.5) - 0.5
    if mode == "pytorch_half_pixel":
        return tf.where(tf.equal(axis.length, 1), tf.cast(-0.5, tf.float64), half)
    if mode == "half_pixel_symmetric":
        return half + _double(axis.size) / 2 * (1 - _double(axis.output) / axis.length)
    return half


def _at_least_one(length: Any) -> Any:
    """Keeps a division by zero out of outputs of length 1, whose only step is 0 anyway."""
    return tf.where(tf.equal(length, 0), tf.ones_like(length), length)


def outside(axis: Axis, positions: Any) -> Any:
    """Which positions lie outside the input, ``[output]`` bool."""
    return (positions < 0) | (positions > _double(axis.size) - 1)


# TensorFlow's optimizer turns a division by a constant into a product, which may miss a whole number by a rounding error.
_NOISE = 1e-10

_ROUNDINGS = {
    "round_prefer_floor": lambda x: tf.math.ceil(x - 0.5 - _NOISE),
    "round_prefer_ceil": lambda x: tf.math.floor(x + 0.5 + _NOISE),
    "floor": lambda x: tf.math.floor(x + _NOISE),
    "ceil": lambda x: tf.math.ceil(x - _NOISE),
}


def nearest_places(axis: Axis, positions: Any, rounding: str) -> Any:
    """The index of the input element for each output, ``[output]`` int32."""
    return _inside(axis, tf.cast(_ROUNDINGS[rounding](positions), tf.int32))


def _inside(axis: Axis, places: Any) -> Any:
    return tf.clip_by_value(places, 0, tf.cast(axis.size, tf.int32) - 1)


def taps(axis: Axis, positions: Any, kind: Filter) -> tuple[Any, Any]:
    """The input elements around each output and their weights.

    Returns:
        Indices ``[output, taps]`` int32 and weights ``[output, taps]`` float64.
    """
    reach = 1.0 if kind.mode == "linear" else 2.0
    shrink = tf.minimum(axis.ratio, 1.0) if kind.antialias else _double(1.0)
    before = tf.cast(tf.math.floor(-reach / shrink), tf.int32) + 1
    places = tf.cast(tf.math.floor(positions), tf.int32)[:, None] + tf.range(before, 2 - before)[None]
    distance = (_double(places) - positions[:, None]) * shrink
    weights = _hat(distance) if kind.mode == "linear" else _cubic(distance, kind.cubic)
    if kind.exclude_outside:
        weights = tf.where((places >= 0) & (places < tf.cast(axis.size, tf.int32)), weights, tf.zeros_like(weights))
    if kind.exclude_outside or kind.antialias:
        weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, 1, keepdims=True))
    return _inside(axis, places), weights


def _hat(distance: Any) -> Any:
    return tf.maximum(1 - tf.abs(distance), 0)


def _cubic(distance: Any, a: float) -> Any:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), equation 4."""
    x = tf.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return tf.where(x <= 1, near, tf.where(x < 2, far, tf.zeros_like(x)))
