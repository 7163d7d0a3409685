"""LSTM, GRU and RNN by ONNX's rules, and with the weights that torch's own layers have."""

from __future__ import annotations

from typing import Any

from torch import _VF
from torch.nn import functional

from exporters.torch._cells import Layer, activations_of, run_layer
from exporters.torch._table import lower


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

    def make(part):
        peepholes = (None, None, None) if P is None else P[part.index].chunk(3)
        bias = None if part.bias_w is None else part.bias_w + part.bias_r
        return bias, _lstm_step(part.r, chosen(part.index), peepholes, bool(input_forget))

    return run_layer(layer, make)


def _lstm_step(r, functions, peepholes, input_forget):
    """One step; the gates are in the order input, output, forget, cell."""
    gate, update, output = functions
    p_i, p_o, p_f = peepholes

    def seen(z, peephole, cell):
        return z if peephole is None else z + peephole * cell

    def step(z, h, c):
        z_i, z_o, z_f, z_c = (z + functional.linear(h, r)).chunk(4, 1)
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

    def make(part):
        return part.bias_w, _gru_step(part.r, part.bias_r, chosen(part.index), bool(linear_before_reset))

    return run_layer(layer, make)


def _gru_step(r, bias, functions, linear_before_reset):
    """One step; the gates are in the order update, reset, hidden."""
    gate, update = functions
    r_z, r_r, r_h = r.chunk(3)
    b_z, b_r, b_h = (None, None, None) if bias is None else bias.chunk(3)

    def step(x, h):
        x_z, x_r, x_h = x.chunk(3, 1)
        z = gate(x_z + functional.linear(h, r_z, b_z))
        reset = gate(x_r + functional.linear(h, r_r, b_r))
        inner = (
            reset * functional.linear(h, r_h, b_h) if linear_before_reset else functional.linear(reset * h, r_h, b_h)
        )
        new = update(x_h + inner)
        return (new + z * (h - new),)

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

    def make(part):
        (function,) = chosen(part.index)
        bias = None if part.bias_w is None else part.bias_w + part.bias_r
        return bias, lambda x, h: (function(x + functional.linear(h, part.r)),)

    return run_layer(layer, make)


_KERNELS: dict[str, Any] = {"LSTM": _VF.lstm, "GRU": _VF.gru, "RNN_TANH": _VF.rnn_tanh, "RNN_RELU": _VF.rnn_relu}


@lower("Recurrent", domain="tensor_interop")
def recurrent(X, initial_h=None, initial_c=None, *weights, mode, hidden_size, reverse=0, layout=0, alone=0):
    """What ``exporters.torch._rebuild`` makes of a recurrent node that torch's kernels compute."""
    directions = 2 if sum(w.ndim == 2 for w in weights) == 4 else 1
    x, states = recurrent_inputs(
        X,
        initial_h,
        initial_c,
        mode=mode,
        hidden_size=hidden_size,
        reverse=reverse,
        layout=layout,
        directions=directions,
    )
    biased = any(w.ndim == 1 for w in weights)
    result = _KERNELS[mode](x, states, list(weights), biased, 1, 0.0, False, directions == 2, False)
    output = (result[0], result[1:] if mode == "LSTM" else result[1])
    return recurrent_results(output, mode=mode, reverse=reverse, layout=layout, directions=directions)


def recurrent_inputs(X, initial_h=None, initial_c=None, *, mode, hidden_size, reverse, layout, directions):
    """What ``nn.LSTM`` and its like take, from the node's inputs."""
    x = X.transpose(0, 1) if layout else X
    x = x.flip(0) if reverse else x
    states = [
        x.new_zeros([directions, x.shape[1], hidden_size])
        if state is None
        else (state.transpose(0, 1) if layout else state).contiguous()
        for state in ((initial_h, initial_c) if mode == "LSTM" else (initial_h,))
    ]
    return x, tuple(states) if mode == "LSTM" else states[0]


def recurrent_results(output, *, mode, reverse, layout, directions, hidden_size=None):
    """The node's outputs, from what ``nn.LSTM`` and its like give."""
    y, states = output
    y = y.reshape(*y.shape[:2], directions, y.shape[2] // directions).permute(0, 2, 1, 3)
    y = y.flip(0) if reverse else y
    states = tuple(states) if mode == "LSTM" else (states,)
    if layout:
        return y.permute(2, 0, 1, 3), *(state.transpose(0, 1) for state in states)
    return (y, *states)
