"""An ONNX graph as a TensorBoard GraphDef: nodes sit in the scopes of the torch modules that they come from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from interop.extras import require
from interop.parity.origin import Origin, origin_of

__all__ = ["GraphBuilder", "graph_def_of"]

_DTYPES = {
    "FLOAT": "DT_FLOAT",
    "DOUBLE": "DT_DOUBLE",
    "FLOAT16": "DT_HALF",
    "BFLOAT16": "DT_BFLOAT16",
    "INT8": "DT_INT8",
    "INT16": "DT_INT16",
    "INT32": "DT_INT32",
    "INT64": "DT_INT64",
    "UINT8": "DT_UINT8",
    "UINT16": "DT_UINT16",
    "UINT32": "DT_UINT32",
    "UINT64": "DT_UINT64",
    "BOOL": "DT_BOOL",
    "STRING": "DT_STRING",
    "COMPLEX64": "DT_COMPLEX64",
    "COMPLEX128": "DT_COMPLEX128",
}
"""ONNX's name -> TensorFlow's; what TensorFlow lacks is shown without a type."""
_TEXT_LIMIT = 200


def graph_def_of(model: Any) -> Any:
    """The GraphDef of an ``onnx_ir.Model``.

    Weights are nodes without their values. The body of a branch or loop stands in a scope below its node, and its results feed
    the node.
    """
    builder = GraphBuilder()
    builder.add_graph(model.graph)
    return builder.graph


class GraphBuilder:
    """Collects nodes under unique names.

    Attributes:
        graph: ``tensorboard.compat.proto.graph_pb2.GraphDef``.
    """

    def __init__(self) -> None:
        require("tensorboard", "to log a graph")
        from tensorboard.compat.proto.graph_pb2 import GraphDef

        self.graph = GraphDef()
        self.graph.versions.producer = 22
        self._names: set[str] = set()
        self._made_by: dict[int, str] = {}  # id of a value -> the node and output that give it

    def add_graph(self, graph: Any, scope: str = "") -> list[str]:
        """Add a graph or the body of a branch or loop.

        Returns:
            What its outputs are made by.
        """
        for value in graph.inputs:
            self._made_by[id(value)] = self._add(scope + value.name, "Placeholder", (), [value])
        for value in graph.initializers.values():
            self._made_by[id(value)] = self._add(scope + value.name.replace(".", "/"), "Const", (), [value])
        for position, node in enumerate(graph):
            self._add_node(node, scope, position)
        outputs = [self._made_by[id(value)] for value in graph.outputs if id(value) in self._made_by]
        if not scope:
            for value, maker in zip(graph.outputs, outputs):
                self._add(f"output/{value.name}", "Identity", [maker], [value])
        return outputs

    def _add_node(self, node: Any, scope: str, position: int) -> None:
        origin = _origin(node)
        place = f"{origin.module.replace('.', '/')}/" if origin.module else ""
        name = f"{scope}{place}{(node.name or f'{node.op_type}_{position}').replace('.', '_')}"
        inputs = [self._made_by[id(value)] for value in node.inputs if id(value) in self._made_by]
        for attribute in node.attributes.values():
            for body in _bodies(attribute):
                inputs += self.add_graph(body, f"{name}/{attribute.name}/")
        made = self._add(name, node.op_type, inputs, node.outputs, _describe(node, origin))
        for number, value in enumerate(node.outputs):
            self._made_by[id(value)] = f"{made}:{number}" if number else made

    def _add(
        self,
        name: str,
        operator: str,
        inputs: Iterable[str],
        values: Iterable[Any],
        texts: dict[str, str] | None = None,
    ) -> str:
        node = self.graph.node.add(name=self._unique(name), op=operator, input=inputs)
        for key, text in (texts or {}).items():
            node.attr[key].s = text.encode()
        for value in values:
            if value.shape is not None:
                shape = node.attr["_output_shapes"].list.shape.add()
                for dim in value.shape:
                    shape.dim.add(size=dim if isinstance(dim, int) else -1)
        first = next(iter(values), None)
        if first is not None and first.dtype is not None and first.dtype.name in _DTYPES:
            node.attr["dtype"].type = _number_of(_DTYPES[first.dtype.name])
        return str(node.name)

    def _unique(self, name: str) -> str:
        wanted = re.sub(r"[^\w./\-]", "_", name, flags=re.ASCII).strip("/") or "node"
        wanted = wanted if wanted[0].isalnum() else f"n{wanted}"  # TensorFlow's rule for names
        found, number = wanted, 0
        while found in self._names:
            number += 1
            found = f"{wanted}_{number}"
        self._names.add(found)
        return found


def _number_of(name: str) -> int:
    from tensorboard.compat.proto import types_pb2

    return int(types_pb2.DataType.Value(name))


def _origin(node: Any) -> Origin:
    entries = [SimpleNamespace(key=key, value=value) for key, value in node.metadata_props.items()]
    return origin_of(SimpleNamespace(metadata_props=entries))  # onnx_ir keeps as a dict what protobuf has as entries


def _bodies(attribute: Any) -> list[Any]:
    kind = attribute.type.name
    return [attribute.value] if kind == "GRAPH" else list(attribute.value) if kind == "GRAPHS" else []


def _describe(node: Any, origin: Origin) -> dict[str, str]:
    """What TensorBoard shows beside a node."""
    texts = {
        name: str(attribute.value)[:_TEXT_LIMIT]
        for name, attribute in node.attributes.items()
        if not _bodies(attribute)
    }
    texts |= {"domain": node.domain} if node.domain else {}
    texts |= {"torch_operator": origin.torch_operator} if origin.torch_operator else {}
    return texts | ({"source": origin.source} if origin.source else {})
