"""Function bodies: a model's own functions, and those that the ONNX schemas carry for many operators."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx
import onnx_ir as ir

__all__ = ["TensorType", "find_function"]


class TensorType(NamedTuple):
    """ONNX element type and dims (None where unknown) of one input."""

    dtype: int
    shape: tuple[int | None, ...] | None


def find_function(
    node: ir.Node,
    functions: Mapping[tuple[str, str, str], ir.Function],
    opsets: Mapping[str, int],
    types: Sequence[TensorType | None],
) -> ir.Function | None:
    """The body of the function that a node calls.

    Args:
        node: the node.
        functions: the model's own functions.
        opsets: domain -> version, in force where the node stands.
        types: the types of the node's inputs, which some schemas build their body from.

    Returns:
        The function, or None where the operator has no body.
    """
    own = functions.get((node.domain, node.op_type, node.overload or ""))
    if own is not None:
        return own
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = opsets.get(domain, 1)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        return _fixed_body(node.op_type, version, domain)
    if schema.has_context_dependent_function:
        return _context_body(schema, node, version, types)
    return None


@functools.lru_cache(maxsize=512)
def _fixed_body(operator: str, version: int, domain: str) -> ir.Function | None:
    schema = onnx.defs.get_schema(operator, version, domain)
    fitting = [body for body in schema.function_opset_versions if body <= version]
    if not fitting:
        return None
    data = schema.get_function_with_opset_version(max(fitting))
    return _parse(data, operator, domain, max(fitting))


def _context_body(
    schema: onnx.defs.OpSchema, node: ir.Node, version: int, types: Sequence[TensorType | None]
) -> ir.Function | None:
    fitting = [body for body in schema.context_dependent_function_opset_versions if body <= version]
    if not fitting:
        return None
    protos = [_type_proto(entry) for entry in types]
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name or "")
    proto.input.extend("" if value is None else value.name or f"input_{i}" for i, value in enumerate(node.inputs))
    proto.output.extend(value.name or f"output_{i}" for i, value in enumerate(node.outputs))
    for attribute in node.attributes.values():
        if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            proto.attribute.append(ir.to_proto(attribute))
    data = schema.get_context_dependent_function_with_opset_version(max(fitting), proto.SerializeToString(), protos)
    return _parse(data, node.op_type, node.domain, max(fitting)) if data else None


def _type_proto(entry: TensorType | None) -> bytes:
    if entry is None:
        return bytes(onnx.TypeProto().SerializeToString())
    made = onnx.helper.make_tensor_type_proto(entry.dtype, entry.shape)
    return bytes(made.SerializeToString())


def _parse(data: bytes | onnx.FunctionProto, operator: str, domain: str, version: int) -> ir.Function:
    proto = data if isinstance(data, onnx.FunctionProto) else onnx.FunctionProto.FromString(data)
    if not proto.opset_import:
        proto.opset_import.append(onnx.helper.make_opsetid("", version))
    proto.name, proto.domain = operator, domain
    _add_defaults(proto, operator, domain, version)
    return ir.from_proto(proto)


def _add_defaults(proto: onnx.FunctionProto, operator: str, domain: str, version: int) -> None:
    """Give the body the schema's attribute defaults, which onnx leaves out of it."""
    for name, attribute in onnx.defs.get_schema(operator, version, domain).attributes.items():
        default = attribute.default_value
        if default.name and name not in [entry.name for entry in proto.attribute_proto]:
            if name in proto.attribute:
                proto.attribute.remove(name)
            proto.attribute_proto.append(default)
