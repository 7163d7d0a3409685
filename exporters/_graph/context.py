"""What an export fixes for all nodes, and which of them a table cannot lower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import onnx_ir as ir

from exporters._graph.function_bodies import TensorType, find_function
from exporters._graph.nodes import domain_of, operator_name, plain_attribute, unsupported_node
from exporters._graph.operator_table import Lowering, OperatorTable
from exporters.errors import Unsupported

__all__ = ["Context", "declared_type", "find_unsupported"]


@dataclass(frozen=True)
class Context:
    """What an export fixes for all nodes.

    Attributes:
        opsets: domain -> version, as the model (or a function) imports them.
        functions: the model's own functions, by ``(domain, name, overload)``.
        attributes: the attributes of the call, while a function's body is lowered.
    """

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], ir.Function] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def inside(self, function: ir.Function, attributes: Mapping[str, Any]) -> Self:
        """The context of a function's body."""
        defaults = {
            name: plain_attribute(attribute)
            for name, attribute in function.attributes.items()
            if attribute.value is not None
        }
        opsets = dict(self.opsets) | dict(function.opset_imports)
        return replace(self, opsets=opsets, attributes=defaults | dict(attributes))


def declared_type(value: ir.Value) -> TensorType | None:
    """The type that the model declares for a tensor; None where it does not, or for a sequence or an optional."""
    if value.dtype is None or type(value.type).__name__ != "TensorType":
        return None
    shape = None if value.shape is None else tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    return TensorType(int(value.dtype), shape)


def find_unsupported(model: ir.Model, context: Context, table: OperatorTable) -> list[Unsupported]:
    """All nodes, in subgraphs and called functions too, that have no lowering that expresses them and no function body."""
    found: list[Unsupported] = []
    _collect(model.graph, context, table, found, ())
    return list(dict.fromkeys(found))


def _collect(
    graph: ir.Graph | ir.Function,
    context: Context,
    table: OperatorTable,
    found: list[Unsupported],
    within: tuple[str, ...],
) -> None:
    lowered = table.resolve(context.opsets)
    for node in ir.traversal.RecursiveGraphIterator(graph):
        if (entry := lowered.get((domain_of(node), node.op_type))) is not None:
            if reason := _refusal(entry, node):
                found.append(unsupported_node(node, reason))
            continue
        types = [None if value is None else declared_type(value) for value in node.inputs]
        function = find_function(node, context.functions, context.opsets, types)
        name = operator_name(node)
        if function is None:
            inside = f" (in the body of {' > '.join(within)})" if within else ""
            found.append(unsupported_node(node, f"there is no lowering for it{inside}"))
        elif name in within:
            found.append(unsupported_node(node, "its function body calls itself"))
        else:
            _collect(function, context.inside(function, {}), table, found, (*within, name))


def _refusal(entry: Lowering, node: ir.Node) -> str:
    plain = {
        name: plain_attribute(attribute)
        for name, attribute in node.attributes.items()
        if name in entry.unused and not attribute.is_ref()
    }
    return entry.refusal(node.inputs, plain)
