"""Which operators of an int8 file stay in float: those whose values 255 steps cannot tell apart.

Source: the LiteRT schema (``schema.fbs``); a calibrated file has the range of every value that it saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from exporters._precision import holds_mark

__all__ = ["float_operators"]

_NAMES: dict[int, str] = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
_ROOTS = ("RSQRT", "SQRT")
_SCALING = ("MUL", "DIV", "SUB", "ADD")
"""What puts the root of a variance to use."""
_SPREAD = ("ADD", "MAXIMUM", "MEAN", "SUM", "SQUARED_DIFFERENCE", "SQUARE", "MUL", "POW", "SUB")
"""What a variance is made of."""
_HOPS = 4


def float_operators(calibrated: bytes) -> set[str]:
    """Operators by the names of their results, as the converter knows them.

    Beside the mark of a mask (-inf, -1e9) all scores are one number. A normalization divides by the root of a variance, in which
    rows differ by orders of magnitude. And a divisor that int8 rounds to zero ends the run with an error.

    Args:
        calibrated: a file in float with the range of each value.
    """
    model = schema.ModelT.InitFromPackedBuf(calibrated, 0)
    return {name for graph in model.subgraphs for name in _Graph(model, graph).in_float()}


class _Graph:
    """One graph, by who gives and who takes each value."""

    def __init__(self, model: Any, graph: Any) -> None:
        self._model, self._graph = model, graph
        self._giver = {value: operator for operator in graph.operators for value in operator.outputs}
        self._takers: dict[int, list[Any]] = {}
        for operator in graph.operators:
            for value in operator.inputs:
                self._takers.setdefault(value, []).append(operator)

    def in_float(self) -> Iterator[str]:
        marked = {number for number, tensor in enumerate(self._graph.tensors) if _holds_mark(tensor)}
        for operator in self._graph.operators:
            kind = self._kind(operator)
            if marked & {*operator.inputs, *operator.outputs}:
                yield from self._names(operator)
            if kind == "DIV":
                yield from self._names(operator, *self._givers(operator.inputs[1:]))
            if kind in _ROOTS:
                yield from self._names(operator, *self._before(operator, _HOPS), *self._after(operator, _HOPS))

    def _before(self, operator: Any, hops: int) -> Iterator[Any]:
        """The operators that make the variance, up to the value that is normalized."""
        for giver in self._givers(operator.inputs):
            if hops and self._kind(giver) in _SPREAD:
                yield giver
                is_square = self._kind(giver) in ("SQUARED_DIFFERENCE", "SQUARE", "MUL", "POW")
                # Past the square there is its mean at most, and then the value itself.
                yield from self._before(giver, 1 if is_square else hops - 1)

    def _after(self, operator: Any, hops: int) -> Iterator[Any]:
        """The operators that scale and shift by it, and those that take the mean off what it scales."""
        for taker in (each for value in operator.outputs for each in self._takers.get(value, ())):
            if hops and self._kind(taker) in _SCALING:
                yield taker
                yield from (giver for giver in self._givers(taker.inputs) if self._kind(giver) == "SUB")
                yield from self._after(taker, 0 if self._kind(taker) == "ADD" else hops - 1)

    def _givers(self, values: Iterable[int]) -> Iterator[Any]:
        return (self._giver[value] for value in values if value in self._giver)

    def _kind(self, operator: Any) -> str:
        code = self._model.operatorCodes[operator.opcodeIndex]
        return _NAMES.get(int(max(code.builtinCode, code.deprecatedBuiltinCode)), "")  # the older field ends at 127

    def _names(self, *operators: Any) -> Iterator[str]:
        return (self._graph.tensors[value].name.decode() for operator in operators for value in operator.outputs)


def _holds_mark(tensor: Any) -> bool:
    ranges = tensor.quantization
    return ranges is not None and ranges.min is not None and holds_mark(ranges.max - ranges.min)
