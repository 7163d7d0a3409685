"""Recurrent networks as ONNX has them; torch.onnx unrolls, misreads or refuses these.

The shapes of torch's own operators are in ``exporters/_graph/dynamic_time.py``, which must list what is translated as a whole;
the operators for packed sequences and projected LSTMs are in ``exporters/onnx/_packed.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

import exporters.onnx._packed  # noqa: F401  # defines the operators
from exporters.onnx.corrections._build import op
from exporters.onnx.corrections.scans import Sequenced, scan

__all__ = ["DECOMPOSITIONS", "TRANSLATIONS"]

aten = torch.ops.aten
own = torch.ops.tensor_interop_onnx

_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""ONNX's order of the gates in torch's: iofc of ifgo, zrh of rzn."""
_OPERATORS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def _layers(
    kind: str, value: Any, lengths: Any, states: Sequence[Any], params: Sequence[Any], layers: int, two_ways: bool
) -> Any:
    """All layers over (time, batch, features); ``params`` holds the weights of each direction of each layer in turn.

    Returns:
        The output, then the final states.
    """
    directions = 2 if two_ways else 1
    each = len(params) // (layers * directions)
    finals: list[list[Any]] = []
    for layer in range(layers):
        weights = [params[(layer * directions + way) * each :][:each] for way in range(directions)]
        window = (op.Constant(value_ints=[layer * directions]), op.Constant(value_ints=[(layer + 1) * directions]))
        first = [op.Slice(state, *window, op.Constant(value_ints=[0])) for state in states]
        outputs, *last = _layer(kind, value, lengths, first, weights)
        size = params[1].shape[-1]
        value = op.Reshape(op.Transpose(outputs, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, directions * size]))
        finals.append(last)
    return value, *(op.Concat(*one, axis=0) for one in zip(*finals))


def _layer(kind: str, value: Any, lengths: Any, first: Sequence[Any], weights: Sequence[Sequence[Any]]) -> Any:
    ways, size = len(weights), weights[0][1].shape[-1]
    biased = len(weights[0]) == 4
    options: dict[str, Any] = {"direction": "bidirectional" if ways == 2 else "forward", "hidden_size": size}
    if kind.startswith("rnn"):
        options["activations"] = [kind.removeprefix("rnn_").capitalize()] * ways
    if kind == "gru":
        options["linear_before_reset"] = 1
    return getattr(op, _OPERATORS[kind])(
        value,
        _stacked([_in_order(kind, way[0], size) for way in weights]),
        _stacked([_in_order(kind, way[1], size) for way in weights]),
        _stacked([op.Concat(*(_in_order(kind, bias, size) for bias in way[2:]), axis=0) for way in weights])
        if biased
        else None,
        lengths,
        *first,
        **options,
    )


def _in_order(kind: str, weight: Any, size: int) -> Any:
    """The gates in ONNX's order, along axis 0."""
    order = _GATES[kind]
    if len(order) == 1:
        return weight
    axis = op.Constant(value_ints=[0])
    rows = [(op.Constant(value_ints=[gate * size]), op.Constant(value_ints=[(gate + 1) * size])) for gate in order]
    return op.Concat(*(op.Slice(weight, *window, axis) for window in rows), axis=0)


def _stacked(values: Sequence[Any]) -> Any:
    first = op.Constant(value_ints=[0])
    return op.Concat(*(op.Unsqueeze(value, first) for value in values), axis=0)


def _plain(kind: str) -> Callable[..., Any]:
    def rnn(
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
        value = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        result, final = _layers(kind, value, None, [hx], params, num_layers, bidirectional)
        return op.Transpose(result, perm=[1, 0, 2]) if batch_first else result, final

    return rnn


def packed_rnn(
    data: Any,
    lengths: Any,
    hidden: Any,
    cell: Any,
    params: Sequence[Any],
    kind: str,
    has_biases: bool,
    layers: int,
    bidirectional: bool,
) -> Any:
    """``nn.LSTM``, ``nn.GRU`` or ``nn.RNN`` of a packed sequence, which torch.export does not follow."""
    rows = op.Cast(lengths, to=ir.DataType.INT32)
    if len(params) > (4 if has_biases else 2) * layers * (2 if bidirectional else 1):
        inside = _inside(data, lengths)
        output, *finals = _projected_layers(data, (hidden, cell), params, layers, bidirectional, inside)
        return output, *finals
    states = [hidden, cell] if kind == "lstm" else [hidden]
    results = _layers(kind, data, rows, states, params, layers, bidirectional)
    return results if kind == "lstm" else (*results, op.Identity(cell))


def same(padded: Any) -> Any:
    """A packed sequence is kept in its padded form."""
    return op.Identity(padded)


def projected_lstm(
    data: Any,
    hidden: Any,
    cell: Any,
    params: Sequence[Any],
    has_biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """``nn.LSTM(proj_size=...)``: ONNX's LSTM has no projection, so each direction of a layer is a Scan."""
    value = op.Transpose(data, perm=[1, 0, 2]) if batch_first else data
    value, *finals = _projected_layers(value, (hidden, cell), params, layers, bidirectional)
    return op.Transpose(value, perm=[1, 0, 2]) if batch_first else value, *finals


def _inside(data: Any, lengths: Any) -> Any:
    """(time, batch, 1): whether a step of a row is before its end."""
    zero, one = op.Constant(value_int=0), op.Constant(value_int=1)
    steps = op.Range(zero, op.Squeeze(op.Shape(data, start=0, end=1)), one)
    rows = op.Cast(op.Unsqueeze(lengths, op.Constant(value_ints=[0, 2])), to=ir.DataType.INT64)
    return op.Less(op.Unsqueeze(steps, op.Constant(value_ints=[1, 2])), rows)


def _projected_layers(
    value: Any, states: Sequence[Any], params: Sequence[Any], layers: int, two_ways: bool, inside: Any = None
) -> Any:
    """As ``_layers``; where a step is not ``inside`` its row, states stay as they are and the output is 0."""
    directions = 2 if two_ways else 1
    each = len(params) // (layers * directions)
    finals: list[tuple[Any, Any]] = []
    for layer in range(layers):
        outputs = []
        for way in range(directions):
            number = layer * directions + way
            first = [op.Gather(state, op.Constant(value_int=number), axis=0) for state in states]
            output, last = _projected_direction(value, first, params[number * each :][:each], way == 1, inside)
            outputs.append(output)
            finals.append(last)
        value = op.Concat(*outputs, axis=-1) if directions > 1 else outputs[0]
    return value, *(_stacked([last[which] for last in finals]) for which in (0, 1))


def _projected_direction(value: Any, states: list[Any], weights: Sequence[Any], reverse: bool, inside: Any) -> Any:
    into, again, *biases, projection = weights
    gates = op.MatMul(value, op.Transpose(into, perm=[1, 0]))
    for bias in biases:
        gates = op.Add(gates, bias)
    turned = [op.Transpose(each, perm=[1, 0]) for each in (again, projection)]

    def step(tape: ir.tape.Tape, before: list[ir.Value], elements: list[ir.Value]) -> list[ir.Value]:
        total = tape.op("Add", [elements[0], tape.op("MatMul", [before[0], turned[0]])])
        enter, forget, new, leave = tape.op_multi_out("Split", [total], {"axis": -1, "num_outputs": 4}, num_outputs=4)
        opened = [tape.op("Sigmoid", [gate]) for gate in (enter, forget, leave)]
        kept = tape.op("Mul", [opened[1], before[1]])
        cell = tape.op("Add", [kept, tape.op("Mul", [opened[0], tape.op("Tanh", [new])])])
        shown = tape.op("Mul", [opened[2], tape.op("Tanh", [cell])])
        made = [tape.op("MatMul", [shown, turned[1]]), cell]
        return [tape.op("Where", [elements[1], *pair]) for pair in zip(made, before)] if len(elements) > 1 else made

    for state in states:
        state.type = ir.TensorType(into.dtype)
    read = [Sequenced(gates, 0, into.dtype, 3)]
    read += [] if inside is None else [Sequenced(inside, 0, ir.DataType.BOOL, 3)]
    finals, stacked = scan(step, states, read, reverse=reverse)
    if inside is None:
        return stacked[0], finals
    return op.Where(inside, stacked[0], op.Constant(value=ir.tensor(0, dtype=into.dtype))), finals


def project(data: Any, hx: Any, params: Any, *rest: Any) -> Any:
    """An LSTM with projections as an operator of its own."""
    has_biases, layers, _, training, bidirectional, batch_first = rest
    if training:
        return NotImplemented
    return own.projected_lstm(data, *hx, list(params), has_biases, layers, bidirectional, batch_first)


def _has_projection(node: torch.fx.Node) -> bool:
    states: Any = node.args[1]
    return bool(states[0].meta["val"].shape[-1] != states[1].meta["val"].shape[-1])


TRANSLATIONS = {
    aten.rnn_tanh.input: _plain("rnn_tanh"),
    aten.rnn_relu.input: _plain("rnn_relu"),
    own.packed.default: same,
    own.unpacked.default: same,
    own.packed_rnn.default: packed_rnn,
    own.projected_lstm.default: projected_lstm,
}

DECOMPOSITIONS = {aten.lstm.input: (project, _has_projection)}
