"""Small tools that lowerings share: ranks, shapes and element types of TensorFlow tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from exporters._graph.operator_table import RefusedError
from interop.dtypes import DType, dtype_of

__all__ = ["RefusedError", "in_dtype", "np_dtype", "rank_of", "shape_of", "static_shape", "tf_dtype", "through"]


def tf_dtype(dtype: Any) -> tf.DType:
    """The TensorFlow dtype of an ONNX ``DataType`` number, a canonical name, or any framework's dtype.

    Raises:
        RefusedError: TensorFlow has no such type.
    """
    entry = dtype_of(dtype)
    if entry.tensorflow is None:
        raise RefusedError(f"TensorFlow has no type {entry.name}")
    return tf.dtypes.as_dtype(entry.tensorflow)


def np_dtype(tensor: Any) -> DType:
    """The table entry of a tensor's dtype."""
    return dtype_of(tensor.dtype)


def rank_of(tensor: Any) -> int:
    """The rank, which lowerings need while the graph is built.

    Raises:
        RefusedError: the rank is not known.
    """
    rank = tensor.shape.rank if isinstance(tensor, tf.Tensor) else np.ndim(tensor)
    if rank is None:
        raise RefusedError("the rank of an input is not known while the graph is built")
    return int(rank)


def static_shape(tensor: Any) -> list[int | None]:
    """The dims, None where one is not known while the graph is built."""
    rank_of(tensor)
    return list(tensor.shape.as_list() if isinstance(tensor, tf.Tensor) else np.shape(tensor))


def shape_of(tensor: Any, dtype: tf.DType = tf.int64) -> list[Any]:
    """The dims as a list: a Python int where it is known, a scalar tensor otherwise."""
    known = static_shape(tensor)
    if None not in known:
        return list(known)
    dynamic = tf.shape(tensor, out_type=dtype)
    return [dynamic[axis] if dim is None else dim for axis, dim in enumerate(known)]


def in_dtype(function: Callable[..., Any], dtype: tf.DType, *tensors: Any) -> Any:
    """Apply a function in another dtype and cast its result back to the dtype of the first tensor."""
    result = function(*(tf.cast(tensor, dtype) for tensor in tensors))
    return tf.cast(result, tensors[0].dtype)


_WIDER = {
    tf.bool: tf.int32,
    tf.int8: tf.int32,
    tf.int16: tf.int32,
    tf.uint8: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
    tf.uint64: tf.int64,
    tf.int32: tf.int64,
    tf.float16: tf.float32,
    tf.bfloat16: tf.float32,
}


def through(function: Callable[..., Any], missing: Sequence[tf.DType]) -> Callable[..., Any]:
    """A function that works in a wider type for those dtypes that TensorFlow has no kernel for.

    Args:
        function: a function of tensors of one dtype that gives one tensor of that dtype.
        missing: the dtypes without a kernel; integers wrap around in the cast back, as ONNX asks.
    """

    def widened(*tensors: Any) -> Any:
        dtype = tensors[0].dtype
        return in_dtype(function, _WIDER[dtype], *tensors) if dtype in missing else function(*tensors)

    return widened
