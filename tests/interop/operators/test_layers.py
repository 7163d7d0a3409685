"""Loaded models as modules of torch and layers of Keras."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

import interop
from exporters import export_model
from interop.frameworks import framework
from interop.operators import OperatorError


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 5)
        self.last = torch.nn.Linear(5, 3)

    def forward(self, x):
        return {"scores": self.last(torch.tanh(self.first(x))), "size": x.square().sum(-1)}

    def example_inputs(self):
        return torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def folder(net, tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    export_model(net, "onnx", path=folder / "net.onnx")
    export_model(net, "tensorflow", path=folder / "frozen")
    export_model(net, "tensorflow", path=folder / "training", options={"training": True})
    return folder


def _slopes(model, x):
    parameters = dict(model.named_parameters())
    result = model(x)
    found = torch.autograd.grad((result["scores"] ** 2).sum() + result["size"].sum(), [x, *parameters.values()])
    return found[0], {name.replace(".", "_"): value for name, value in zip(parameters, found[1:])}


def test_a_saved_model_has_torchs_gradients(net, folder):
    module = interop.as_torch_module(folder / "frozen")
    x = torch.randn(3, 4, requires_grad=True)
    torch.testing.assert_close(module(x), net(x))
    torch.testing.assert_close(_slopes(module, x)[0], _slopes(net, x)[0])
    assert not list(module.parameters())
    assert torch.autograd.gradgradcheck(lambda x: module(x.float())["scores"].double(), x.double(), eps=1e-2, atol=2e-2)


def test_variables_of_a_saved_model_train_as_parameters(net, folder):
    module = interop.as_torch_module(folder / "training")
    x = torch.randn(3, 4, requires_grad=True)
    input_slope, slopes = _slopes(module, x)
    expected_input_slope, expected = _slopes(net, x)
    torch.testing.assert_close(input_slope, expected_input_slope)
    assert slopes.keys() == expected.keys()
    for name, slope in slopes.items():
        torch.testing.assert_close(slope, expected[name])
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    module(x)["scores"].square().sum().backward()
    optimizer.step()
    trained = Net().eval()
    trained.load_state_dict({name.replace("_", ".", 1): value for name, value in module.state_dict().items()})
    torch.testing.assert_close(module(x), trained(x))


def test_second_derivatives_that_would_miss_variables_are_refused(folder):
    module = interop.as_torch_module(folder / "training")
    x = torch.randn(3, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(module(x)["scores"].square().sum(), x, create_graph=True)
    with pytest.raises(OperatorError, match="differentiated once"):
        slope.sum().backward()


def test_onnx_runtime_is_plain_and_says_so(net, folder):
    module = interop.as_torch_module(folder / "net.onnx")
    x = torch.randn(3, 4, requires_grad=True)
    result = module(x)
    torch.testing.assert_close(result, net(x))
    with pytest.raises(OperatorError, match=r"onnxruntime computes no gradients.*detach"):
        result["scores"].sum().backward()
    with torch.no_grad():
        assert not module(x)["scores"].requires_grad


def test_a_module_in_a_module_with_trained_neighbours(folder):
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), interop.as_torch_module(folder / "frozen"))
    model(torch.ones(3, 2))["scores"].sum().backward()
    assert model[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["net.onnx", "frozen"])
def test_a_module_under_compile_and_export(net, folder, name):
    module = interop.as_torch_module(folder / name)
    x = torch.randn(3, 4)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(module, backend="aot_eager")(x), net(x))
    program = torch.export.export(module, (x,), dynamic_shapes=(({0: torch.export.Dim("n")},),))
    torch.testing.assert_close(program.module()(x[:2]), net(x[:2]))


def test_a_torch_model_is_itself(net):
    assert interop.as_torch_module(net) is net


def test_a_wrong_input_is_named(folder):
    with pytest.raises(interop.InputError, match=r"'x'.*float64"):
        interop.as_torch_module(folder / "net.onnx")(torch.ones(2, 4, dtype=torch.float64))


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "tf.function"])
def test_a_torch_module_in_keras_has_torchs_gradients(net, graph):
    layer = interop.as_keras_layer(net)
    values = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    x = tf.constant(values)

    def loss(x):
        result = layer(x)
        return tf.reduce_sum(result["scores"] ** 2) + tf.reduce_sum(result["size"])

    def slopes(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = loss(x)
        return tape.gradient(total, [x, *layer.trainable_weights])

    found = (tf.function(slopes) if graph else slopes)(x)
    expected = _slopes(net, torch.tensor(values, requires_grad=True))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    assert [weight.name for weight in layer.trainable_weights] == list(expected[1])
    for slope, right in zip(found[1:], expected[1].values()):
        np.testing.assert_allclose(slope, right, rtol=1e-5, atol=1e-6)


class Scores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.linear.bias.requires_grad_(False)

    def forward(self, x, shift=None):
        return self.linear(x) if shift is None else self.linear(x) + shift


def test_keras_trains_a_torch_module():
    torch.manual_seed(0)
    module = Scores().eval()
    before = module.linear.weight.detach().clone()
    layer = interop.as_keras_layer(module, name="scores")
    model = keras.Sequential([keras.Input((4,)), layer])
    assert model.output_shape == (None, 3)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    losses = model.fit(x, x[:, :3], epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert torch.equal(module.linear.weight, before)  # the module is as it was until it is asked for
    layer.update_module()
    assert not torch.equal(module.linear.weight, before)
    np.testing.assert_allclose(model.predict(x, verbose=0), module(torch.tensor(x)).detach(), rtol=1e-4, atol=1e-5)
    assert [weight.name for weight in layer.non_trainable_weights] == ["linear_bias"]


def test_torch_reads_keras_weights_without_a_copy():
    seen = []

    class Spy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.ones(64, 64))

        def forward(self, x):
            seen.append(self.table.data_ptr())
            return x @ self.table

    layer = interop.as_keras_layer(Spy().eval())
    layer(tf.ones([2, 64]))
    assert seen[-1] == framework("tensorflow").address(tf.convert_to_tensor(layer.weights[0].value))


def test_arguments_of_a_layer_by_position_and_name():
    torch.manual_seed(0)
    module = Scores().eval()
    layer = interop.as_keras_layer(module)
    x, shift = tf.ones([2, 4]), tf.constant(5.0)
    plain = layer(x)
    np.testing.assert_allclose(layer([x, shift]), plain + 5, rtol=1e-6)
    np.testing.assert_allclose(layer({"x": x, "shift": shift}), plain + 5, rtol=1e-6)


def test_a_training_module_is_refused():
    with pytest.raises(OperatorError, match=r"module\.eval\(\)"):
        interop.as_keras_layer(torch.nn.Dropout())


def test_an_onnx_file_is_a_keras_layer(net, folder):
    layer = interop.as_keras_layer(folder / "net.onnx")
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    expected = net(torch.tensor(x))
    for call in (layer, tf.function(layer)):
        np.testing.assert_allclose(call(x)["scores"], expected["scores"].detach(), rtol=1e-5, atol=1e-6)


def test_a_saved_model_is_sent_to_keras_own_layer(folder):
    with pytest.raises(OperatorError, match="TFSMLayer"):
        interop.as_keras_layer(folder / "frozen")
