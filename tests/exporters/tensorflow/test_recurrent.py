"""LSTM, GRU and RNN: ONNX Runtime and torch say what they compute."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from tests.exporters.tensorflow._nodes import check_node, lower_node
from tests.exporters.tensorflow._runtime import node_model, run_both

TIME, BATCH, SIZE, HIDDEN = 4, 3, 5, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
F32 = np.dtype(np.float32)


def _inputs(operator, directions=1, lengths=None, states=True, peepholes=False):
    random = np.random.default_rng(7)
    gates = GATES[operator] * HIDDEN

    def draw(*shape):
        return random.normal(size=shape).astype(np.float32)

    inputs = [draw(TIME, BATCH, SIZE), draw(directions, gates, SIZE), draw(directions, gates, HIDDEN)]
    inputs += [draw(directions, 2 * gates), None if lengths is None else np.array(lengths, np.int32)]
    state = [draw(directions, BATCH, HIDDEN) if states else None]
    inputs += state * (2 if operator == "LSTM" else 1)
    return [*inputs, draw(directions, 3 * HIDDEN)] if peepholes else inputs


def _agree(operator, inputs, **attributes):
    model = node_model(operator, inputs, 3 if operator == "LSTM" else 2, {"hidden_size": HIDDEN, **attributes})
    results, expected = run_both(model, inputs)
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5, strict=True)


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [None, [4, 1, 2]])
def test_layer_runs_in_every_direction_and_length(operator, direction, lengths):
    inputs = _inputs(operator, 2 if direction == "bidirectional" else 1, lengths)
    _agree(operator, inputs, direction=direction)


def test_lstm_takes_peepholes_and_clips():
    _agree("LSTM", _inputs("LSTM", peepholes=True), clip=0.4)


def test_lstm_couples_its_gates():
    _agree("LSTM", _inputs("LSTM"), input_forget=1)


@pytest.mark.parametrize("before", [0, 1])
def test_gru_resets_before_or_after(before):
    _agree("GRU", _inputs("GRU", 2), linear_before_reset=before, direction="bidirectional", clip=0.6)


@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [
        ("Relu", [], []),
        ("Softsign", [], []),
        ("Softplus", [], []),
        ("Sigmoid", [], []),
        ("LeakyRelu", [0.3], []),
        ("ThresholdedRelu", [0.2], []),
        ("HardSigmoid", [0.3], [0.4]),
        ("Elu", [1.5], []),
        ("ScaledTanh", [1.2], [0.7]),
        ("Affine", [0.5], [0.1]),
    ],
)
def test_rnn_takes_every_activation(name, alpha, beta):
    scales = {"activation_alpha": alpha, "activation_beta": beta}
    _agree("RNN", _inputs("RNN"), activations=[name], **{key: value for key, value in scales.items() if value})


def test_lstm_hands_parameters_to_activations_in_order():
    names = ["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "ScaledTanh", "Tanh"]
    _agree(
        "LSTM",
        _inputs("LSTM", 2),
        direction="bidirectional",
        activations=names,
        activation_alpha=[0.3, 0.2, 1.1],
        activation_beta=[0.4, 0.6],
    )


@pytest.mark.parametrize("operator", GATES)
def test_layer_with_batch_first_equals_the_other_layout(operator):
    """ONNX Runtime lacks the layout; the other one is the witness."""
    inputs = _inputs(operator, 2)
    names = 3 if operator == "LSTM" else 2
    attributes = {"direction": "bidirectional", "hidden_size": HIDDEN}
    module = lower_node(operator, inputs, [F32] * names, attributes)
    outputs = [y.numpy() for y in module(*(x for x in inputs if x is not None)).values()]
    swapped = [inputs[0].swapaxes(0, 1), *inputs[1:5], *(x.swapaxes(0, 1) for x in inputs[5:])]
    expected = [outputs[0].transpose(2, 0, 1, 3), *(y.swapaxes(0, 1) for y in outputs[1:])]
    check_node(operator, swapped, expected, {**attributes, "layout": 1}, rtol=1e-4)


def _torch_order(weight, order):
    return np.concatenate([weight[i * HIDDEN : (i + 1) * HIDDEN] for i in order])


def test_lstm_gradients_equal_those_of_torch():
    x, w, r, b, *_ = _inputs("LSTM", states=False)
    layer = torch.nn.LSTM(SIZE, HIDDEN)
    order = [0, 2, 3, 1]  # ONNX has i o f c, torch i f c o
    halves = np.split(b[0], 2)
    for target, value in zip(layer.parameters(), [w[0], r[0], *halves]):
        target.data = torch.tensor(_torch_order(value, order))
    given = torch.tensor(x, requires_grad=True)
    layer(given)[0].square().sum().backward()

    module = lower_node("LSTM", [x, w, r, b], [F32], {"hidden_size": HIDDEN})
    tensors = [tf.constant(value) for value in (x, w, r, b)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = tf.reduce_sum(tf.square(module(*tensors)["y0"]))
    found = tape.gradient(loss, tensors)
    np.testing.assert_allclose(found[0], given.grad, rtol=1e-4, atol=1e-5)
    expected = layer.weight_ih_l0.grad.numpy(), layer.weight_hh_l0.grad.numpy()
    for gradient, want in zip(found[1:3], expected):
        np.testing.assert_allclose(_torch_order(gradient[0].numpy(), order), want, rtol=1e-4, atol=1e-5)


def test_layer_of_no_steps_gives_its_first_states():
    inputs = _inputs("GRU")
    module = lower_node("GRU", inputs, [F32, F32], {"hidden_size": HIDDEN})
    outputs, state = module(inputs[0][:0], *(x for x in inputs[1:] if x is not None)).values()
    assert outputs.shape == (0, 1, BATCH, HIDDEN)
    np.testing.assert_array_equal(state, inputs[5])


def test_layer_runs_in_half_precision():
    inputs = [x if x is None else x.astype(np.float16) for x in _inputs("RNN")]
    module = lower_node("RNN", inputs, [np.dtype(np.float16)] * 2, {"hidden_size": HIDDEN})
    outputs, _ = module(*(x for x in inputs if x is not None)).values()
    wide = lower_node("RNN", _inputs("RNN"), [F32] * 2, {"hidden_size": HIDDEN})
    expected, _ = wide(*(x for x in _inputs("RNN") if x is not None)).values()
    assert outputs.dtype == tf.float16
    np.testing.assert_allclose(tf.cast(outputs, tf.float32), expected, atol=0.02)
