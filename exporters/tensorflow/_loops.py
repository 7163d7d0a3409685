"""The loop that Loop and Scan share: states of any form, and outputs that are collected and stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._forms import Form, form_of, join_forms, pack_all, shapes_of, unpack_all
from exporters.tensorflow._sequences import merge_shapes

__all__ = ["LoopStep", "run_loop"]

LoopStep = Callable[..., tuple[Any, Sequence[Any], Sequence[Any]]]
"""``step(iteration, *states) -> (whether to go on, or None; states; tensors to collect)``."""

# TensorFlow counts iterations in int32.
MOST_ITERATIONS = 2**31 - 1


class _RelaxedError(Exception):
    """The body gives its states other forms than it takes them in: the loop starts again with forms that serve both."""

    def __init__(self, forms: list[Form], dtypes: list[tf.DType]) -> None:
        super().__init__("the forms of a loop's states changed")
        self.forms = forms
        self.dtypes = dtypes


def run_loop(
    step: LoopStep,
    initial: Sequence[Any],
    *,
    limit: Any = None,
    going: Any = None,
    collected: Sequence[tf.DType | None] = (),
) -> tuple[list[Any], list[Any]]:
    """Run a step until its condition ends or a number of iterations is reached.

    Args:
        step: see ``LoopStep``; the iteration is an int64 scalar.
        initial: the first states: tensors, sequences or optionals.
        limit: number of iterations: an int, an int64 scalar, or None.
        going: whether the first iteration happens, a bool scalar; None where no condition counts.
        collected: dtype of each tensor that is collected, None where the model does not declare it.

    Returns:
        The last states, and the collected tensors, each stacked along a new first axis.
    """
    forms = [form_of(value) for value in initial]
    dtypes = [tf.float32 if dtype is None else dtype for dtype in collected]
    while True:  # each round gives up a dim, a rank, a length or a presence, so it ends
        try:
            return _attempt(_Attempt(step, limit, going, forms, dtypes), initial)
        except _RelaxedError as relaxed:
            forms, dtypes = relaxed.forms, relaxed.dtypes


class _Attempt:
    """One try to build the loop with given forms of its states."""

    def __init__(self, step: LoopStep, limit: Any, going: Any, forms: list[Form], dtypes: list[tf.DType]) -> None:
        self.step = step
        self.limit = limit
        self.going = going
        self.forms = forms
        self.dtypes = dtypes
        self.shapes: list[tf.TensorShape | None] = [None] * len(dtypes)

    def condition(self, iteration: Any, going: Any, *_: Any) -> Any:
        below = None if self.maximum is not None or self.limit is None else iteration < self.limit
        if below is None:
            return going
        return below if self.going is None else tf.logical_and(going, below)

    @property
    def maximum(self) -> int | None:
        """The limit where it is known and a count that TensorFlow takes."""
        return int(self.limit) if isinstance(self.limit, int) and self.limit <= MOST_ITERATIONS else None

    def body(self, iteration: Any, going: Any, lists: Any, tensors: Any) -> tuple[Any, ...]:
        goes_on, states, items = self.step(iteration, *unpack_all(tensors, self.forms))
        found = [join_forms(form, form_of(state)) for form, state in zip(self.forms, states)]
        dtypes = [item.dtype for item in items]
        if found != self.forms or dtypes != self.dtypes:
            raise _RelaxedError(found, dtypes)
        self.shapes = [merge_shapes([shape, item.shape]) for shape, item in zip(self.shapes, items)]
        lists = [tf.raw_ops.TensorListPushBack(input_handle=h, tensor=item) for h, item in zip(lists, items)]
        going = going if self.going is None else tf.reshape(goes_on, [])
        return iteration + 1, going, lists, pack_all(states, self.forms)


def _attempt(attempt: _Attempt, initial: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    lists = [
        tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=dtype)
        for dtype in attempt.dtypes
    ]
    going = tf.constant(True) if attempt.going is None else tf.reshape(attempt.going, [])
    scalar = tf.TensorShape([])
    count, _, lists, tensors = tf.while_loop(
        attempt.condition,
        attempt.body,
        (tf.constant(0, tf.int64), going, lists, pack_all(initial, attempt.forms)),
        shape_invariants=(scalar, scalar, [scalar] * len(lists), shapes_of(attempt.forms)),
        maximum_iterations=attempt.maximum,
    )
    exact = attempt.maximum if attempt.going is None else None
    stacks = [_stack(*entry, count, exact) for entry in zip(lists, attempt.dtypes, attempt.shapes)]
    return unpack_all(tensors, attempt.forms), stacks


def _stack(handle: Any, dtype: tf.DType, shape: tf.TensorShape | None, count: Any, exact: int | None) -> Any:
    """Stack collected tensors; of none at all the result is empty and its free dims are 0."""
    wanted: Any = np.int32(-1)
    if shape is not None and shape.rank is not None:
        dims = shape.as_list()
        some, none = (np.array([free if dim is None else dim for dim in dims], np.int32) for free in (-1, 0))
        wanted = some if None not in dims else tf.where(count > 0, some, none)
    stacked = tf.raw_ops.TensorListStack(
        input_handle=handle, element_shape=wanted, element_dtype=dtype, num_elements=-1 if exact is None else exact
    )
    if shape is not None:
        stacked.set_shape(tf.TensorShape([exact]).concatenate(shape))
    return stacked
