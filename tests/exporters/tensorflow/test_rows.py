"""Products of rows with one matrix: values, shapes, and what TensorFlow's graph is made of."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from tests.exporters.tensorflow._graphs import check_model, lower_text, parse

LINEAR = """g (float[{dims}, 3] x, float[5] bias) => (float[{dims}, 5] y)
<float[5, 3] w = {{1, -2, 3, -4, 5, -6, 7, -8, 9, -1, 2, -3, 4, -5, 6}}> {{
    turned = Transpose<perm = [1, 0]>(w)
    product = MatMul(x, turned)
    sum = Add(product, bias)
    y = Relu(sum)
}}"""


@pytest.mark.parametrize(
    ("dims", "shapes"),
    [
        ("n, 4", [(2, 4), (0, 4), (1, 4)]),
        ("n, t", [(2, 4), (3, 0), (1, 1)]),
        ("2, n, 2", [(2, 3, 2), (2, 0, 2)]),
        ("2, 3", [(2, 3)]),
        ("n, 0", [(2, 0)]),
    ],
)
def test_rows_keep_their_values_and_shapes(dims, shapes):
    rng = np.random.default_rng(0)
    calls = [
        [rng.normal(size=(*shape, 3)).astype(np.float32), rng.normal(size=5).astype(np.float32)] for shape in shapes
    ]
    check_model(parse(LINEAR.format(dims=dims)), *calls)


def _operations(module) -> Counter[str]:
    function = module.serving_signature()
    seen, todo = set(), [tensor.op for tensor in function.outputs]
    while todo:
        operation = todo.pop()
        if operation not in seen:
            seen.add(operation)
            todo.extend(tensor.op for tensor in operation.inputs)
    return Counter(operation.type for operation in seen)


def test_bias_and_activation_follow_a_plain_product():
    found = _operations(lower_text(LINEAR.format(dims="n, 4")))
    assert found["MatMul"] == 1
    assert found["BatchMatMulV2"] == found["Transpose"] == 0
    assert found["Reshape"] == 2


def test_the_next_product_takes_the_rows_as_they_are():
    text = """g (float[n, 4, 3] x) => (float[n, 4, 3] y)
    <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> { a = MatMul(x, w) b = Tanh(a) y = MatMul(b, w) }"""
    assert _operations(lower_text(text))["Reshape"] == 2
    check_model(parse(text), [np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32) / 9])


@pytest.mark.parametrize("shape", ["4, 5", "n, 4, 5", "4, 1"])
def test_an_operand_that_is_no_vector_is_added_outside(shape):
    text = f"""g (float[n, 4, 3] x, float[{shape}] other) => (float[n, 4, 5] y)
    <float[3, 5] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6}}> {{ a = MatMul(x, w) y = Add(other, a) }}"""
    rng = np.random.default_rng(0)
    sizes = [2 if dim == "n" else int(dim) for dim in shape.split(", ")]
    check_model(parse(text), [rng.normal(size=(2, 4, 3)).astype(np.float32), rng.normal(size=sizes).astype(np.float32)])


def test_a_vector_that_widens_the_rows_is_added_outside():
    text = """g (float[n, 4, 3] x, float[5] other) => (float[n, 4, 5] y)
    <float[3, 1] w = {1, 2, 3}> { a = MatMul(x, w) y = Add(a, other) }"""
    rng = np.random.default_rng(0)
    check_model(parse(text), [rng.normal(size=(2, 4, 3)).astype(np.float32), rng.normal(size=5).astype(np.float32)])


def test_gradients_flow_through_rows():
    module = lower_text(LINEAR.format(dims="n, 4"))
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32))
    bias = tf.ones([5])
    with tf.GradientTape() as tape:
        tape.watch(x)
        (y,) = module(x, bias).values()
    w = np.array([[1, -2, 3], [-4, 5, -6], [7, -8, 9], [-1, 2, -3], [4, -5, 6]], np.float32)
    positive = (x.numpy() @ w.T + 1 > 0).astype(np.float32)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), positive @ w, rtol=1e-5)
