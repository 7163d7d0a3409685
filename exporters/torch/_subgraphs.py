"""The subgraphs of If, Loop, Scan and their like: modules inside a module that calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
from torch import fx, nn

__all__ = ["Body", "Subgraphs", "free_values"]


class Body:
    """A subgraph as a function of its inputs; outer values are given already.

    Attributes:
        module: the subgraph's module.
        inputs: how many inputs it has of its own.
        dtypes: the element types that it declares for its outputs, None where it does not.
    """

    def __init__(self, module: nn.Module, captured: Sequence[Any], dtypes: Sequence[str | None], inputs: int) -> None:
        self.module = module
        self.dtypes = list(dtypes)
        self.inputs = inputs
        self.captured = captured

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run it."""
        results: tuple[Any, ...] = self.module(*inputs, *self.captured)
        return results


class Subgraphs(nn.Module):
    """A node with subgraphs.

    Args:
        function: the lowering; its graph attributes get a ``Body``.
        bodies: the subgraphs by attribute.
        attributes: the other attributes.
        dtypes: see ``Body``, by attribute.
        inputs: likewise.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        bodies: Mapping[str, fx.GraphModule],
        attributes: Mapping[str, Any],
        dtypes: Mapping[str, Sequence[str | None]],
        inputs: Mapping[str, int],
    ) -> None:
        super().__init__()
        self._function = function
        self._attributes = dict(attributes)
        self._dtypes = dict(dtypes)
        self._inputs = dict(inputs)
        for name, body in bodies.items():
            self.add_module(name, body)

    def forward(self, inputs: Sequence[Any], captured: Sequence[Any]) -> Any:
        """Run the node on its inputs, and on the outer values that its subgraphs read."""
        bodies = {
            name: Body(self.get_submodule(name), captured, dtypes, self._inputs[name])
            for name, dtypes in self._dtypes.items()
        }
        return self._function(*inputs, **self._attributes, **bodies)


def free_values(graphs: Iterable[ir.Graph]) -> list[ir.Value]:
    """The outer values that subgraphs read, those of subgraphs inside them too, in order of their first use."""
    found: dict[ir.Value, None] = {}
    for graph in graphs:
        inner: set[ir.Value] = set()
        _collect(graph, inner, found)
    return list(found)


def _collect(graph: ir.Graph, inner: set[ir.Value], found: dict[ir.Value, None]) -> None:
    inner = inner | {*graph.inputs, *graph.initializers.values()}
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in inner:
                found[value] = None
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                _collect(attribute.as_graph(), inner, found)
        inner.update(node.outputs)
    for value in graph.outputs:
        if value is not None and value not in inner:
            found[value] = None
