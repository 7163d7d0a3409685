"""The plain recurrent network as ONNX's RNN; torch.onnx unrolls it step by step, which fixes the number of steps.

The shapes of these operators are in ``exporters/onnx/_recurrent.py``, which must list what is translated as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exporters.onnx.corrections._build import op

__all__ = ["TRANSLATIONS"]

aten = torch.ops.aten


def _rnn(
    activation: str, data: Any, hx: Any, params: Sequence[Any], layers: int, two_ways: bool, batch_first: bool
) -> Any:
    """All layers; ``params`` holds the weights of each direction of each layer in torch's order."""
    directions = 2 if two_ways else 1
    size = params[1].shape[-1]
    each = len(params) // (layers * directions)
    value = op.Transpose(data, perm=[1, 0, 2]) if batch_first else data
    finals = []
    for layer in range(layers):
        own = [params[(layer * directions + way) * each :][:each] for way in range(directions)]
        window = (op.Constant(value_ints=[layer * directions]), op.Constant(value_ints=[(layer + 1) * directions]))
        outputs, final = op.RNN(
            value,
            _stacked([weights[0] for weights in own]),
            _stacked([weights[1] for weights in own]),
            _stacked([op.Concat(*weights[2:], axis=0) for weights in own]) if each == 4 else None,
            None,
            op.Slice(hx, *window, op.Constant(value_ints=[0])),
            activations=[activation] * directions,
            direction="bidirectional" if two_ways else "forward",
            hidden_size=size,
        )
        value = op.Reshape(op.Transpose(outputs, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, directions * size]))
        finals.append(final)
    result = op.Transpose(value, perm=[1, 0, 2]) if batch_first else value
    return result, op.Concat(*finals, axis=0)


def _stacked(values: Sequence[Any]) -> Any:
    first = op.Constant(value_ints=[0])
    return op.Concat(*(op.Unsqueeze(value, first) for value in values), axis=0)


def rnn_tanh(
    input: Any,  # noqa: A002  # the names of torch's schema
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """``nn.RNN(nonlinearity="tanh")``."""
    return _rnn("Tanh", input, hx, params, num_layers, bidirectional, batch_first)


def rnn_relu(
    input: Any,  # noqa: A002  # the names of torch's schema
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """``nn.RNN(nonlinearity="relu")``."""
    return _rnn("Relu", input, hx, params, num_layers, bidirectional, batch_first)


TRANSLATIONS = {aten.rnn_tanh.input: rnn_tanh, aten.rnn_relu.input: rnn_relu}
