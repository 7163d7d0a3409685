"""Sequences: made, changed, read, split and put together again."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._loops import run_loop
from exporters.tensorflow._sequences import StaticSequence, TensorSequence, as_sequence, as_tensors, length_of
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of, tf_dtype

# Longer ones are made in a loop: a graph with a node for each item would be larger than it is fast.
MOST_STATIC_ITEMS = 128


@lower("SequenceEmpty")
def sequence_empty(*, dtype=None):
    return StaticSequence([], tf.float32 if dtype is None else tf_dtype(dtype))


@lower("SequenceConstruct")
def sequence_construct(*inputs):
    return StaticSequence(inputs, inputs[0].dtype)


@lower("SequenceLength")
def sequence_length(input_sequence):
    return tf.cast(length_of(input_sequence), tf.int64)


@lower("SequenceAt", static=("position",))
def sequence_at(input_sequence, position):
    sequence = as_sequence(input_sequence)
    if isinstance(sequence, StaticSequence) and _is_known(position):
        return sequence[int(position)]
    tensors = as_tensors(sequence)
    return tensors.at(_from_start(position, tensors.length()))


@lower("SequenceInsert", static=("position",))
def sequence_insert(input_sequence, tensor, position=None):
    sequence = as_sequence(input_sequence)
    if isinstance(sequence, StaticSequence) and (position is None or _is_known(position)):
        place = len(sequence) if position is None else int(position)
        place += len(sequence) if place < 0 else 0
        return StaticSequence([*sequence[:place], tensor, *sequence[place:]], tensor.dtype)
    tensors = as_tensors(sequence)
    if position is None:
        return tensors.push(tensor)
    length = tensors.length()
    place = _from_start(position, length)
    before = tensors.part(0, place, TensorSequence.empty(tensors.dtype))
    return tensors.part(place, length, before.push(tensor))


@lower("SequenceErase", static=("position",))
def sequence_erase(input_sequence, position=None):
    sequence = as_sequence(input_sequence)
    position = np.int64(-1) if position is None else position
    if isinstance(sequence, StaticSequence) and _is_known(position):
        erased = range(len(sequence))[int(position)]
        return StaticSequence([item for i, item in enumerate(sequence) if i != erased], sequence.dtype)
    tensors = as_tensors(sequence)
    length = tensors.length()
    place = _from_start(position, length)
    before = tensors.part(0, place, TensorSequence.empty(tensors.dtype))
    return tensors.part(place + 1, length, before)


@lower("ConcatFromSequence")
def concat_from_sequence(input_sequence, *, axis, new_axis=0):
    sequence = as_sequence(input_sequence)
    if isinstance(sequence, StaticSequence):
        return tf.stack(list(sequence), axis) if new_axis else tf.concat(list(sequence), axis)
    if sequence.shape is None or sequence.shape.rank is None:
        raise RefusedError("the rank of the sequence's tensors is not known while the graph is built")
    rank = sequence.shape.rank
    axis %= rank + 1 if new_axis else rank
    if new_axis:
        places = [i for i in range(rank + 1) if i != axis]
        return _moved(_stack(sequence), axis, np.argsort([axis, *places]))
    order = [axis, *(i for i in range(rank) if i != axis)]
    return _moved(_concat(sequence if axis == 0 else _transposed(sequence, order)), axis, np.argsort(order))


def _moved(tensor, axis, order):
    return tensor if axis == 0 else tf.transpose(tensor, order)


def _stack(sequence):
    return tf.raw_ops.TensorListStack(
        input_handle=sequence.handle, element_shape=_dims(sequence.shape), element_dtype=sequence.dtype
    )


def _concat(sequence):
    shape = tf.TensorShape([None]).concatenate(sequence.shape[1:])
    joined, _ = tf.raw_ops.TensorListConcatV2(
        input_handle=sequence.handle,
        element_shape=_dims(shape),
        leading_dims=np.zeros([0], np.int64),
        element_dtype=sequence.dtype,
    )
    joined.set_shape(shape)
    return joined


def _dims(shape):
    return np.array([-1 if dim is None else dim for dim in shape.as_list()], np.int32)


def _transposed(sequence, order):
    def step(iteration, made):
        return None, [made.push(tf.transpose(sequence.at(iteration), order))], []

    empty = TensorSequence.empty(sequence.dtype)
    (made,), _ = run_loop(step, [empty], limit=tf.cast(sequence.length(), tf.int64))
    return made


@lower("SplitToSequence", static=("split",))
def split_to_sequence(input, split=None, *, axis=0, keepdims=1):
    axis %= rank_of(input)
    size = shape_of(input)[axis]
    sizes = _part_sizes(size, np.int64(1) if split is None else split)
    if isinstance(sizes, list):
        parts = list(tf.split(input, sizes, axis)) if sizes else []
    elif sizes.shape[0] is not None and sizes.shape[0] <= MOST_STATIC_ITEMS:
        parts = tf.split(input, sizes, axis, num=sizes.shape[0])
    else:
        return _split_in_loop(input, sizes, axis, split is None and not keepdims)
    if split is None and not keepdims:
        parts = [tf.squeeze(part, [axis]) for part in parts]
    return StaticSequence(parts, input.dtype)


def _part_sizes(size, split):
    """The sizes of the parts: a list where all are known, otherwise a vector. A scalar split is the size of each part."""
    if not (_is_known(split) and isinstance(size, int)):
        split = tf.convert_to_tensor(split)
        if split.shape.rank == 1:
            return split
        return _even_sizes(tf.cast(size, tf.int64), tf.cast(tf.reshape(split, []), tf.int64))
    if np.ndim(split) == 1:
        return [int(part) for part in split]
    whole, rest = divmod(size, int(split))
    sizes = [int(split)] * whole + [rest] * (rest > 0)
    return sizes if len(sizes) <= MOST_STATIC_ITEMS else _even_sizes(tf.constant(size, tf.int64), int(split))


def _even_sizes(size, part):
    count = (size + part - 1) // part
    return tf.minimum(part, size - part * tf.range(count))


def _split_in_loop(tensor, sizes, axis, squeeze):
    rank = rank_of(tensor)
    ends = tf.cumsum(tf.cast(sizes, tf.int32))
    shape = tensor.shape.as_list()

    def step(iteration, made):
        size = tf.cast(sizes[iteration], tf.int32)
        begin = tf.one_hot(axis, rank, on_value=ends[iteration] - size, off_value=0, dtype=tf.int32)
        wanted = tf.one_hot(axis, rank, on_value=size, off_value=-1, dtype=tf.int32)
        part = tf.slice(tensor, begin, wanted)
        part.set_shape([*shape[:axis], None, *shape[axis + 1 :]])
        return None, [made.push(tf.squeeze(part, [axis]) if squeeze else part)], []

    empty = TensorSequence.empty(tensor.dtype)
    (made,), _ = run_loop(step, [empty], limit=tf.shape(sizes, out_type=tf.int64)[0])
    return made


@lower("SequenceMap")
def sequence_map(input_sequence, *additional_inputs, body):
    inputs = [as_sequence(input_sequence), *additional_inputs]
    dtypes = [tf.float32 if value.dtype is None else tf_dtype(int(value.dtype)) for value in body.graph.outputs]
    if isinstance(inputs[0], StaticSequence) and len(inputs[0]) <= MOST_STATIC_ITEMS:
        results = [body(*(_item(value, i) for value in inputs)) for i in range(len(inputs[0]))]
        return tuple(StaticSequence([row[i] for row in results], dtype) for i, dtype in enumerate(dtypes))

    def step(iteration, *made):
        values = body(*(_item(value, iteration) for value in inputs))
        return None, [sequence.push(value) for sequence, value in zip(made, values)], []

    empty = [TensorSequence.empty(dtype) for dtype in dtypes]
    made, _ = run_loop(step, empty, limit=tf.cast(length_of(inputs[0]), tf.int64))
    return tuple(made)


def _item(value, position):
    """What the body gets: an item of a sequence, or the whole of a tensor."""
    if isinstance(value, tf.Tensor):
        return value
    sequence = as_sequence(value)
    if isinstance(sequence, StaticSequence) and isinstance(position, int):
        return sequence[position]
    return as_tensors(sequence).at(position)


def _is_known(value):
    return isinstance(value, (np.ndarray, np.generic))


def _from_start(position, length):
    """A position counted from the start; negative ones count from the end."""
    position = tf.cast(tf.reshape(position, []), tf.int32)
    return tf.where(position < 0, position + length, position)
