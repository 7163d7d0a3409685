"""ONNX sequences and optionals in a TensorFlow graph.

A sequence whose length is known while the graph is built is a ``StaticSequence``, a Python list of tensors that costs
nothing. Any other is a ``TensorSequence``, TensorFlow's own list of tensors of any shapes, which also crosses branches and
loops. An optional that is known to hold a value is that value, an empty one is ``None``; where only the running graph knows,
it is an ``Optional``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["Optional", "StaticSequence", "TensorSequence", "as_sequence", "as_tensors", "length_of", "merge_shapes"]


class StaticSequence(list[Any]):
    """Tensors of one dtype, as many as the graph's builder knows.

    Args:
        items: tensors.
        dtype: their ``tf.DType``, which an empty sequence has too.
    """

    def __init__(self, items: Iterable[Any], dtype: tf.DType) -> None:
        super().__init__(items)
        self.dtype = dtype

    @property
    def shape(self) -> tf.TensorShape | None:
        """What the shapes of all tensors have in common; None where there is no tensor."""
        return merge_shapes([item.shape for item in self])


@dataclass(frozen=True, eq=False)
class TensorSequence:
    """Tensors of one dtype, as many as the running graph puts in.

    Attributes:
        handle: the list, a scalar of ``tf.variant``.
        dtype: dtype of the tensors.
        shape: what the shapes of all tensors have in common; None as long as no tensor was put in.
    """

    handle: Any
    dtype: tf.DType
    shape: tf.TensorShape | None

    @classmethod
    def empty(cls, dtype: tf.DType) -> TensorSequence:
        """A sequence of length 0."""
        return cls(tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=dtype), dtype, None)

    def length(self) -> Any:
        """The number of tensors, an int32 scalar."""
        return tf.raw_ops.TensorListLength(input_handle=self.handle)

    def at(self, position: Any) -> Any:
        """The tensor at a position that is not negative."""
        item = tf.raw_ops.TensorListGetItem(
            input_handle=self.handle,
            index=tf.cast(position, tf.int32),
            element_shape=_shape_tensor(self.shape),
            element_dtype=self.dtype,
        )
        item.set_shape(self.shape)
        return item

    def push(self, tensor: Any) -> TensorSequence:
        """This sequence with one more tensor at its end."""
        handle = tf.raw_ops.TensorListPushBack(input_handle=self.handle, tensor=tensor)
        return TensorSequence(handle, self.dtype, merge_shapes([self.shape, tensor.shape]))

    def part(self, start: Any, stop: Any, onto: TensorSequence) -> TensorSequence:
        """The tensors from ``start`` to before ``stop``, put at the end of another sequence."""
        shape = merge_shapes([self.shape, onto.shape])

        def body(position: Any, handle: Any) -> tuple[Any, Any]:
            return position + 1, tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=self.at(position))

        first = tf.cast(start, tf.int32)
        _, handle = tf.while_loop(lambda position, _: position < stop, body, (first, onto.handle))
        return TensorSequence(handle, self.dtype, shape)


@dataclass(frozen=True, eq=False)
class Optional:
    """A value that the running graph may lack.

    Attributes:
        present: bool scalar.
        value: a tensor or a sequence; a stand-in while it is not present.
    """

    present: Any
    value: Any


def merge_shapes(shapes: Iterable[tf.TensorShape | None]) -> tf.TensorShape | None:
    """What shapes have in common; None stands for no shape yet."""
    found = [shape for shape in shapes if shape is not None]
    if not found:
        return None
    merged = found[0]
    for shape in found[1:]:
        merged = merged.most_specific_compatible_shape(shape)
    return merged


def as_sequence(value: Any) -> StaticSequence | TensorSequence:
    """A sequence, also out of an optional that holds one."""
    if isinstance(value, Optional):
        value = value.value
    if not isinstance(value, StaticSequence | TensorSequence):
        raise TypeError(f"a sequence was expected, the input is {type(value).__name__}")
    return value


def as_tensors(value: Any) -> TensorSequence:
    """A sequence as TensorFlow's own list."""
    sequence = as_sequence(value)
    if isinstance(sequence, TensorSequence):
        return sequence
    made = TensorSequence.empty(sequence.dtype)
    for item in sequence:
        made = made.push(item)
    return made


def length_of(value: Any) -> Any:
    """The number of tensors: an int where it is known, otherwise an int32 scalar."""
    sequence = as_sequence(value)
    return len(sequence) if isinstance(sequence, StaticSequence) else sequence.length()


def _shape_tensor(shape: tf.TensorShape | None) -> Any:
    """A shape as TensorFlow's list operators take it, -1 for what is not known."""
    if shape is None or shape.rank is None:
        return np.int32(-1)
    return np.array([-1 if dim is None else dim for dim in shape.as_list()], np.int32)
