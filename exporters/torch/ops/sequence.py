"""Sequences, which are Python lists."""

from __future__ import annotations

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._values import is_string, number, numbers


@lower("SequenceConstruct")
def sequence_construct(*inputs):
    return list(inputs)


@lower("SequenceEmpty")
def sequence_empty(*, dtype=None):
    return []


@lower("SequenceLength")
def sequence_length(input_sequence):
    return torch.tensor(len(input_sequence))


@lower("SequenceAt", static=("position",))
def sequence_at(input_sequence, position):
    return input_sequence[int(number(position))]


@lower("SequenceInsert", static=("position",))
def sequence_insert(input_sequence, tensor, position=None):
    place = len(input_sequence) if position is None else int(number(position))
    made = list(input_sequence)
    made.insert(place, tensor)
    return made


@lower("SequenceErase", static=("position",))
def sequence_erase(input_sequence, position=None):
    made = list(input_sequence)
    del made[-1 if position is None else int(number(position))]
    return made


@lower("ConcatFromSequence")
def concat_from_sequence(input_sequence, *, axis, new_axis=0):
    if input_sequence and is_string(input_sequence[0]):
        return (np.stack if new_axis else np.concatenate)(input_sequence, axis)
    return (torch.stack if new_axis else torch.cat)(list(input_sequence), axis)


@lower("SplitToSequence", static=("split",))
def split_to_sequence(input, split=None, *, axis=0, keepdims=1):
    if split is None:
        parts = list(torch.split(input, 1, axis))
        return parts if keepdims else [part.squeeze(axis) for part in parts]
    sizes = numbers(split)
    is_scalar = not isinstance(split, list) and split.ndim == 0
    return list(torch.split(input, sizes[0] if is_scalar else sizes, axis))


@lower("SequenceMap")
def sequence_map(input_sequence, *additional_inputs, body):
    rows = []
    for index, item in enumerate(input_sequence):
        others = [value[index] if isinstance(value, list) else value for value in additional_inputs]
        rows.append(body(item, *others))
    return tuple([row[i] for row in rows] for i in range(len(body.dtypes)))
