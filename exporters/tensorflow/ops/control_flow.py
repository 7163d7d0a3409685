"""If, Loop and Scan."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._forms import form_of, is_tensor, join_forms, pack_all, unpack_all
from exporters.tensorflow._loops import run_loop
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of, shape_of, tf_dtype


class _JoinedError(Exception):
    """The branches of an If give values of different forms; they are built again, packed in forms that serve both."""

    def __init__(self, forms):
        super().__init__("the forms of two branches differ")
        self.forms = forms


@lower("If", static=("cond",))
def if_(cond, *, then_branch, else_branch):
    if isinstance(cond, (np.ndarray, np.generic)):
        return then_branch() if cond.item() else else_branch()
    cond = tf.reshape(cond, [])
    try:
        return _branch(cond, then_branch, else_branch, None)
    except _JoinedError as joined:
        return _branch(cond, then_branch, else_branch, joined.forms)


def _branch(cond, then_branch, else_branch, wanted):
    found = []

    def packed(branch):
        values = branch()
        forms = [form_of(value) for value in values]
        found.append(forms)
        return pack_all(values, wanted or forms)

    def packed_else():
        tensors = packed(else_branch)
        joined = [join_forms(one, other) for one, other in zip(*found)]
        plain = all(map(is_tensor, joined))  # shapes that differ are TensorFlow's own business
        if wanted is None and not plain and any(forms != joined for forms in found):
            raise _JoinedError(joined)
        found[:] = [joined]
        return tensors

    tensors = tf.cond(cond, lambda: packed(then_branch), packed_else)
    return tuple(unpack_all(tensors, wanted or found[0]))


@lower("Loop", static=("M", "cond"))
def loop(M=None, cond=None, *v_initial, body):
    count = len(body.graph.inputs) - 2
    initial = [*v_initial, *[None] * (count - len(v_initial))]  # optionals without a value at the end were left out
    collected = [_declared_dtype(value) for value in body.graph.outputs[count + 1 :]]

    def step(iteration, *states):
        # Whatever the condition is computed from, it holds where the body runs.
        goes_on, *values = body(iteration, np.array(True), *states)
        return goes_on, values[:count], values[count:]

    states, stacks = run_loop(step, initial, limit=_limit(M), going=cond, collected=collected)
    return (*states, *stacks)


def _limit(M):
    if M is None:
        return None
    return int(M.item()) if isinstance(M, (np.ndarray, np.generic)) else tf.reshape(M, [])


def _declared_dtype(value):
    return None if value.dtype is None else tf_dtype(int(value.dtype))


@lower("Scan", since=9)
def scan(
    *initial_state_and_scan_inputs,
    body,
    num_scan_inputs,
    scan_input_axes=None,
    scan_input_directions=None,
    scan_output_axes=None,
    scan_output_directions=None,
):
    count = len(initial_state_and_scan_inputs) - num_scan_inputs
    initial, given = initial_state_and_scan_inputs[:count], initial_state_and_scan_inputs[count:]
    axes = scan_input_axes or [0] * num_scan_inputs
    directions = scan_input_directions or [0] * num_scan_inputs
    sources = [_axis_first(source, axis) for source, axis in zip(given, axes)]
    length = next((dim for dim in (shape_of(x)[0] for x in sources) if isinstance(dim, int)), shape_of(sources[0])[0])
    arrays = [_array_of(source) for source in sources]

    def step(iteration, *states):
        places = [length - 1 - iteration if backwards else iteration for backwards in directions]
        items = [array.read(tf.cast(place, tf.int32)) for array, place in zip(arrays, places)]
        values = body(*states, *items)
        return None, values[:count], values[count:]

    collected = [_declared_dtype(value) for value in body.graph.outputs[count:]]
    states, stacks = run_loop(step, initial, limit=length, collected=collected)
    axes = scan_output_axes or [0] * len(stacks)
    directions = scan_output_directions or [0] * len(stacks)
    stacks = [tf.reverse(stack, [0]) if backwards else stack for stack, backwards in zip(stacks, directions)]
    return (*states, *(_axis_back(stack, axis) for stack, axis in zip(stacks, axes)))


def _array_of(source):
    size = shape_of(source, tf.int32)[0]
    return tf.TensorArray(source.dtype, size=size, element_shape=source.shape[1:]).unstack(source)


def _axis_first(tensor, axis):
    rank = rank_of(tensor)
    axis %= rank
    return tensor if axis == 0 else tf.transpose(tensor, [axis, *(i for i in range(rank) if i != axis)])


def _axis_back(tensor, axis):
    if axis == 0:
        return tensor
    order = list(range(1, rank_of(tensor)))
    order.insert(axis % rank_of(tensor), 0)
    return tf.transpose(tensor, order)
