"""Activation functions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch.nn import functional

from exporters.tensorflow._savedmodel import write_savedmodel
from tests.exporters.tensorflow._nodes import check_node, gradients, lower_node

RNG = np.random.default_rng(1)
DATA = (3 * RNG.standard_normal((2, 3, 4))).astype(np.float32)
ZERO = np.array([0, -0.0, 1, -1], np.float32)

# operator, attributes, torch's function
FUNCTIONS = [
    ("Relu", {}, torch.relu),
    ("Sigmoid", {}, torch.sigmoid),
    ("Tanh", {}, torch.tanh),
    ("Softplus", {}, functional.softplus),
    ("Softsign", {}, functional.softsign),
    ("Mish", {}, functional.mish),
    ("HardSwish", {}, functional.hardswish),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, functional.hardsigmoid),
    ("Celu", {}, functional.celu),
    ("Celu", {"alpha": 0.7}, lambda x: functional.celu(x, 0.7)),
    ("Elu", {}, functional.elu),
    ("Elu", {"alpha": 0.7}, lambda x: functional.elu(x, 0.7)),
    ("Gelu", {}, functional.gelu),
    ("Gelu", {"approximate": "tanh"}, lambda x: functional.gelu(x, approximate="tanh")),
    ("LeakyRelu", {}, functional.leaky_relu),
    ("LeakyRelu", {"alpha": 1.5}, lambda x: functional.leaky_relu(x, 1.5)),
    ("Selu", {}, functional.selu),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}, lambda x: 3 * functional.elu(x, 2.0)),
    ("Shrink", {"lambd": 0.6, "bias": 0.6}, lambda x: functional.softshrink(x, 0.6)),
    ("Shrink", {"lambd": 0.6}, lambda x: functional.hardshrink(x, 0.6)),
    ("ThresholdedRelu", {"alpha": 0.8}, lambda x: functional.threshold(x, 0.8, 0.0)),
    ("Swish", {}, functional.silu),
    ("Swish", {"alpha": 1.7}, lambda x: x * torch.sigmoid(1.7 * x)),
    ("Softmax", {}, lambda x: torch.softmax(x, -1)),
    ("Softmax", {"axis": 1}, lambda x: torch.softmax(x, 1)),
    ("LogSoftmax", {"axis": 0}, lambda x: torch.log_softmax(x, 0)),
]
NAMES = [f"{operator}-{'-'.join(map(str, attributes.values()))}" for operator, attributes, _ in FUNCTIONS]


@pytest.mark.parametrize(("operator", "attributes", "function"), FUNCTIONS, ids=NAMES)
def test_activation_has_the_values_of_torch(operator, attributes, function):
    check_node(operator, [DATA], [function(torch.tensor(DATA)).numpy()], attributes, rtol=1e-5)


@pytest.mark.parametrize(("operator", "attributes", "function"), FUNCTIONS, ids=NAMES)
def test_activation_has_the_gradients_of_torch(operator, attributes, function):
    x = torch.tensor(DATA, requires_grad=True)
    function(x).square().sum().backward()
    np.testing.assert_allclose(gradients(operator, [DATA], attributes)[0], x.grad.numpy(), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("operator", "attributes", "function"), FUNCTIONS, ids=NAMES)
def test_activation_keeps_its_type(operator, attributes, function, dtype):
    data = DATA.astype(dtype)
    expected = function(torch.tensor(data.astype(np.float64))).numpy()
    rtol = {np.float16: 2e-2, np.float64: 1e-6, ml_dtypes.bfloat16: 1e-1}[dtype]  # attributes are float32
    module = lower_node(operator, [data], [np.dtype(dtype)], attributes)
    result = module(tf.constant(data))["y0"].numpy()
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=rtol, atol=rtol / 2)


@pytest.mark.parametrize(
    "operator", ["Relu", "LeakyRelu", "Elu", "Sigmoid", "Softplus", "HardSwish", "Clip", "ThresholdedRelu"]
)
def test_activation_hands_on_nan(operator):
    inputs = [np.array([np.nan, 1], np.float32)]
    if operator == "Clip":
        inputs += [np.array(0, np.float32), np.array(6, np.float32)]
    result = lower_node(operator, inputs, [np.dtype(np.float32)], constants=range(1, len(inputs)))(inputs[0])[
        "y0"
    ].numpy()
    # A comparison with NaN is false: ThresholdedRelu gives 0.
    np.testing.assert_array_equal(np.isnan(result), [operator != "ThresholdedRelu", False])


def test_swiglu_gates_the_second_input():
    a, b = torch.tensor(DATA), torch.tensor(DATA[::-1].copy())
    check_node("SwiGLU", [a.numpy(), b.numpy()], [(functional.silu(a) * b).numpy()], rtol=1e-5)


@pytest.mark.parametrize("operator", ["Swish", "Gelu", "Softplus", "Softmax"])
def test_gradient_survives_a_saved_model(operator, tmp_path):
    write_savedmodel(lower_node(operator, [DATA], [DATA.dtype]), tmp_path / "model")
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    x = tf.constant(DATA)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.square(loaded.signatures["serving_default"](x0=x)["y0"]))
    np.testing.assert_allclose(tape.gradient(loss, x), gradients(operator, [DATA])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.float16])
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_clip_of_each_type(dtype, constants):
    data = np.array([0, 3, 60, 100, 127], dtype)
    low, high = np.array(3, dtype), np.array(90, dtype)
    check_node("Clip", [data, low, high], [np.clip(data, low, high)], constants=constants)
    check_node("Clip", [data, low], [np.maximum(data, low)], constants=constants[:1])
    check_node("Clip", [data, None, high], [np.minimum(data, high)], constants=constants[1:])


def test_clip_with_crossed_bounds_gives_the_upper_one():
    low, high = np.array(5, np.float32), np.array(-5, np.float32)
    check_node("Clip", [DATA, low, high], [np.full_like(DATA, -5)])


def test_clip_from_0_to_6_is_one_node():
    bounds = [np.array(0, np.float32), np.array(6, np.float32)]
    module = lower_node("Clip", [DATA, *bounds], [DATA.dtype], constants=(1, 2))
    types = {op.type for op in module.serving_signature().graph.get_operations()}
    assert "Relu6" in types
    assert not types & {"Maximum", "Minimum"}


def test_clip_passes_the_gradient_at_its_bounds():
    bounds = [np.array(-1, np.float32), np.array(1, np.float32)]
    x = torch.tensor(ZERO, requires_grad=True)
    x.clamp(-1, 1).square().sum().backward()
    found = gradients("Clip", [ZERO, *bounds], constants=(1, 2))[0]
    np.testing.assert_allclose(found, x.grad.numpy())


def test_prelu_is_torchs_at_zero_too():
    slope = np.array([0.25, -0.5, 2], np.float32)
    data = DATA.copy()
    data[0, 0, 0] = 0
    x, w = torch.tensor(data, requires_grad=True), torch.tensor(slope, requires_grad=True)
    y = functional.prelu(x, w)
    check_node("PRelu", [data, slope[:, None]], [y.detach().numpy()])
    y.sum().backward()
    feeds = [tf.constant(data), tf.constant(slope[:, None])]
    module = lower_node("PRelu", [data, slope[:, None]], [data.dtype])
    with tf.GradientTape() as tape:
        tape.watch(feeds)
        loss = tf.reduce_sum(module(*feeds)["y0"])
    by_x, by_slope = tape.gradient(loss, feeds)
    np.testing.assert_allclose(by_x, x.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(by_slope[:, 0], w.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_prelu_of_integers(dtype):
    data, slope = np.array([[0, 3], [5, 4]]).astype(dtype), np.array([3, 2], dtype)
    if dtype != np.uint32:
        data[0, 1], data[1, 0] = -3, -5
    check_node("PRelu", [data, slope], [np.where(data < 0, slope * data, data)])


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8])
def test_shrink_of_integers(dtype):
    data = np.array([0, 1, 2, 100]).astype(dtype)
    if dtype != np.uint8:
        data[1] = -5
    wide = data.astype(np.float64)
    expected = np.where(wide < -1.5, wide + 2, np.where(wide > 1.5, wide - 2, 0)).astype(dtype)
    check_node("Shrink", [data], [expected], {"lambd": 1.5, "bias": 2.0})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_hardmax_takes_the_first_largest(axis, dtype):
    data = np.array([[1, 5, 5], [9, 2, 9]]).astype(dtype)
    data = np.stack([data, data[::-1]])
    largest = np.argmax(data.astype(np.float64), axis)
    expected = np.moveaxis(np.eye(data.shape[axis])[largest], -1, axis).astype(dtype)
    check_node("Hardmax", [data], [expected], {"axis": axis})


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_softmax_of_large_numbers(operator, axis):
    data = DATA * 1000
    function = torch.softmax if operator == "Softmax" else torch.log_softmax
    check_node(operator, [data], [function(torch.tensor(data), axis).numpy()], {"axis": axis})
