"""Find the layers again that an exporter wrote as several nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common as passes

from exporters._graph.nodes import array_of, domain_of
from exporters.torch._recurrent import DOMAIN, add_initializer, rebuild_recurrent, replace_node
from exporters.torch._tree import identifier

__all__ = ["DOMAIN", "rebuild_layers"]


def rebuild_layers(model: ir.Model, *, anonymous: bool) -> ir.Model:
    """Write products with a weight, with or without an addition of a vector, as nodes ``Linear``; and see ``_recurrent``.

    A weight whose transpose is taken is a torch layer's. One that is used as it stands is turned, and gets a new name, where
    the model does not say that it is a parameter.

    Args:
        model: the model; it is not changed.
        anonymous: whether the model does not say which of its weights are parameters.

    Returns:
        A model that shares the weights with the given one.
    """
    copied = model.clone()
    for node in list(copied.graph):
        if domain_of(node):
            continue
        if node.op_type in ("LSTM", "GRU", "RNN"):
            rebuild_recurrent(copied.graph, node, anonymous=anonymous)
        elif node.op_type == "MatMul":
            _rebuild_product(copied.graph, node, anonymous)
        elif node.op_type == "Gemm" and anonymous:
            _rebuild_gemm(copied.graph, node)
        elif node.op_type == "Conv":
            _drop_zero_bias(copied.graph, node)
    passes.RemoveUnusedNodesPass()(copied)
    return copied


def _rebuild_product(graph: ir.Graph, product: ir.Node, anonymous: bool) -> None:
    weight, turned = _transposed_weight(graph, product.inputs[1]), False
    if weight is None and anonymous and _is_own_weight(graph, product.inputs[1]):
        weight, turned = product.inputs[1], True
    if weight is None:
        return
    last, bias = product, None
    users = list(product.outputs[0].uses())
    if len(users) == 1 and users[0].node.op_type == "Add" and users[0].node.graph is graph:
        other = users[0].node.inputs[1 - users[0].idx]
        width = weight.const_value.shape[1 if turned else 0]
        if not product.outputs[0].is_graph_output() and _is_weight(graph, other, 1) and other.shape[0] == width:
            last, bias = users[0].node, other
    if turned:
        weight, bias = _turned(graph, last, weight, bias)
    inputs = [product.inputs[0], weight] if bias is None else [product.inputs[0], weight, bias]
    replace_node(graph, last, ir.node("Linear", inputs, domain=DOMAIN, name=last.name))
    if last is not product:
        graph.remove(product, safe=True)


def _rebuild_gemm(graph: ir.Graph, node: ir.Node) -> None:
    """One whose weight stands as ``(in, out)``."""
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    plain = (
        not given.get("transA") and not given.get("transB") and {given.get(k, 1.0) for k in ("alpha", "beta")} == {1.0}
    )
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not plain or not _is_own_weight(graph, node.inputs[1]) or not (bias is None or _is_weight(graph, bias, 1)):
        return
    if bias is not None and bias.shape[0] != node.inputs[1].shape[1]:
        return
    weight, bias = _turned(graph, node, node.inputs[1], bias)
    inputs = [node.inputs[0], weight] if bias is None else [node.inputs[0], weight, bias]
    replace_node(graph, node, ir.node("Linear", inputs, domain=DOMAIN, name=node.name))


def _turned(graph: ir.Graph, node: ir.Node, weight: Any, bias: Any) -> tuple[Any, Any]:
    """The weight ``(out, in)`` and the bias, as new initializers under the name of the layer."""
    prefix, count = identifier(node.name or "linear"), 1
    while f"{prefix}.weight" in graph.initializers:
        prefix, count = f"{identifier(node.name or 'linear')}_{count}", count + 1
    made = add_initializer(graph, f"{prefix}.weight", np.ascontiguousarray(array_of(weight.const_value).T))
    return made, None if bias is None else add_initializer(graph, f"{prefix}.bias", array_of(bias.const_value))


def _transposed_weight(graph: ir.Graph, value: Any) -> Any:
    """The weight ``(out, in)`` whose transpose a value is."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Transpose" or node.graph is not graph:
        return None
    order = node.attributes.get("perm")
    source = node.inputs[0]
    turned = order is None or list(order.value) == [1, 0]
    return source if turned and _is_weight(graph, source, 2) else None


def _is_own_weight(graph: ir.Graph, value: Any) -> bool:
    """A matrix that nothing else reads."""
    return _is_weight(graph, value, 2) and len(list(value.uses())) == 1 and not value.is_graph_output()


def _is_weight(graph: ir.Graph, value: Any, rank: int) -> bool:
    if value is None or value.name not in graph.initializers or graph.initializers[value.name] is not value:
        return False
    tensor = value.const_value
    return tensor is not None and tensor.dtype.is_floating_point() and len(tensor.shape) == rank


def _drop_zero_bias(graph: ir.Graph, node: ir.Node) -> None:
    """A bias of zeros without a name of its own is how torch.onnx writes a convolution without one."""
    if len(node.inputs) < 3 or not _is_weight(graph, node.inputs[2], 1):
        return
    bias = node.inputs[2]
    if "." not in (bias.name or "") and not bias.const_value.numpy().any():
        node.replace_input_with(2, None)
