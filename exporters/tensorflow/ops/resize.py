"""Resizing and sampling of images and volumes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._interpolation import Axis, Filter, nearest_places, outside, source_positions, taps
from exporters.tensorflow._layout import channels_first, channels_last
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of, shape_of, static_shape

# Up to this size a constant weight matrix is cheaper than picking the taps.
_MATRIX_ELEMENTS = 256 * 256


@lower("Resize", static=("roi", "scales", "sizes"))
def resize(
    X,
    roi=None,
    scales=None,
    sizes=None,
    *,
    antialias=0,
    axes=None,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch",
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    positions = [axis % rank_of(X) for axis in axes] if axes else list(range(rank_of(X)))
    if sizes is None or static_shape(sizes) == [0]:
        plan = _plan_scales(X, positions, scales)
    else:
        plan = _plan_sizes(X, positions, sizes, keep_aspect_ratio_policy)
    coordinates = coordinate_transformation_mode
    if coordinates == "tf_crop_and_resize":
        plan = [_with_region(axis, roi, index, len(plan)) for index, axis in enumerate(plan)]
    plan = [axis for axis in plan if not _is_identity(axis)]
    if mode == "nearest":
        fast, kind = _fast_nearest(X, plan, coordinates, nearest_mode), nearest_mode
    else:
        kind = Filter(mode, cubic_coeff_a, bool(antialias), bool(exclude_outside))
        fast = _fast_linear(X, plan, coordinates, kind)
    return _resize_axes(X, plan, (coordinates, extrapolation_value), kind) if fast is None else fast


@lower("Upsample", static=("scales",))
def upsample(X, scales, *, mode="nearest"):
    """Deprecated since opset 10; its rounding is that of Resize with asymmetric coordinates and floor."""
    return resize(X, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _plan_scales(X, positions, scales):
    shape = shape_of(X, tf.int32)
    plan = []
    for index, position in enumerate(positions):
        size, scale = shape[position], _item(scales, index)
        if isinstance(size, int) and isinstance(scale, float):
            output = int(size * scale)
        elif scale == 1.0 if isinstance(scale, float) else False:
            output = size
        else:
            output = tf.cast(tf.math.floor(tf.cast(size, tf.float64) * tf.cast(scale, tf.float64)), tf.int32)
        plan.append(Axis(position, size, output, scale))
    return plan


def _plan_sizes(X, positions, sizes, policy):
    shape = shape_of(X, tf.int32)
    known = _known_sizes(sizes)
    outputs = [_item(sizes, index) if size is None else size for index, size in enumerate(known)]
    plan = [Axis(position, shape[position], output) for position, output in zip(positions, outputs)]
    if policy == "stretch":
        return [_assume_batch(axis, X) for axis in plan]
    ratios = [axis.output / axis.size for axis in plan]
    if all(isinstance(ratio, float) for ratio in ratios):
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        return [Axis(axis.position, axis.size, int(ratio * axis.size + 0.5), ratio) for axis in plan]
    ratios = tf.stack([axis.ratio for axis in plan])
    ratio = tf.reduce_min(ratios) if policy == "not_larger" else tf.reduce_max(ratios)
    return [
        Axis(axis.position, axis.size, tf.cast(ratio * tf.cast(axis.size, tf.float64) + 0.5, tf.int32), ratio)
        for axis in plan
    ]


def _known_sizes(sizes):
    """The sizes that are known while the graph is built, None for the others."""
    if isinstance(sizes, np.ndarray):
        return [int(size) for size in sizes]
    return tf.fill(sizes, 0).shape.as_list()


def _item(vector, index):
    """An element as int or float where it is known, otherwise as a scalar tensor."""
    item = vector[index]
    if isinstance(vector, np.ndarray):
        return item.item()
    return tf.cast(item, tf.int32) if item.dtype.is_integer else item


def _assume_batch(axis, X):
    """Batch and channels of an unknown size keep it: nobody resizes them, and whoever does hears of it."""
    if axis.position > 1 or rank_of(X) < 3 or isinstance(axis.output, int) or isinstance(axis.size, int):
        return axis
    tf.debugging.assert_equal(axis.output, axis.size, "Resize of a batch or channel axis of unknown size")
    return Axis(axis.position, axis.size, axis.size)


def _with_region(axis, roi, index, count):
    return Axis(axis.position, axis.size, axis.output, axis.scale, (_item(roi, index), _item(roi, count + index)))


def _is_identity(axis):
    return axis.output is axis.size or (
        isinstance(axis.output, int)
        and isinstance(axis.size, int)
        and axis.output == axis.size
        and axis.scale in (None, 1.0)
        and axis.region == (0.0, 1.0)
    )


def _is_exact(axis):
    """Whether the scale is output / input, which is what TensorFlow's kernels compute it from."""
    if axis.scale is None:
        return True
    if not isinstance(axis.scale, float):
        return False
    if isinstance(axis.size, int):
        return axis.output == axis.size * axis.scale
    return axis.scale.is_integer()


def _fast_nearest(X, plan, coordinates, rounding):
    """TensorFlow's kernel, for upsampling by a power of two: there its float32 arithmetic is exact."""
    fits = all(_is_power_of_two(axis) for axis in plan)
    floors = coordinates == "asymmetric" and rounding == "floor"
    centres = coordinates in ("half_pixel", "half_pixel_symmetric") and rounding.startswith("round")
    if not (_is_image(X, plan) and fits and (floors or centres)) or X.dtype in (tf.uint32, tf.uint64, tf.bool):
        return None
    size = _image_size(X, plan)
    return channels_first(tf.raw_ops.ResizeNearestNeighbor(images=channels_last(X), size=size))


def _is_power_of_two(axis):
    if isinstance(axis.scale, float):
        ratio = axis.scale
    elif isinstance(axis.size, int) and isinstance(axis.output, int):
        ratio = axis.output / axis.size
    else:
        return False
    return ratio >= 1 and ratio.is_integer() and int(ratio) & (int(ratio) - 1) == 0


_LINEAR = {
    "half_pixel": {"half_pixel_centers": True},
    "half_pixel_symmetric": {"half_pixel_centers": True},
    "pytorch_half_pixel": {"half_pixel_centers": True},
    "align_corners": {"align_corners": True},
    "asymmetric": {},
}


def _fast_linear(X, plan, coordinates, kind):
    fits = kind.mode == "linear" and not kind.antialias and coordinates in _LINEAR and all(map(_is_exact, plan))
    if coordinates == "pytorch_half_pixel":
        fits = fits and all(isinstance(axis.output, int) and axis.output > 1 for axis in plan)
    if not (fits and _is_image(X, plan)) or X.dtype not in (tf.float32, tf.float16, tf.bfloat16):
        return None
    size = _image_size(X, plan)
    y = tf.raw_ops.ResizeBilinear(images=channels_last(X), size=size, **_LINEAR[coordinates])
    return channels_first(tf.cast(y, X.dtype))


def _is_image(X, plan):
    return rank_of(X) == 4 and bool(plan) and all(axis.position >= 2 for axis in plan)


def _image_size(X, plan):
    sizes = {axis.position: axis.output for axis in plan}
    shape = shape_of(X, tf.int32)
    return tf.stack([sizes.get(2, shape[2]), sizes.get(3, shape[3])])


def _resize_axes(X, plan, rules, kind):
    """One axis after another; weights are constants where the sizes are known."""
    y = X
    if not isinstance(kind, str):
        y = tf.cast(X, tf.float32 if X.dtype in (tf.float16, tf.bfloat16, tf.float32) else tf.float64)
    for axis in plan:
        y = _resize_axis(y, axis, rules, kind)
    if X.dtype.is_integer and y.dtype.is_floating:
        y = tf.saturate_cast(tf.round(y), X.dtype)
    return tf.cast(y, X.dtype)


def _resize_axis(y, axis, rules, kind):
    coordinates, extrapolated = rules
    sizes = (axis.size, axis.output, *axis.region)
    is_known = all(isinstance(size, (int, float)) for size in sizes) and isinstance(axis.scale, (float, type(None)))
    with tf.init_scope() if is_known else contextlib.nullcontext():
        positions = source_positions(axis, coordinates)
        if isinstance(kind, str):
            table: tuple[Any, ...] = (nearest_places(axis, positions, kind),)
        else:
            places, weights = taps(axis, positions, kind)
            table = (places, tf.cast(weights, y.dtype))
            if is_known and axis.size * axis.output <= _MATRIX_ELEMENTS:
                table = (_matrix(places, tf.cast(weights, y.dtype), axis.size),)
        beyond = outside(axis, positions) if coordinates == "tf_crop_and_resize" else None
        if is_known:
            table = tuple(part.numpy() for part in table)
            beyond = None if beyond is None or not beyond.numpy().any() else beyond.numpy()
    y = _apply(y, axis, table, kind)
    if beyond is None:
        return y
    line = [-1] + [1] * (rank_of(y) - axis.position - 1)
    return tf.where(tf.reshape(beyond, line), tf.cast(extrapolated, y.dtype), y)


def _matrix(places, weights, size):
    """``[output, size]``: what each input element adds to each output."""
    return tf.einsum("ot,ots->os", weights, tf.one_hot(places, size, dtype=weights.dtype))


def _apply(y, axis, table, kind):
    position, rank = axis.position, rank_of(y)
    if isinstance(kind, str):
        return tf.gather(y, table[0], axis=position)
    if len(table) == 1:
        return _contract(y, tf.constant(table[0]), position)
    places, weights = table
    line = [*tf.unstack(tf.shape(weights)), *([1] * (rank - position - 1))]
    return tf.reduce_sum(tf.gather(y, places, axis=position) * tf.reshape(weights, line), position + 1)


def _contract(y, matrix, position):
    rank = rank_of(y)
    if rank >= 2 and position == rank - 1:
        return tf.matmul(y, matrix, transpose_b=True)
    if rank >= 2 and position == rank - 2:
        return tf.matmul(matrix, y)
    moved = tf.tensordot(matrix, y, [[1], [position]])
    order = [*range(1, position + 1), 0, *range(position + 1, rank)]
    return tf.transpose(moved, order)
