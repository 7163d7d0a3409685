"""Cumulative operators that torch.onnx does not export, or only for moderate numbers: one ONNX Scan each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import evaluator

from exporters.onnx.corrections._build import axis_of, dim_size, filled, is_floating, op, other_dims

__all__ = ["TRANSLATIONS", "Sequenced", "scan"]

aten = torch.ops.aten


@dataclass(frozen=True)
class Sequenced:
    """What a scan reads, step by step along an axis."""

    value: Any
    axis: int
    dtype: ir.DataType
    rank: int


def scan(
    step: Callable[..., list[ir.Value]], states: Sequence[Any], sequences: Sequence[Sequenced], *, reverse: bool = False
) -> tuple[list[Any], list[Any]]:
    """Run ``step(tape, states, elements) -> new states`` along the sequences, from the end with ``reverse``.

    Returns:
        The last states, and every state of every step, stacked along the first sequence's axis in its order.
    """
    tape = ir.tape.Tape()
    axis, dtypes = sequences[0].axis, [state.dtype for state in states]
    before = [_inner(f"scan_state_{n}", dtype, sequences[0].rank - 1) for n, dtype in enumerate(dtypes)]
    elements = [_inner(f"scan_element_{n}", item.dtype, item.rank - 1) for n, item in enumerate(sequences)]
    after = step(tape, before, elements)
    copies = [tape.op("Identity", [value]) for value in after]
    values = [value for node in tape.nodes for value in node.outputs]
    for number, value in enumerate(values):
        value.name = f"scan_value_{number}"
    for value, dtype in zip([*after, *copies], [*dtypes, *dtypes]):
        value.type, value.shape = ir.TensorType(dtype), before[0].shape
    body = ir.Graph([*before, *elements], [*after, *copies], nodes=tape.nodes, name="scan_body")
    return _record(body, states, sequences, axis, int(reverse))


def _inner(name: str, dtype: ir.DataType, rank: int) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([None] * rank))


def _record(
    body: ir.Graph, states: Sequence[Any], sequences: Sequence[Sequenced], axis: int, direction: int
) -> tuple[list[Any], list[Any]]:
    """Write the Scan node itself: onnxscript's own call gives a node with variadic outputs only one."""
    count = len(states)
    attributes = {
        "body": body,
        "num_scan_inputs": len(sequences),
        "scan_input_axes": [item.axis for item in sequences],
        "scan_output_axes": [axis] * count,
    }
    if direction:
        attributes |= {"scan_input_directions": [1] * len(sequences), "scan_output_directions": [1] * count}
    node = ir.Node(
        "",
        "Scan",
        [*states, *(item.value for item in sequences)],
        ir.convenience.convert_attributes(attributes),
        num_outputs=2 * count,
    )
    evaluator.default().nodes.append(node)
    for value, state in zip(node.outputs, [*states, *states]):
        value.type = ir.TensorType(state.dtype)
    return list(node.outputs[:count]), list(node.outputs[count:])


def _state(number: float, value: Any, axis: int, dtype: ir.DataType) -> Any:
    state = filled(number, other_dims(value, axis), dtype)
    state.type = ir.TensorType(dtype)
    return state


def _number(tape: ir.tape.Tape, number: float, dtype: ir.DataType) -> ir.Value:
    return tape.op("Constant", [], {"value": ir.tensor(number, dtype=dtype)})


def cumprod(self: Any, dim: int, dtype: int = -1) -> Any:
    """Not exported by torch.onnx."""
    wanted = ir.DataType(dtype) if dtype is not None and dtype > 0 else self.dtype
    if dtype in (None, -1) and not is_floating(self):
        wanted = ir.DataType.INT64
    value = self if wanted == self.dtype else op.Cast(self, to=wanted)
    if not len(self.shape):
        return op.Identity(value)
    axis = axis_of(dim, self)

    def step(tape: ir.tape.Tape, states: list[ir.Value], elements: list[ir.Value]) -> list[ir.Value]:
        return [tape.op("Mul", [states[0], elements[0]])]

    return scan(step, [_state(1, value, axis, wanted)], [Sequenced(value, axis, wanted, len(self.shape))])[1][0]


def logcumsumexp(self: Any, dim: int) -> Any:
    """torch.onnx takes the largest of the whole slice out: smaller beginnings lose their digits."""
    if not len(self.shape):
        return op.Identity(self)
    axis, dtype = axis_of(dim, self), self.dtype

    def step(tape: ir.tape.Tape, states: list[ir.Value], elements: list[ir.Value]) -> list[ir.Value]:
        large = tape.op("Max", [states[0], elements[0]])
        shift = tape.op("Where", [tape.op("IsInf", [large]), _number(tape, 0, dtype), large])
        terms = [tape.op("Exp", [tape.op("Sub", [each, shift])]) for each in (states[0], elements[0])]
        return [tape.op("Add", [tape.op("Log", [tape.op("Add", terms)]), shift])]

    return scan(step, [_state(-math.inf, self, axis, dtype)], [Sequenced(self, axis, dtype, len(self.shape))])[1][0]


def cummax(self: Any, dim: int) -> Any:
    """Not exported by torch.onnx: a later equal value takes the index, and a NaN stays."""
    return _running(self, dim, "GreaterOrEqual", -1)


def cummin(self: Any, dim: int) -> Any:
    """Not exported by torch.onnx: a later equal value takes the index, and a NaN stays."""
    return _running(self, dim, "LessOrEqual", 1)


def _running(value: Any, dim: int, better: str, side: int) -> Any:
    if not len(value.shape):
        return op.Identity(value), op.Constant(value=ir.tensor(0, dtype=ir.DataType.INT64))
    axis, dtype = axis_of(dim, value), value.dtype
    places = _places(value, axis)

    def step(tape: ir.tape.Tape, states: list[ir.Value], elements: list[ir.Value]) -> list[ir.Value]:
        best, where = states
        element, place = elements
        takes = tape.op(better, [element, best])
        if is_floating(element):
            takes = tape.op("And", [takes, tape.op("Not", [tape.op("IsNaN", [best])])])
            takes = tape.op("Or", [takes, tape.op("IsNaN", [element])])
        return [tape.op("Where", [takes, element, best]), tape.op("Where", [takes, place, where])]

    return scan(
        step,
        [_state(_worst(dtype, side), value, axis, dtype), _state(0, value, axis, ir.DataType.INT64)],
        [Sequenced(value, axis, dtype, len(value.shape)), places],
    )[1]


def _places(value: Any, axis: int) -> Sequenced:
    size = op.Squeeze(dim_size(value, axis), op.Constant(value_ints=[0]))
    zero, one = (op.Constant(value=ir.tensor(number, dtype=ir.DataType.INT64)) for number in (0, 1))
    return Sequenced(op.Range(zero, size, one), 0, ir.DataType.INT64, 1)


def _worst(dtype: ir.DataType, side: int) -> float:
    if dtype.is_floating_point():
        return side * math.inf
    limits = np.iinfo(dtype.numpy())
    return limits.max if side > 0 else limits.min


TRANSLATIONS = {
    aten.cumprod.default: cumprod,
    aten.logcumsumexp.default: logcumsumexp,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
}
