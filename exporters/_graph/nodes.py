"""What a node says of itself: its operator, its place in the user's source, its attributes as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from exporters._provenance import user_frame
from exporters.errors import Unsupported

__all__ = ["array_of", "domain_of", "operator_name", "plain_attribute", "source_of", "unsupported_node"]


def domain_of(node: ir.Node) -> str:
    """The node's domain, with the default one as an empty string."""
    return "" if node.domain == "ai.onnx" else node.domain


def operator_name(node: ir.Node) -> str:
    """Operator type, with the domain where it is not the default one."""
    domain = domain_of(node)
    return f"{domain}::{node.op_type}" if domain else node.op_type


def source_of(node: ir.Node) -> str:
    """``file.py:line`` of the torch line that a node comes from, where the exporter left it."""
    return user_frame(node.metadata_props.get("pkg.torch.onnx.stack_trace", ""))


def unsupported_node(node: ir.Node, reason: str) -> Unsupported:
    """The record of a node that the target cannot express."""
    return Unsupported(operator_name(node), node.name or "", reason, source_of(node))


def array_of(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """The NumPy array of an ONNX tensor; strings become an object array of bytes."""
    if tensor.dtype == ir.DataType.STRING:
        return np.array(tensor.numpy(), dtype=object).reshape(tuple(tensor.shape.numpy()))
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def plain_attribute(attribute: ir.Attr) -> Any:
    """An attribute's value as a lowering takes it."""
    if attribute.type == ir.AttributeType.TENSOR:
        return array_of(attribute.as_tensor())
    if attribute.type == ir.AttributeType.TENSORS:
        return [array_of(tensor) for tensor in attribute.as_tensors()]
    return list(attribute.value) if isinstance(attribute.value, tuple) else attribute.value
