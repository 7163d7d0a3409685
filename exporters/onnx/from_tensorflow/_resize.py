"""Image resizing that ONNX's Resize does not express: each axis is multiplied with a matrix that TensorFlow itself gives.

A resize of this kind is linear in the image and separable, so TensorFlow's answer to the unit vectors of one axis is that
axis's matrix, whatever its kernel, edges and rounding are. The sizes have to be known when the model is exported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.onnx.from_tensorflow._rewrite import RefusedError, Rewrite

__all__ = ["resize_area", "resize_bicubic", "scale_and_translate"]

_FIXED = "the height and width of the image have to be known; give the model's input a fixed size"

Array = np.ndarray[Any, Any]


def resize_area(new: Rewrite, node: Any) -> None:
    """The mean over the area that each output pixel covers; tf2onnx takes the nearest pixel."""
    align = bool(node.get_attr_value("align_corners", 0))
    _resize(new, lambda image, size, axis: tf.raw_ops.ResizeArea(images=image, size=size, align_corners=align))


def resize_bicubic(new: Rewrite, node: Any) -> None:
    """Bicubic; ONNX Runtime refuses what tf2onnx writes for it."""
    align = bool(node.get_attr_value("align_corners", 0))
    half = bool(node.get_attr_value("half_pixel_centers", 0))
    _resize(
        new,
        lambda image, size, axis: tf.raw_ops.ResizeBicubic(
            images=image, size=size, align_corners=align, half_pixel_centers=half
        ),
    )


def scale_and_translate(new: Rewrite, node: Any) -> None:
    """What ``tf.image.resize`` uses for antialias, Lanczos, Gaussian and Mitchell kernels."""
    scale, shift = (_known(new, value, "scale and translation") for value in new.inputs[2:4])
    if min(scale) <= 0:
        raise RefusedError(_FIXED)
    kernel = node.get_attr_str("kernel_type") if node.get_attr("kernel_type") else "lanczos3"
    antialias = bool(node.get_attr_value("antialias", 1))

    def run(image: Any, size: Any, axis: int) -> Any:
        return tf.raw_ops.ScaleAndTranslate(
            images=image,
            size=size,
            scale=np.array([scale[axis], 1], np.float32),
            translation=np.array([shift[axis], 0], np.float32),
            kernel_type=kernel,
            antialias=antialias,
        )

    _resize(new, run)


def _resize(new: Rewrite, run: Callable[[Any, Any, int], Any]) -> None:
    """``image`` (n, h, w, c) times a matrix for h and one for w."""
    image, size = new.inputs[:2]
    height, width = (int(extent) for extent in _known(new, size, "size"))
    dims = new.shape(image)[1:3]
    if min(dims) < 1:
        raise RefusedError(_FIXED)
    rows, columns = (_matrix(run, *sizes, axis) for axis, sizes in enumerate(zip(dims, (height, width))))
    planes = new.op("Transpose", new.cast(image, _FLOAT), perm=[0, 3, 1, 2])
    planes = new.op("MatMul", new.constant(rows, np.float32), planes)
    planes = new.op("MatMul", planes, new.constant(columns.T, np.float32))
    new.give("Transpose", planes, perm=[0, 2, 3, 1])


_FLOAT = 1  # onnx.TensorProto.FLOAT, the only type that these operators give


def _matrix(run: Callable[[Any, Any, int], Any], before: int, after: int, axis: int) -> Array:
    """(after, before): what becomes of each unit vector of one axis."""
    units = np.eye(before, dtype=np.float32).reshape(1, before, 1, before)
    with tf.Graph().as_default() as graph:  # tf2onnx works inside a graph, where nothing runs at once
        answer = run(tf.constant(units), np.array([after, 1], np.int32), axis)
    with tf.compat.v1.Session(graph=graph) as session:
        return np.asarray(session.run(answer)).reshape(after, before)


def _known(new: Rewrite, value: str, what: str) -> Array:
    found = new.known(value)
    if found is None:
        raise RefusedError(f"its {what} have to be constants; give the model's input a fixed size")
    return found
