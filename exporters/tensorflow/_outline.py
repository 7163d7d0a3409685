"""The lowered graph without its weights: which operator, module and line a TensorFlow tensor comes from.

It is small enough to travel inside a SavedModel, where ``interop.check`` reads it to say which node differs first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx
import onnx_ir as ir
import tensorflow as tf

from exporters._provenance import user_frame

__all__ = ["TENSORS", "outline_of", "tensor_names"]

TENSORS = "tensor_interop.tensors"
"""The metadata key of a node's TensorFlow tensors, one a line and in the order of its outputs; a folded one is empty."""

_KEPT = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy", "tensor_interop.source")


def tensor_names(values: Mapping[ir.Value, Any]) -> dict[str, str]:
    """``{value name: TensorFlow tensor name}`` of the values that are tensors of the graph being traced.

    Args:
        values: what the lowering made of each value.
    """
    found = {value.name: tensor for value, tensor in values.items() if tf.is_symbolic_tensor(tensor)}
    return {name: str(tensor.name) for name, tensor in found.items() if name}


def outline_of(graph: ir.Graph, tensors: Mapping[str, str]) -> bytes:
    """A serialized ONNX model of the graph's nodes: names, operators, origins and tensors, no attributes, no weights.

    Args:
        graph: the graph.
        tensors: see ``tensor_names``.
    """
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in graph.opset_imports.items()]
    model = onnx.helper.make_model(_graph(graph, graph, tensors), opset_imports=opsets, producer_name="tensor-interop")
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _graph(graph: ir.Graph, nodes: Iterable[ir.Node], tensors: Mapping[str, str]) -> onnx.GraphProto:
    found = onnx.GraphProto(name="outline", node=[_node(node, tensors) for node in nodes])
    found.input.extend(_info(value) for value in graph.inputs if value.name not in graph.initializers)
    found.output.extend(_info(value) for value in graph.outputs)
    return found


def _info(value: ir.Value) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=value.name or "")


def _node(node: ir.Node, tensors: Mapping[str, str]) -> onnx.NodeProto:
    inputs = ["" if value is None else value.name or "" for value in node.inputs]
    outputs = [value.name or "" for value in node.outputs]
    found = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name or "", input=inputs, output=outputs)
    for name, attribute in node.attributes.items():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():  # what a branch reads is an input too
            body = attribute.as_graph()
            found.attribute.append(onnx.helper.make_attribute(name, _graph(body, body, {})))
    metadata = {key: node.metadata_props[key] for key in _KEPT if key in node.metadata_props}
    if trace := node.metadata_props.get("pkg.torch.onnx.stack_trace"):
        metadata["tensor_interop.source"] = user_frame(trace)
    if any(name in tensors for name in outputs):
        metadata[TENSORS] = "\n".join(tensors.get(name, "") for name in outputs)
    for key, text in metadata.items():
        found.metadata_props.add(key=key, value=text)
    return found
