"""The signature of an ONNX graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop import Signature, TensorSpec
from interop.dtypes import dtype_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["signature_of"]


def signature_of(graph: ir.Graph) -> Signature:
    """The flat inputs and outputs of a graph, without inputs that only give an initializer another value."""
    inputs = tuple(_spec(value) for value in graph.inputs if value.name not in graph.initializers)
    return Signature(inputs, tuple(_spec(value) for value in graph.outputs))


def _spec(value: ir.Value) -> TensorSpec:
    dtype = "float32" if value.dtype is None else dtype_of(int(value.dtype)).name
    if value.shape is None:
        return TensorSpec(value.name or "", dtype, None, _kind(value))
    dims = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    return TensorSpec(value.name or "", dtype, dims, _kind(value))


def _kind(value: ir.Value) -> str:
    """What a value is: a tensor, or what holds tensors."""
    outer, inner = type(value.type).__name__, type(getattr(value.type, "elem_type", None)).__name__
    if outer == "OptionalType":
        return "optional_sequence" if inner == "SequenceType" else "optional"
    return "sequence" if outer == "SequenceType" else "tensor"
