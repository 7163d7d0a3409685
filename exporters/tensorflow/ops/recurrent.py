"""LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from exporters.tensorflow._cells import Activation, Direction, Layer, Step, activations_of, run_layer
from exporters.tensorflow._rows import multiply_turned
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import shape_of


@lower("LSTM")
def lstm(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
    layout=0,
):
    layer = Layer(X, W, R, B, sequence_lens, (initial_h, initial_c), direction, layout)
    chosen = activations_of(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh", "Tanh"), clip)

    def make(part: Direction) -> tuple[Any, Step]:
        peepholes = None if P is None else tf.split(P[part.index], 3)
        bias = None if part.bias_w is None else part.bias_w + part.bias_r
        if peepholes is None and not input_forget:
            return bias, _lstm_step(part.r, chosen(part.index))
        return bias, _peeping_step(part.r, chosen(part.index), peepholes, bool(input_forget))

    return run_layer(layer, make)


def _lstm_step(r: Any, functions: tuple[Activation, ...]) -> Step:
    """One step; the three gates, which lie side by side, share one activation, which is wide enough for several threads."""
    gate, update, output = functions
    size = shape_of(r, tf.int32)[1]

    def step(z, h, c):
        gates, new = tf.split(z + multiply_turned(h, r), [3 * size, size], axis=1)
        i, o, f = tf.split(gate(gates), 3, axis=1)
        c = f * c + i * update(new)
        return o * output(c), c

    return step


def _peeping_step(r: Any, functions: tuple[Activation, ...], peepholes: Any, input_forget: bool) -> Step:
    """One step with peepholes ``(i, o, f)`` or None, and with an input gate that may stand for the forget gate too."""
    gate, update, output = functions
    p_i, p_o, p_f = peepholes or (None, None, None)

    def seen(z, peephole, cell):
        return z if peephole is None else z + peephole * cell

    def step(z, h, c):
        z_i, z_o, z_f, z_c = tf.split(z + multiply_turned(h, r), 4, axis=1)
        i = gate(seen(z_i, p_i, c))
        f = 1 - i if input_forget else gate(seen(z_f, p_f, c))
        c = f * c + i * update(z_c)
        return gate(seen(z_o, p_o, c)) * output(c), c

    return step


@lower("GRU")
def gru(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
    linear_before_reset=0,
):
    layer = Layer(X, W, R, B, sequence_lens, (initial_h,), direction, layout)
    chosen = activations_of(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh"), clip)

    def make(part: Direction) -> tuple[Any, Step]:
        functions = chosen(part.index)
        if linear_before_reset:
            return part.bias_w, _linear_first_step(part.r, part.bias_r, functions)
        bias = None if part.bias_w is None else part.bias_w + part.bias_r
        return bias, _reset_first_step(part.r, functions)

    return run_layer(layer, make)


def _linear_first_step(r: Any, bias: Any, functions: tuple[Activation, ...]) -> Step:
    """The reset gate scales the recurrent product, as cuDNN, torch and Keras (``reset_after``) do."""
    gate, update = functions

    def step(x, h):
        z = multiply_turned(h, r)
        if bias is not None:
            z = tf.nn.bias_add(z, bias)
        size = h.shape[1] if h.shape[1] is not None else tf.shape(h)[1]
        z_gate, r_gate = tf.split(gate(x[:, : 2 * size] + z[:, : 2 * size]), 2, axis=1)
        new = update(x[:, 2 * size :] + r_gate * z[:, 2 * size :])
        return (new + z_gate * (h - new),)

    return step


def _reset_first_step(r: Any, functions: tuple[Activation, ...]) -> Step:
    """The reset gate scales the state before the recurrent product."""
    gate, update = functions
    r_z, r_r, r_h = tf.split(r, 3)
    gates = tf.concat([r_z, r_r], 0)

    def step(x, h):
        size = h.shape[1] if h.shape[1] is not None else tf.shape(h)[1]
        both = gate(x[:, : 2 * size] + tf.matmul(h, gates, transpose_b=True))
        z_gate, r_gate = tf.split(both, 2, axis=1)
        new = update(x[:, 2 * size :] + tf.matmul(r_gate * h, r_h, transpose_b=True))
        return (new + z_gate * (h - new),)

    return step


@lower("RNN")
def rnn(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=("Tanh", "Tanh"),
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
):
    layer = Layer(X, W, R, B, sequence_lens, (initial_h,), direction, layout)
    chosen = activations_of(activations, activation_alpha, activation_beta, ("Tanh",), clip)

    def make(part: Direction) -> tuple[Any, Step]:
        (function,) = chosen(part.index)
        bias = None if part.bias_w is None else part.bias_w + part.bias_r
        return bias, lambda x, h: (function(x + multiply_turned(h, part.r)),)

    return run_layer(layer, make)
