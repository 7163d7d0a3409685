"""Sequences and optionals at a model's boundary, where a signature takes and gives dense tensors only.

A sequence ``x`` of n tensors becomes two tensors: ``x.values``, the elements of all tensors one after the other (1-D), and
``x.shapes``, int64 ``[n, r]``, a row for each tensor's shape, filled up with -1 behind a shape of a lower rank than r. An
optional tensor is a sequence of length 0 or 1. An optional sequence has ``x.present`` beside the two, a bool scalar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._loops import run_loop
from exporters.tensorflow._sequences import Optional, StaticSequence, TensorSequence, as_sequence
from exporters.tensorflow._tensors import tf_dtype
from interop import TensorSpec

__all__ = ["decode", "encode", "part_specs"]


def part_specs(spec: TensorSpec) -> list[TensorSpec]:
    """The dense tensors that carry one input or output."""
    if spec.kind == "tensor":
        return [spec]
    parts = [
        TensorSpec(f"{spec.name}.values", spec.dtype, (None,)),
        TensorSpec(f"{spec.name}.shapes", "int64", (None, None)),
    ]
    return [*parts, TensorSpec(f"{spec.name}.present", "bool", ())] if spec.kind == "optional_sequence" else parts


def decode(spec: TensorSpec, parts: Mapping[str, Any]) -> Any:
    """The value of an input.

    Args:
        spec: the input.
        parts: its tensors by name.
    """
    if spec.kind == "tensor":
        return parts[spec.name]
    values, shapes = parts[f"{spec.name}.values"], parts[f"{spec.name}.shapes"]
    # Files declare element shapes of rank 0 where they mean any shape.
    rank = len(spec.shape) if spec.shape else None
    if spec.kind == "optional":
        return _decode_optional(spec, values, shapes, rank)
    sequence = _decode_sequence(spec, values, shapes, rank)
    return Optional(parts[f"{spec.name}.present"], sequence) if spec.kind == "optional_sequence" else sequence


def _decode_sequence(spec: TensorSpec, values: Any, shapes: Any, rank: int | None) -> Any:
    def step(iteration: Any, offset: Any, made: TensorSequence) -> tuple[Any, ...]:
        dims = _dims(shapes[iteration], rank)
        end = offset + tf.reduce_prod(dims)
        item = tf.reshape(values[offset:end], dims)
        item.set_shape(_known_dims(spec, rank))
        return None, [end, made.push(item)], []

    start = [tf.constant(0, tf.int64), TensorSequence.empty(tf_dtype(spec.dtype))]
    (_, made), _ = run_loop(step, start, limit=tf.shape(shapes, out_type=tf.int64)[0])
    return made


def _decode_optional(spec: TensorSpec, values: Any, shapes: Any, rank: int | None) -> Optional:
    present = tf.shape(shapes)[0] > 0
    # An empty optional's stand-in is a vector without elements, of the declared rank.
    none = tf.zeros([1 if rank is None else rank], tf.int64)
    value = tf.reshape(values, tf.cond(present, lambda: _dims(shapes[0], rank), lambda: none))
    value.set_shape(_known_dims(spec, rank))
    return Optional(present, value)


def _dims(row: Any, rank: int | None) -> Any:
    return tf.boolean_mask(row, row >= 0) if rank is None else row[:rank]


def _known_dims(spec: TensorSpec, rank: int | None) -> tf.TensorShape:
    if rank is None or spec.shape is None:
        return tf.TensorShape(None)
    return tf.TensorShape([None] * rank)


def encode(spec: TensorSpec, value: Any) -> dict[str, Any]:
    """The tensors of an output, by name."""
    if spec.kind == "tensor":
        return {spec.name: tf.identity(value.value if isinstance(value, Optional) else value)}
    held = value.value if isinstance(value, Optional) else value
    present = value.present if isinstance(value, Optional) else tf.constant(value is not None)
    if spec.kind == "optional":
        values, shapes = _encode_optional(spec, held, present)
    else:
        empty = StaticSequence([], tf_dtype(spec.dtype))
        values, shapes = _encode_sequence(empty if held is None else as_sequence(held))
    parts = {f"{spec.name}.values": values, f"{spec.name}.shapes": shapes}
    return parts | {f"{spec.name}.present": present} if spec.kind == "optional_sequence" else parts


def _encode_optional(spec: TensorSpec, held: Any, present: Any) -> tuple[Any, Any]:
    if held is None:
        return _encode_sequence(StaticSequence([], tf_dtype(spec.dtype)))
    count = tf.cast(present, tf.int32)
    values = tf.reshape(held, [-1])
    return values[: count * tf.size(values)], tf.shape(held, out_type=tf.int64)[tf.newaxis][:count]


def _encode_sequence(sequence: StaticSequence | TensorSequence) -> tuple[Any, Any]:
    if not isinstance(sequence, StaticSequence):
        return _encode_tensors(sequence)
    if not sequence:
        return tf.constant([], sequence.dtype, [0]), tf.zeros([0, 0], tf.int64)
    values = tf.concat([tf.reshape(item, [-1]) for item in sequence], 0)
    rows = [tf.shape(item, out_type=tf.int64) for item in sequence]
    return values, _table(tf.concat(rows, 0), tf.stack([tf.size(row, out_type=tf.int64) for row in rows]))


def _encode_tensors(sequence: TensorSequence) -> tuple[Any, Any]:
    def step(iteration: Any, values: TensorSequence, dims: TensorSequence) -> tuple[Any, ...]:
        item = sequence.at(iteration)
        dim = tf.shape(item, out_type=tf.int64)
        return None, [values.push(tf.reshape(item, [-1])), dims.push(dim)], [tf.size(dim, out_type=tf.int64)]

    start = [TensorSequence.empty(sequence.dtype), TensorSequence.empty(tf.int64)]
    count = tf.cast(sequence.length(), tf.int64)
    (values, dims), (ranks,) = run_loop(step, start, limit=count, collected=[tf.int64])
    return _joined(values), _table(_joined(dims), ranks)


def _joined(sequence: TensorSequence) -> Any:
    joined, _ = tf.raw_ops.TensorListConcatV2(
        input_handle=sequence.handle,
        element_shape=np.array([-1], np.int32),
        leading_dims=np.zeros([0], np.int64),
        element_dtype=sequence.dtype,
    )
    return joined


def _table(dims: Any, ranks: Any) -> Any:
    """The shapes as the rows of a table."""
    return tf.RaggedTensor.from_row_lengths(dims, ranks, validate=False).to_tensor(default_value=-1)
