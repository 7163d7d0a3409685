"""Convolutions in channels-last layout, through those TensorFlow kernels that exist on a CPU and have a gradient.

TensorFlow's own CPU kernels know dilations and groups only going forward; those of oneDNN, which serve float32 without
explicit padding, also going back. So the other element types, volumes and transposed convolutions take detours: a
dilated kernel is spread out with zeros, groups are computed one by one.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from exporters.tensorflow._tensors import shape_of
from exporters.tensorflow._windows import Pads, Window, is_static, pad_spatial

__all__ = ["convolve", "transpose_convolve"]


def convolve(x: Any, w: Any, window: Window, pads: Pads, group: int) -> Any:
    """Convolve.

    Args:
        x: ``[N, ..., C]`` over 1, 2 or 3 axes.
        w: ``[..., C / group, M]``.
        window: the window, whose kernel is that of ``w``.
        pads: what stands around the input, pairs of ints or scalar tensors.
        group: into how many groups the channels are split.

    Returns:
        ``[N, ..., M]``.
    """
    if window.is_dilated and (window.rank == 3 or x.dtype != tf.float32):
        w, window = _spread(w, window)
    if not is_static(pads) or min(min(pair) for pair in pads) < 0:
        x, pads = pad_spatial(x, pads), [(0, 0)] * window.rank
    if window.rank == 1:
        y = _convolve_2d(tf.expand_dims(x, 1), tf.expand_dims(w, 0), _flat(window), [(0, 0), *pads], group)
        return tf.squeeze(y, 1)
    if window.rank == 2:
        return _convolve_2d(x, w, window, pads, group)
    return _convolve_3d(pad_spatial(x, pads), w, window, group)


def _flat(window: Window) -> Window:
    """A window over one axis as one over two."""
    # The same stride on both axes, because TensorFlow's depthwise kernel has only one.
    return Window((1, *window.kernel), (window.strides[0], *window.strides), (1, *window.dilations))


def _spread(w: Any, window: Window) -> tuple[Any, Window]:
    """The kernel with zeros in its gaps, and a window without dilation."""
    for axis, dilation in enumerate(window.dilations):
        if dilation == 1 or window.kernel[axis] == 1:
            continue
        shape = shape_of(w, tf.int32)
        paddings = [[0, 0]] * (len(shape) + 1)
        paddings[axis + 1] = [0, dilation - 1]
        w = tf.pad(tf.expand_dims(w, axis + 1), paddings)
        w = tf.reshape(w, [*shape[:axis], shape[axis] * dilation, *shape[axis + 1 :]])
        w = w[(slice(None),) * axis + (slice(window.spans[axis]),)]
    return w, Window(window.spans, window.strides, (1,) * window.rank)


def _convolve_2d(x: Any, w: Any, window: Window, pads: Pads, group: int) -> Any:
    padding = _padding(window, pads)
    if not isinstance(padding, str) and (window.is_dilated or group > 1):
        # And a depthwise one with explicit padding aborts the process once TensorFlow has fused it with a bias.
        x, padding = pad_spatial(x, pads), "VALID"
    if group > 1 and w.shape[-2] == 1 and _has_depthwise(window):
        kernel = tf.reshape(w, [*window.kernel, group, -1])
        return tf.nn.depthwise_conv2d(x, kernel, [1, *window.strides, 1], padding, dilations=window.dilations)
    if group > 1 and x.dtype != tf.float32:
        parts = zip(tf.split(x, group, -1), tf.split(w, group, -1))
        return tf.concat([tf.nn.conv2d(a, b, window.strides, padding) for a, b in parts], -1)
    return tf.nn.conv2d(x, w, window.strides, padding, dilations=window.dilations)


def _has_depthwise(window: Window) -> bool:
    """TensorFlow's depthwise kernel has one stride for both axes, and dilations only at stride 1."""
    row, column = window.strides
    return row == column and (row == 1 or not window.is_dilated)


def _padding(window: Window, pads: Pads) -> Any:
    """A name where there is one, which TensorFlow's optimizer fuses more readily, otherwise a list."""
    if not any(any(pair) for pair in pads):
        return "VALID"
    halves = [((span - 1) // 2, span // 2) for span in window.spans]
    if set(window.strides) == {1} and pads == halves:
        return "SAME"
    return [[0, 0], *(list(pair) for pair in pads), [0, 0]]


def _convolve_3d(x: Any, w: Any, window: Window, group: int) -> Any:
    if group == 1:
        return tf.nn.conv3d(x, w, [1, *window.strides, 1], "VALID")
    return _sum_of_slices(x, w, window, group)


def _sum_of_slices(x: Any, w: Any, window: Window, group: int) -> Any:
    """A grouped convolution of volumes: a sum, over the kernel's first axis, of convolutions of images."""
    batch, depth, *sizes = shape_of(x, tf.int32)
    stride = window.strides[0]
    count = (depth - window.kernel[0]) // stride + 1
    plane = Window(window.kernel[1:], window.strides[1:], (1, 1))
    total = None
    for tap in range(window.kernel[0]):
        images = tf.reshape(x[:, tap : tap + (count - 1) * stride + 1 : stride], [batch * count, *sizes])
        part = _convolve_2d(images, w[tap], plane, [(0, 0), (0, 0)], group)
        total = part if total is None else total + part
    return tf.reshape(total, [batch, count, *shape_of(total, tf.int32)[1:]])


def transpose_convolve(x: Any, w: Any, window: Window, cut: Pads, group: int) -> Any:
    """The transpose of a convolution.

    Args:
        x: ``[N, ..., C]`` over 1, 2 or 3 axes.
        w: ``[..., M / group, C]``.
        window: the window, whose kernel is that of ``w``.
        cut: what to cut from the begin and end of each axis, negative where zeros are to be added.
        group: into how many groups the channels are split.

    Returns:
        ``[N, ..., M]``.
    """
    if window.is_dilated:
        w, window = _spread(w, window)
    if window.rank == 1:
        full = _transpose_groups(tf.expand_dims(x, 1), tf.expand_dims(w, 0), _flat(window), group)
        return _cut(tf.squeeze(full, 1), cut)
    return _cut(_transpose_groups(x, w, window, group), cut)


def _cut(y: Any, cut: Pads) -> Any:
    if is_static(cut):
        return pad_spatial(y, [(-begin, -end) for begin, end in cut])
    sizes = shape_of(y, tf.int32)[1:-1]
    padded = pad_spatial(y, [(0, tf.maximum(-end, 0)) for _, end in cut])
    return padded[(slice(None), *(slice(begin, size - end) for size, (begin, end) in zip(sizes, cut)))]


def _transpose_groups(x: Any, w: Any, window: Window, group: int) -> Any:
    """The whole output, nothing cut."""
    if group == 1:
        return _transpose_one(x, w, window)
    if window.rank == 2 and w.shape[-2] == 1 and _has_depthwise(window):
        kernel = tf.reshape(w, [*window.kernel, group, -1])
        shape = _full_shape(x, window, group)
        return tf.nn.depthwise_conv2d_backprop_input(shape, kernel, x, [1, *window.strides, 1], "VALID")
    parts = zip(tf.split(x, group, -1), tf.split(w, group, -1))
    return tf.concat([_transpose_one(a, b, window) for a, b in parts], -1)


def _transpose_one(x: Any, w: Any, window: Window) -> Any:
    transpose = tf.nn.conv2d_transpose if window.rank == 2 else tf.nn.conv3d_transpose
    return transpose(x, w, _full_shape(x, window, w.shape[-2]), window.strides, "VALID")


def _full_shape(x: Any, window: Window, channels: int) -> Any:
    batch, *sizes, _ = shape_of(x, tf.int32)
    full = [(n - 1) * stride + span for n, stride, span in zip(sizes, window.strides, window.spans)]
    return tf.stack([batch, *full, channels])
