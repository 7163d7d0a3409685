"""Operator tables: which function lowers which ONNX operator, and from which opset on; one table a framework.

The signature of a lowering is the operator's schema: inputs positional and in the spec's order, optional ones default to
``None``, a variadic input is ``*inputs``, attributes are keyword-only with the spec's defaults. Inputs arrive as
the framework's tensors; an optional input that is left out as ``None``. A graph attribute (If, Loop, Scan) arrives as a callable
``branch(*tensors) -> tuple``, a tensor attribute as a NumPy array, a string attribute as ``str``.

A lowering returns one tensor, or a tuple in the order of the operator's outputs (further outputs may be left out where
the node does not ask for them).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from exporters.errors import TranslationError

__all__ = ["CONTEXT", "Lowering", "OperatorTable", "RefusedError"]

Function = TypeVar("Function", bound=Callable[..., Any])

CONTEXT = frozenset({"dtypes", "outputs", "training", "values"})
"""What a lowering may ask for beside the schema: ``outputs`` is the number of outputs that the node has, ``dtypes`` their
declared element types (ONNX numbers, None where unknown), ``training`` is whether BatchNormalization and Dropout behave as in
training, ``values`` are the values in force by name (for Gradient)."""


class RefusedError(TranslationError):
    """A lowering met a case that its target cannot express; the text is the reason, without the node's name."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """One entry of the table.

    Attributes:
        domain: ONNX domain; ``""`` is the default one.
        operator: operator type.
        since: first opset that this entry serves.
        function: the function.
        static: positions of the inputs that it wants as NumPy arrays where their value is known when the graph is built.
        takes: the context values that it asks for.
        deterministic: False for random operators; the others are evaluated at once when all inputs are constants.
        unused: parameters that no node may use.
    """

    domain: str
    operator: str
    since: int
    function: Callable[..., Any]
    static: frozenset[int] = frozenset()
    takes: frozenset[str] = frozenset()
    deterministic: bool = True
    unused: tuple[str, ...] = ()

    def refusal(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> str:
        """Why a node is not expressed although its operator is; an empty string where it is.

        Args:
            inputs: the node's, None where one is left out.
            attributes: the node's by name; 0, -1 and "NONE" mean that one is not used.
        """
        if not self.unused:
            return ""
        given = dict(zip(inspect.signature(self.function).parameters, inputs))
        used = [name for name in self.unused if given.get(name) is not None]
        set_ = [name for name in self.unused if attributes.get(name, 0) not in (0, -1, "NONE")]
        return f"it uses {', '.join([*used, *set_])}, which is not expressed" if used or set_ else ""

    def is_static(self, position: int) -> bool:
        """Whether the input at this position is wanted as a NumPy array."""
        return position in self.static


class OperatorTable:
    """Entries by domain and operator; filled at import, never changed by an export."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], dict[int, Lowering]] = {}

    def add(self, entry: Lowering) -> None:
        """Add an entry.

        Raises:
            ValueError: the operator has an entry for this opset already.
        """
        versions = self._entries.setdefault((entry.domain, entry.operator), {})
        if entry.since in versions:
            raise ValueError(f"{entry.domain or 'ai.onnx'}::{entry.operator} since {entry.since} is registered twice")
        versions[entry.since] = entry

    def entries(self) -> Iterable[Lowering]:
        """All entries, in order of registration."""
        for versions in self._entries.values():
            yield from versions.values()

    def resolve(self, opsets: Mapping[str, int]) -> dict[tuple[str, str], Lowering]:
        """Choose, for each operator, the newest entry that is not newer than the model's opset.

        Args:
            opsets: domain -> version, as the model imports them.
        """
        chosen = {}
        for (domain, operator), versions in self._entries.items():
            opset = opsets.get(domain, 0) if domain == "" else opsets.get(domain, 1)
            fitting = [since for since in versions if since <= opset]
            if fitting:
                chosen[domain, operator] = versions[max(fitting)]
        return chosen

    def lower(
        self,
        operator: str,
        *,
        since: int = 1,
        domain: str = "",
        static: tuple[str, ...] = (),
        takes: tuple[str, ...] = (),
        deterministic: bool = True,
        unused: tuple[str, ...] = (),
    ) -> Callable[[Function], Function]:
        """Register the decorated function as the lowering of an operator.

        Args:
            operator: ONNX operator type.
            since: first opset that it serves; give it only where the behaviour changed.
            domain: ONNX domain.
            static: names of the function's parameters that it wants as NumPy arrays where their value is known while the
                graph is built (axes, shapes, pads); otherwise they arrive as tensors. Naming ``*inputs`` makes all static.
            takes: context values that the function takes as further keyword-only parameters, see ``CONTEXT``.
            deterministic: False for operators with random results.
            unused: names of parameters that the function does not express: a node that gives such an input, or sets such an
                attribute to something else than 0, -1 or "NONE", is refused by their names.

        Example:
            >>> @lower("ReduceMax", since=18, static=("axes",))
            ... def reduce_max(data, axes=None, *, keepdims=1, noop_with_empty_axes=0): ...
        """

        def register(function: Function) -> Function:
            positions = _positions(function, static)
            if unknown := set(takes) - CONTEXT:
                raise ValueError(f"{operator} takes {sorted(unknown)}; the context has {sorted(CONTEXT)}")
            if unknown := set(unused) - set(inspect.signature(function).parameters):
                raise ValueError(f"{function.__name__} has no parameters {sorted(unknown)}")
            self.add(Lowering(domain, operator, since, function, positions, frozenset(takes), deterministic, unused))
            return function

        return register

    def lower_all(self, family: Mapping[str, Callable[..., Any]], *, since: int = 1, domain: str = "") -> None:
        """Register a regular family, ``{"Abs": tf.abs, ...}``: operators without attributes, tensors in, one tensor out.

        Args:
            family: operator type -> function of the inputs.
            since: first opset that they serve.
            domain: ONNX domain.
        """
        for operator, function in family.items():
            self.add(Lowering(domain, operator, since, function))


def _positions(function: Callable[..., Any], names: tuple[str, ...]) -> frozenset[int]:
    parameters = inspect.signature(function).parameters
    order = list(parameters)
    if unknown := set(names) - set(order):
        raise ValueError(f"{function.__name__} has no parameters {sorted(unknown)}")
    positions = {order.index(name) for name in names}
    for name in names:
        if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            positions |= set(range(order.index(name), 1024))
    return frozenset(positions)
