"""Gradients across each ordered pair of frameworks, by each framework's own checker, in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from jax.test_util import check_grads

import interop
from interop.operators import OperatorError
from tests.interop.operators.bodies import WAVES, arrays, wave_numpy

BODIES = list(WAVES)


def _near(found, expected, rtol=1e-5):
    for left, right in zip(found, expected):
        np.testing.assert_allclose(left, right, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("body", BODIES)
def test_from_torch_first_and_second_derivative(body):
    inputs = [torch.tensor(value, requires_grad=True) for value in arrays(2, 3)]

    def call(x, y):
        result = WAVES[body](x, y, 3.0)
        return result["wave"], result["more"][0]

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "tf.function"])
@pytest.mark.parametrize("body", BODIES)
def test_from_tensorflow_first_and_second_derivative(body, graph):
    x, y = map(tf.constant, arrays(2, 3))

    def call(x, y):
        result = WAVES[body](x, y, scale=3.0)
        return tf.reduce_sum(result["wave"], -1) + result["more"][0]

    if graph:
        call = tf.function(call, input_signature=[tf.TensorSpec([None, 3], tf.float64)] * 2)

    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(call(x, y) ** 2)
        return tape.gradient(total, x)

    _near(*tf.test.compute_gradient(call, [x, y]))
    _near(*tf.test.compute_gradient(tf.function(slope) if graph else slope, [x]))


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("body", BODIES)
def test_from_jax_first_and_second_derivative(body, jit):
    def call(x, y):
        result = WAVES[body](x, y, scale=3.0)
        return result["wave"].sum(-1) + result["more"][0]

    check_grads(jax.jit(call) if jit else call, tuple(map(jnp.asarray, arrays(2, 3))), order=2, modes=["rev"])


@interop.operator("torch")
def turn_torch(z, w):
    return (z * z * w.conj()).sum(-1)


@interop.operator("tensorflow")
def turn_tensorflow(z, w):
    return tf.reduce_sum(z * z * tf.math.conj(w), -1)


@interop.operator("jax")
def turn_jax(z, w):
    return (z * z * w.conj()).sum(-1)


TURNS = {"torch": turn_torch, "tensorflow": turn_tensorflow, "jax": turn_jax}


def _complex():
    re, im = arrays(2, 3)
    return re + 1j * im, im - 2j * re


@pytest.mark.parametrize("body", BODIES)
def test_complex_from_torch(body):
    assert torch.autograd.gradcheck(TURNS[body], [torch.tensor(value, requires_grad=True) for value in _complex()])


@pytest.mark.parametrize("body", ["torch", "jax"])
def test_complex_from_tensorflow_has_tensorflows_convention(body):
    z, w = map(tf.constant, _complex())
    found = []
    for operator in (TURNS[body], TURNS["tensorflow"].function):
        with tf.GradientTape() as tape:
            tape.watch([z, w])
            total = tf.reduce_sum(tf.abs(operator(z, w)) ** 2)
        found.append(tape.gradient(total, [z, w]))
    _near(*found)


@pytest.mark.parametrize("body", ["torch", "tensorflow"])
def test_complex_from_jax_has_jaxs_convention(body):
    z, w = map(jnp.asarray, _complex())
    found = [
        jax.grad(lambda z, w, operator=operator: (jnp.abs(operator(z, w)) ** 2).sum(), argnums=(0, 1))(z, w)
        for operator in (TURNS[body], TURNS["jax"].function)
    ]
    _near(*found)


def test_only_the_gradients_that_are_needed_are_computed():
    x, y = (torch.tensor(value) for value in arrays(2, 3))
    x.requires_grad_()
    WAVES["tensorflow"](x, y)["wave"].sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.cos(x.detach()) * y)
    assert y.grad is None


@pytest.mark.parametrize("body", BODIES)
def test_an_input_that_the_result_does_not_depend_on_has_a_zero_gradient(body):
    @interop.operator(body, name=f"first_of_{body}")
    def first(x, y):
        return x * 2

    x, y = (torch.tensor(value, requires_grad=True) for value in arrays(2, 3))
    first(x, y).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))
    assert y.grad is None or not y.grad.any()


@pytest.mark.parametrize("body", BODIES)
def test_one_tensor_in_two_places_has_both_gradients(body):
    @interop.operator(body, name=f"product_of_{body}")
    def product(x, y):
        return x * y

    x = torch.tensor([3.0], requires_grad=True)
    product(x, x).sum().backward()
    assert x.grad.item() == 6
    value = tf.constant([3.0])
    with tf.GradientTape() as tape:
        tape.watch(value)
        result = product(value, value)
    assert tape.gradient(result, value).numpy() == [6]


def test_numpy_has_no_gradient_and_says_what_to_do():
    x, y = (torch.tensor(value, requires_grad=True) for value in arrays(2, 3))
    result = wave_numpy(x, y)["wave"]
    with pytest.raises(OperatorError, match=r"@wave_numpy\.gradient"):
        result.sum().backward()


@interop.operator("numpy", shape=lambda x, power: x)
def raised(x, power):
    return x**power


@raised.gradient
def _(upstream, x, power):
    return upstream * power * x ** (power - 1)


def test_a_gradient_of_the_callers_own():
    x = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: raised(x, 3), [x])
    _near(*tf.test.compute_gradient(lambda x: raised(x, 3), [tf.constant([2.0, 3.0], tf.float64)]))
    check_grads(lambda x: raised(x, 3), (jnp.asarray([2.0, 3.0]),), order=1, modes=["rev"])


@pytest.mark.parametrize("body", BODIES)
def test_a_gradient_of_the_callers_own_replaces_the_derived_one_also_at_home(body):
    @interop.operator(body, name=f"straight_{body}")
    def straight(x):
        return x * 2

    @straight.gradient
    def _(upstream, x):
        return upstream * 10

    x = torch.ones(3, requires_grad=True)
    straight(x).sum().backward()
    assert x.grad.tolist() == [10, 10, 10]
    value = tf.ones(3)
    with tf.GradientTape() as tape:
        tape.watch(value)
        result = straight(value)
    assert tape.gradient(result, value).numpy().tolist() == [10, 10, 10]
    assert jax.grad(lambda x: straight(x).sum())(jnp.ones(3)).tolist() == [10, 10, 10]


def test_a_gradient_with_a_wrong_count_is_refused():
    @interop.operator("numpy", name="two_inputs")
    def two(x, y):
        return x + y

    two.gradient(lambda upstream, x, y: upstream)
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(OperatorError, match="one value a tensor argument"):
        two(x, x).sum().backward()


def test_a_gradient_of_the_callers_own_knows_integer_results_also_after_other_dtypes():
    @interop.operator("numpy", name="halved")
    def halved(x):
        return x // 2 if x.dtype.kind == "i" else x / 2, np.argsort(x)

    seen = []

    @halved.gradient
    def _(upstream, x):
        seen.append(upstream[1])
        return upstream[0] / 2

    x = torch.tensor([3.0, 1.0], requires_grad=True)
    result = halved(x)[0]
    halved(torch.tensor([3, 1]))
    result.sum().backward()
    assert x.grad.tolist() == [0.5, 0.5] and seen == [None]


@pytest.mark.parametrize("wrap", [tf.function, lambda body: body])
def test_a_body_may_be_a_tf_function(wrap):
    @interop.operator("tensorflow", name="cubed")
    @wrap
    def cubed(x):
        return x**3

    x = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(cubed, [x])


def test_a_body_may_be_a_module_with_weights_of_its_own():
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2).double()
    operator = interop.operator("torch", name="linear_of_torch")(module)
    x = tf.constant(arrays(2, 3)[0])
    _near(*tf.test.compute_gradient(operator, [x]))
    np.testing.assert_allclose(operator(x), module(torch.tensor(x.numpy())).detach())
