"""Channels-last layout across neighbouring nodes: transposes cancel, values stay."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from exporters.tensorflow._layout import channels_first, channels_last, lower_in_layout, transpose
from exporters.tensorflow._table import Lowering


def _entry(operator: str, function) -> Lowering:
    return Lowering("", operator, 1, function)


def _count_transposes(build, *shapes) -> int:
    """How many transposes the results need."""
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    function = tf.function(build, input_signature=specs, autograph=False).get_concrete_function()
    seen, todo = set(), [tensor.op for tensor in function.outputs]
    while todo:
        operation = todo.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            todo.extend(tensor.op for tensor in operation.inputs)
    return sum(function.graph.get_operation_by_name(name).type == "Transpose" for name in seen)


def test_inverse_transposes_cancel_and_keep_the_shape():
    def build(x):
        y = channels_last(channels_first(x))
        assert y.shape.as_list() == [None, 4, 5, 3]
        return tf.identity(y)

    assert _count_transposes(build, [None, 4, 5, 3]) == 0
    assert _count_transposes(lambda x: tf.identity(transpose(channels_first(x), [0, 2, 1, 3])), [None, 4, 5, 3]) == 2


@pytest.mark.parametrize(
    ("operand", "fits"),
    [((), True), ((3, 1, 1), True), ((1, 3, 1, 1), True), ((5,), True), ((3, 4, 5), False), ((2, 3, 4, 5), False)],
)
def test_elementwise_operators_move_inside_with_small_operands(operand, fits):
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype("float32")
    other = np.random.default_rng(1).normal(size=operand).astype("float32")
    expected = x.transpose(0, 3, 1, 2) - other

    def build(x):
        results = lower_in_layout(_entry("Sub", tf.subtract), [channels_first(x), tf.constant(other)], {})
        assert (results is not None) == fits
        return channels_last(results[0]) if fits else x

    if fits:
        np.testing.assert_allclose(tf.function(build)(x).numpy().transpose(0, 3, 1, 2), expected)
        assert _count_transposes(build, [2, 4, 5, 3]) == 0
    else:
        tf.function(build)(x)


def test_concatenation_of_channels_moves_its_axis():
    def concat(*inputs, axis):
        return tf.concat(inputs, axis)

    def build(a, b):
        joined = lower_in_layout(_entry("Concat", concat), [channels_first(a), channels_first(b)], {"axis": 1})[0]
        assert joined.shape.as_list() == [None, 7, 4, 5]
        return tf.identity(channels_last(joined))

    assert _count_transposes(build, [None, 4, 5, 3], [None, 4, 5, 4]) == 0


def test_other_operators_and_layouts_are_left_alone():
    def build(x):
        assert lower_in_layout(_entry("Softmax", tf.nn.softmax), [channels_first(x)], {}) is None
        assert lower_in_layout(_entry("Relu", tf.nn.relu), [x], {}) is None
        assert lower_in_layout(_entry("Relu", tf.nn.relu), [tf.transpose(x, [0, 2, 1, 3])], {}) is None
        return x

    tf.function(build, input_signature=[tf.TensorSpec([None, 4, 5, 3])], autograph=False).get_concrete_function()
