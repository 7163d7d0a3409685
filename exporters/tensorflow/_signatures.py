"""Further signatures: some of a model's outputs under a name of their own, and the part of the graph that they need."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from exporters.errors import OptionsError
from interop import Signature

__all__ = ["RESERVED", "check_signatures", "part_of"]

RESERVED = ("serving_default", "training")
"""Names of signatures that have a meaning already."""


def check_signatures(signatures: Any) -> dict[str, tuple[str, ...]]:
    """``{signature: output names}`` from what a caller gave.

    Raises:
        OptionsError: another form, no outputs, or a name that is taken.
    """
    form = "signatures is {'name': 'output'} or {'name': ['output', ...]}"
    if not isinstance(signatures, Mapping):
        raise OptionsError(f"{form}, got {signatures!r}")
    found = {}
    for name, outputs in signatures.items():
        if not isinstance(name, str) or not name or name in RESERVED or name.startswith("__"):
            raise OptionsError(f"{name!r} cannot name a signature: {', '.join(RESERVED)} and names in __ are taken")
        chosen = (outputs,) if isinstance(outputs, str) else outputs
        if not isinstance(chosen, Sequence) or not chosen or not all(isinstance(item, str) for item in chosen):
            raise OptionsError(f"{form}, got {outputs!r} for {name!r}")
        found[name] = tuple(dict.fromkeys(chosen))
    return found


def part_of(graph: ir.Graph, signature: Signature, name: str, outputs: Sequence[str]) -> tuple[Any, Signature]:
    """What of a graph some of its outputs need.

    Args:
        graph: the graph.
        signature: its inputs and outputs, in the graph's order.
        name: what the part is called in errors.
        outputs: names of the wanted outputs.

    Returns:
        A view of the graph with the nodes that the outputs need, and its signature: the wanted outputs in the given order,
        and of the inputs those that they need, in the model's order. Its call is flat: inputs by position or by name.

    Raises:
        OptionsError: the model has no such output.
    """
    places = {output: place for place, output in enumerate(signature.output_names)}
    for output in outputs:
        if output not in places:
            near = difflib.get_close_matches(output, places, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionsError(
                f"signature {name!r}: the model has no output {output!r}, its outputs are {', '.join(places)}{hint}"
            )
    wanted = [graph.outputs[places[output]] for output in outputs]
    nodes, read = _needed(graph, wanted)
    real = [value for value in graph.inputs if value.name not in graph.initializers]
    kept = [(value, spec) for value, spec in zip(real, signature.inputs, strict=True) if value in read]
    view = ir.GraphView(
        [value for value, _ in kept], wanted, nodes=nodes, initializers=tuple(graph.initializers.values())
    )
    chosen = tuple(signature.outputs[places[output]] for output in outputs)
    return view, Signature(tuple(spec for _, spec in kept), chosen)


def _needed(graph: ir.Graph, wanted: Sequence[ir.Value]) -> tuple[list[ir.Node], set[ir.Value]]:
    """The nodes that some values need, in the graph's order, and all values that those read."""
    read = set(wanted)
    nodes = list(graph)
    if not any(node.op_type == "Gradient" for node in nodes):  # it names values in its attributes, so keep everything
        nodes = _reaching(nodes, read)
    read.update(value for node in nodes for value in _reads(node))
    return nodes, read


def _reaching(nodes: Sequence[ir.Node], wanted: set[ir.Value]) -> list[ir.Node]:
    missing, found = set(wanted), []
    for node in reversed(nodes):
        if not missing.isdisjoint(node.outputs):
            found.append(node)
            missing.update(_reads(node))
    return found[::-1]


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, inside its branches and loop bodies too."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
            yield from attribute.as_graph().outputs
            for inner in attribute.as_graph():
                yield from _reads(inner)
