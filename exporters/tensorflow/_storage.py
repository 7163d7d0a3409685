"""In which order of axes a weight is stored: the one that TensorFlow's own layers have, where only their likes read it."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["stored_order"]

_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})


def stored_order(value: ir.Value) -> list[int] | None:
    """The transpose that a weight is stored in; None for ONNX's own order.

    The filter of a convolution is stored as (*window, in, out), the matrix of a linear layer as (in, out), those of recurrent
    layers as (directions, in, gates * out): TensorFlow's products are up to a quarter slower with a transposed matrix.

    Args:
        value: an initializer.
    """
    tensor = value.const_value
    assert tensor is not None
    if tensor.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE) or value.is_graph_output() or not value.uses():
        return None
    rank = len(tensor.shape)
    uses = value.uses()
    if rank > 2 and all(node.op_type in _CONVOLUTIONS and position == 1 for node, position in uses):
        return [*range(2, rank), 1, 0]
    if rank == 3 and all(node.op_type in _RECURRENT and position in (1, 2) for node, position in uses):
        return [0, 2, 1]
    if rank == 2 and all(_turns(node, position) for node, position in uses):
        return [1, 0]
    return None


def _turns(node: ir.Node, position: int) -> bool:
    """Whether a node wants a matrix transposed."""
    if node.op_type == "Gemm":
        turned = node.attributes.get("transB")
        return position == 1 and turned is not None and turned.value == 1
    return node.op_type == "Transpose" and all(user.op_type == "MatMul" for user, _ in node.outputs[0].uses())
