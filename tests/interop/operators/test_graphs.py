"""Inside torch.compile, torch.export, tf.function and jax.jit."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import interop
from interop.operators import OperatorError
from interop.operators._call import call_of
from tests.interop.operators.bodies import WAVES, arrays, wave_numpy

BODIES = list(WAVES)


class Wave(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        result = WAVES[self.body](x.sin(), y, 3.0, sum_axis=1)
        return result["wave"].square(), result["more"][0], result["sign"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("body", BODIES)
def test_compiled_without_a_break(body, backend):
    torch._dynamo.reset()
    model = Wave(body)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for size in (2, 5):  # the second makes torch's sizes symbols
        inputs = [torch.tensor(value, requires_grad=True) for value in arrays(size, 3)]
        found = compiled(*inputs)
        slopes = torch.autograd.grad(found[0].sum() + found[1].sum(), inputs)
        expected = model(*inputs)
        for left, right in zip(found, expected):
            torch.testing.assert_close(left, right)
        for left, right in zip(slopes, torch.autograd.grad(expected[0].sum() + expected[1].sum(), inputs)):
            torch.testing.assert_close(left, right)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("body", BODIES)
def test_exported_with_symbolic_sizes(body, strict):
    example = tuple(torch.tensor(value) for value in arrays(2, 3))
    batch = torch.export.Dim("batch")
    program = torch.export.export(Wave(body), example, dynamic_shapes={"x": {0: batch}, "y": {0: batch}}, strict=strict)
    targets = {str(node.target) for node in program.graph.nodes}
    assert ("tensor_interop.wave_tensorflow.default" in targets) == (body == "tensorflow")
    assert any("aten.exp" in target for target in targets) == (body == "torch")  # a torch body is traced through
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    inputs = tuple(torch.tensor(value) for value in arrays(7, 3))
    for found, expected in zip(torch.export.load(file).module()(*inputs), Wave(body)(*inputs)):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("body", ["tensorflow", "jax"])
def test_torchs_own_check_of_operators(body):
    """Schema, autograd registration, fake results and AOT dispatch, by ``torch.library.opcheck``."""
    inputs = [torch.tensor(value, requires_grad=True) for value in arrays(2, 3)]
    text = call_of(("tuple", (), (("tuple", (), (0, 1)), ("dict", (), ())))).text
    found = torch.library.opcheck(getattr(torch.ops.tensor_interop, f"wave_{body}").default, (inputs, text))
    assert set(found.values()) == {"SUCCESS"}


def test_a_size_as_an_argument_becomes_part_of_an_exported_program():
    @interop.operator("tensorflow", name="scaled_by")
    def scaled_by(x, number):
        return x * float(number)

    class Model(torch.nn.Module):
        def forward(self, x):
            return scaled_by(x, x.shape[1])

    program = torch.export.export(Model(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    assert program.module()(torch.ones(5, 3)).unique().tolist() == [3]


RESHAPES = {
    "flat": lambda x: tf.reshape(x, [-1]),
    "joined": lambda x: tf.concat([x, x, x[:1]], 0),
    "turned": lambda x: tf.transpose(x),
    "padded": lambda x: tf.pad(x, [[2, 1], [0, 0]]),
}


@pytest.mark.parametrize("name", list(RESHAPES))
def test_sizes_of_results_follow_those_of_inputs(name):
    operator = interop.operator("tensorflow", name=f"reshape_{name}")(RESHAPES[name])

    class Model(torch.nn.Module):
        def forward(self, x):
            return operator(x) * 2

    program = torch.export.export(Model(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    for size in (1, 2, 9):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program.module()(x), operator(x) * 2)
    (value,) = [node.meta["val"] for node in program.graph.nodes if node.name == "getitem"]
    symbol = next(iter(program.graph.nodes)).meta["val"].shape[0]
    expected = {"flat": [3 * symbol], "joined": [2 * symbol + 1, 3], "turned": [3, symbol], "padded": [symbol + 3, 3]}[
        name
    ]
    assert [str(size) for size in value.shape] == [str(size) for size in expected]


def test_a_size_that_no_linear_function_gives_stays_unknown():
    operator = interop.operator("tensorflow", name="every_second")(lambda x: x[::2])

    class Model(torch.nn.Module):
        def forward(self, x):
            return operator(x)

    program = torch.export.export(Model(), (torch.ones(4, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    for size in (2, 5, 9):
        assert program.module()(torch.ones(size, 3)).shape == ((size + 1) // 2, 3)


def test_static_shapes_in_tf_function():
    found = {}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float64)] * 2)
    def call(x, y):
        result = WAVES["torch"](x, y)
        found.update(wave=result["wave"].shape, more=result["more"][0].shape, sign=result["sign"].dtype)
        return result["wave"]

    call(*map(tf.constant, arrays(2, 3)))
    assert found["wave"].as_list() == [None, 3] and found["more"].as_list() == [None] and found["sign"] == tf.int64


def test_in_jit_and_vmap():
    x, y = arrays(4, 3)
    found = jax.jit(jax.vmap(lambda x, y: WAVES["torch"](x, y)["wave"]))(x, y)
    np.testing.assert_allclose(found, np.sin(x) * y * 2, rtol=1e-12)


def test_large_arrays_in_jit():
    x = jnp.ones((512, 1024))
    found = jax.jit(lambda x: WAVES["tensorflow"](jnp.sin(x), x)["wave"].sum())(x)
    np.testing.assert_allclose(found, 2 * np.sin(np.sin(1.0)) * x.size, rtol=1e-9)


def test_numpy_in_a_graph_needs_shapes_and_says_so():
    x, y = arrays(2, 3)
    for call in (
        lambda: tf.function(wave_numpy)(tf.constant(x), tf.constant(y)),
        lambda: jax.jit(lambda x, y: wave_numpy(x, y)["wave"])(x, y),
    ):
        with pytest.raises(OperatorError, match="shape=lambda x"):
            call()


@interop.operator("numpy", shape=lambda x, k: (x, interop.TensorSpec("", "int64", (x.shape[0], k))))
def ranked(x, k):
    return x * 2, np.argsort(-x, -1)[:, :k]


def test_numpy_with_shapes_works_in_every_graph():
    x, _ = arrays(4, 3)
    expected = ranked(x, 2)

    class Model(torch.nn.Module):
        def forward(self, x):
            return ranked(x, 2)

    given = torch.tensor(x)
    program = torch.export.export(Model(), (given[:2],), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    torch._dynamo.reset()
    for found in (
        tf.function(lambda x: ranked(x, 2))(tf.constant(x)),
        jax.jit(lambda x: ranked(x, 2))(x),
        program.module()(given),
        torch.compile(Model(), backend="aot_eager", fullgraph=True)(given),
    ):
        for left, right in zip(found, expected):
            np.testing.assert_array_equal(np.asarray(left), right)


def test_a_body_whose_sizes_depend_on_values_says_so():
    @interop.operator("torch", name="present")
    def present(x):
        return torch.nonzero(x)

    assert present(np.array([0, 1, 2])).tolist() == [[1], [2]]
    with pytest.raises(OperatorError, match=r"'present' cannot be told before it runs.*shape="):
        tf.function(present)(tf.constant([0, 1, 2]))
    with_shape = interop.operator(
        "torch", name="present_shaped", shape=lambda x: interop.TensorSpec("", "int64", (None, 1))
    )(lambda x: torch.nonzero(x))
    found = tf.function(with_shape)(tf.constant([0, 1, 2]))
    assert found.numpy().tolist() == [[1], [2]]
    with pytest.raises(OperatorError, match="outside jit"):
        jax.jit(with_shape)(jnp.array([0, 1, 2]))


def test_an_unknown_rank_says_so():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float64)])
    def call(x):
        return WAVES["torch"](x, x)["wave"]

    with pytest.raises(Exception, match=r"OperatorError.*ensure_shape"):  # AutoGraph wraps it
        call(tf.ones([2], tf.float64))
