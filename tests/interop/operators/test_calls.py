"""What goes in, what comes out, and whose memory it is."""

from __future__ import annotations

import gc
import threading
import weakref

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import interop
from interop.frameworks import framework
from interop.frameworks._memory import fresh
from interop.operators import REGISTRY, OperatorError
from tests.interop.operators.bodies import WAVES, arrays, wave_numpy

OWNERS = ["numpy", "torch", "tensorflow", "jax", "onnxruntime"]
EVERY = {**WAVES, "numpy": wave_numpy}


def _in(owner, array):
    return interop.convert(fresh(array), owner)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("body", list(EVERY))
def test_results_are_right_and_in_the_callers_framework(owner, body):
    x, y = arrays(2, 3)
    result = EVERY[body](_in(owner, x), y=_in(owner, y), scale=3, sum_axis=0)
    assert list(result) == ["wave", "more", "sign"]
    assert result["more"][1] is None
    assert {interop.framework_of(value) for value in (result["wave"], result["more"][0], result["sign"])} == {owner}
    np.testing.assert_allclose(interop.convert(result["wave"], "numpy"), np.sin(x) * y * 3, rtol=1e-12)
    np.testing.assert_allclose(interop.convert(result["more"][0], "numpy"), np.exp(x).sum(0), rtol=1e-12)
    np.testing.assert_array_equal(interop.convert(result["sign"], "numpy"), (x > 0).astype(np.int64))


DOUBLE = {
    "torch": lambda x: x * 2,
    "tensorflow": lambda x: x * 2,
    "jax": lambda x: x * 2,
    "numpy": lambda x: fresh(x * 2),
}


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("body", list(DOUBLE))
def test_no_data_moves(owner, body):
    seen = []

    @interop.operator(body, name=f"double_{owner}_{body}")
    def double(x):
        result = DOUBLE[body](x)
        seen.extend([framework(body).address(x), framework(body).address(result), result])
        return result

    x = _in(owner, np.ones((8, 32), np.float32))
    result = double(x)
    assert seen[0] == framework(owner).address(x)
    assert seen[1] == framework(owner).address(result)


def test_no_data_moves_in_tf_function():
    seen = []

    @interop.operator("torch", name="double_in_graph", shape=lambda x: x)
    def double(x):
        result = x * 2
        seen.extend([x.data_ptr(), result])
        return result

    @tf.function
    def call(x):
        return double(x)

    x = tf.ones([8, 32])
    result = call(x)
    assert seen[-2] == framework("tensorflow").address(x)
    assert seen[-1].data_ptr() == framework("tensorflow").address(result)


def test_tensorflow_does_not_write_into_what_torch_keeps():
    kept = torch.full((8, 32), -1.0)

    @interop.operator("torch", name="constant_of_torch", shape=lambda x: x)
    def constant(x):
        return kept

    call = tf.function(lambda x: tf.nn.relu(constant(x)) + 1)
    for _ in range(3):
        assert call(tf.ones([8, 32])).numpy().max() == 1
    assert kept.min() == kept.max() == -1


@pytest.mark.parametrize("body", ["tensorflow", "jax", "numpy"])
def test_torch_gets_no_view_of_its_input(body):
    @interop.operator(body, name=f"itself_{body}")
    def itself(x):
        return x, x

    x = torch.ones(8, 32)
    first, second = itself(x)
    first.add_(1)
    second.add_(2)
    assert (x.max(), first.max(), second.max()) == (1, 2, 3)


@pytest.mark.parametrize(
    ("owners", "expected"),
    [(("numpy", "torch"), "torch"), (("onnxruntime", "jax"), "jax"), (("tensorflow", "torch"), "tensorflow"),
     (("onnxruntime", "numpy"), "onnxruntime")],
)  # fmt: skip
def test_the_first_framework_with_gradients_decides(owners, expected):
    x, y = arrays(2, 3)
    for operator in EVERY.values():
        result = operator(_in(owners[0], x), _in(owners[1], y))
        assert interop.framework_of(result["wave"]) == expected


@interop.operator("numpy", shape=lambda x, *rest, **named: x)
def told(x, *rest, **named):
    calls.append((rest, named))
    return x


calls: list = []


def test_values_that_are_no_tensors_arrive_as_they_are():
    x = torch.ones(2)
    for value in (True, 1, 1.0, "1", None, (1, True), [2.5, "a"], {"k": None}):
        told(x, value, key=value)
        rest, named = calls[-1]
        assert repr(rest) == repr((value,)) and repr(named) == repr({"key": value})


def test_tensors_may_nest_in_arguments():
    @interop.operator("tensorflow", name="joined")
    def joined(parts, *, options):
        return tf.concat(parts, 0) + options["shift"]

    parts = [torch.ones(2, requires_grad=True), torch.zeros(1, requires_grad=True)]
    result = joined(parts, options={"shift": torch.tensor([5.0])})
    result.sum().backward()
    assert result.tolist() == [6, 6, 5]
    assert parts[0].grad.tolist() == [1, 1] and parts[1].grad.tolist() == [1]


def test_what_cannot_be_an_argument_is_named():
    with pytest.raises(OperatorError, match=r"takes and gives tensors.*object"):
        told(torch.ones(1), object())


def test_a_result_of_another_framework_is_refused():
    @interop.operator("tensorflow", name="astray")
    def astray(x):
        return x.numpy()

    with pytest.raises(OperatorError, match="'astray' is written in tensorflow and gave a numpy tensor"):
        astray(torch.ones(1))


def test_types_that_the_body_lacks_are_refused_by_convert():
    @interop.operator("torch", name="passed_on")
    def passed_on(x):
        return x

    with pytest.raises(interop.ConversionError, match="torch has no float128"):
        passed_on(np.ones(2, np.float128))


def test_scalars_and_empty_tensors():
    @interop.operator("tensorflow", name="total")
    def total(x):
        return tf.reduce_sum(x)

    assert total(torch.ones(3, 0)).item() == 0
    assert total(torch.tensor(4.0)).shape == ()
    assert total(np.float32(2)).shape == () and total(np.float64(2)).dtype == np.float64
    summed = interop.operator("numpy", name="summed")(lambda x: x.sum())
    assert torch.equal(summed(torch.ones(2, 2, dtype=torch.float64)), torch.tensor(4.0, dtype=torch.float64))


def test_a_name_is_taken_once_and_may_be_defined_again():
    def define(shift):
        @interop.operator("numpy", name="again")
        def again(x):
            return x + shift

        return again

    x = torch.zeros(1)
    assert define(1)(x).item() == 1
    second = define(2)
    assert second(x).item() == 2
    with pytest.raises(OperatorError, match=r"defined by .*define.*name="):
        interop.operator("numpy", name="again")(lambda x: x)
    assert REGISTRY["again"] is second


@pytest.mark.parametrize(("arguments", "message"), [(("theano",), "written in torch"), (("numpy",), "identifier")])
def test_a_bad_definition_is_refused(arguments, message):
    with pytest.raises(OperatorError, match=message):
        interop.operator(*arguments, name="a-b")(lambda x: x)


def test_operators_that_nobody_holds_are_forgotten():
    def define():
        @interop.operator("tensorflow", name="forgotten")
        def forgotten(x):
            return x * 2

        x = torch.ones(2, requires_grad=True)
        torch.autograd.grad(forgotten(x).sum(), x)
        forgotten(jnp.ones(2))
        return weakref.ref(forgotten)

    reference = define()
    gc.collect()
    assert reference() is None
    assert "forgotten" not in REGISTRY


def test_threads():
    @interop.operator("tensorflow", name="squared")
    def squared(x, power=2):
        return x**power

    wrong = []

    def work(index):
        for count in range(50):
            x = torch.full((4,), float(index), requires_grad=True)
            result = squared(x, power=2 + count % 2)
            result.sum().backward()
            power = 2 + count % 2
            if result[0].item() != index**power or x.grad[0].item() != power * index ** (power - 1):
                wrong.append((index, count))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_operator_keeps_its_functions_name_and_text():
    assert wave_numpy.__name__ == "wave_numpy"
    assert repr(wave_numpy) == "<operator wave_numpy, written in numpy>"
