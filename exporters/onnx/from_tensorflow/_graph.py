"""Order and names of a converted graph: the same for every conversion of one model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from interop import Signature

__all__ = ["name_boundary", "name_inside", "sort_nodes"]

_COUNTER = re.compile(r"__\d+|_frozen_\d+|__inference_\w+?_\d+|(?<=einsum)\d+")
"""Counters and addresses of this process."""
_PORT = re.compile(r":0$")
_WRAPPERS = re.compile(r"^((Func|(Stateful)?PartitionedCall(_\d+)?)/)+")
"""Calls of one function by another, which are gone."""


def sort_nodes(graph: ir.Graph) -> None:
    """Put nodes and initializers into the order in which the outputs need them, whatever order they were found in."""
    found: dict[ir.Node, None] = {}
    for value in graph.outputs:
        _visit(value, graph, found)
    nodes = list(graph)
    for node in nodes:
        graph.remove(node)
    graph.extend(found)
    needed = {value.name: None for node in found for value in _read(node) if value.name in graph.initializers}
    for node in found:
        for attribute in node.attributes.values():
            for body in _bodies(attribute):
                body.name = attribute.name
                sort_nodes(body)
    kept = [graph.initializers[name] for name in needed]
    graph.initializers.clear()
    graph.initializers.update({value.name: value for value in kept})


def _visit(value: ir.Value, graph: ir.Graph, found: dict[ir.Node, None]) -> None:
    """Add what leads to a value, without recursion: models are deeper than Python's stack."""
    waiting: list[tuple[ir.Node, Iterator[ir.Value]]] = []

    def enter(node: ir.Node | None) -> None:
        if node is not None and node.graph is graph and node not in found:
            waiting.append((node, iter(list(_read(node)))))

    enter(value.producer())
    while waiting:
        node, inputs = waiting[-1]
        below = next(inputs, None)
        if below is not None:
            enter(below.producer())
        else:
            found[node] = None
            waiting.pop()


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, also inside its subgraphs."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        for body in _bodies(attribute):
            for inner in body:
                yield from _read(inner)
            yield from body.outputs


def _bodies(attribute: ir.Attr) -> Iterable[ir.Graph]:
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    return attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else []


def name_inside(graph: ir.Graph, taken: Iterable[str]) -> None:
    """Give nodes and values TensorFlow's names without tf2onnx's counters, numbered where they are equal.

    Args:
        graph: the graph, sorted.
        taken: names of its inputs and outputs, which no other value may have.
    """
    boundary = {*graph.inputs, *graph.outputs}
    values, nodes = _Names(taken), _Names(())
    for value in list(graph.initializers.values()):
        value.name = values.free(value.name)
    for inner in _all_graphs(graph):
        if inner is not graph:
            for value in (*inner.inputs, *inner.initializers.values()):
                value.name = values.free(value.name)
        for node in inner:
            node.name = nodes.free(node.name or node.op_type)
            for value in node.outputs:
                if value not in boundary and value.name:
                    value.name = values.free(value.name)


def _all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for attribute in node.attributes.values():
            for body in _bodies(attribute):
                yield from _all_graphs(body)


class _Names:
    def __init__(self, taken: Iterable[str]) -> None:
        self._used = set(taken)
        self._next: dict[str, int] = {}

    def free(self, name: str | None) -> str:
        """A name near this one that no other has."""
        base = _WRAPPERS.sub("", _PORT.sub("", _COUNTER.sub("", name or "value"))) or "value"
        candidate = base
        while candidate in self._used:
            self._next[base] = self._next.get(base, 0) + 1
            candidate = f"{base}_{self._next[base]}"
        self._used.add(candidate)
        return candidate


def name_boundary(graph: ir.Graph, signature: Signature) -> None:
    """Give inputs and outputs their names and dims, in the signature's order."""
    inputs = {value.name: value for value in graph.inputs}
    ordered = [inputs[f"interop_input_{position}:0"] for position in range(len(signature.inputs))]
    graph.inputs.clear()
    graph.inputs.extend(ordered)
    for value, spec in zip((*ordered, *graph.outputs), (*signature.inputs, *signature.outputs)):
        value.name = spec.name
        value.shape = None if spec.shape is None else ir.Shape(spec.shape)
