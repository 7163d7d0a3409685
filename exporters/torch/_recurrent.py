"""Recurrent nodes whose weights are those of a torch layer, cut in gates and joined in ONNX's order.

torch.onnx writes the reordering as nodes. Where it is nothing else (which is checked on the values), the node takes the
layer's own weights, and torch's own kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from exporters._graph.nodes import array_of
from exporters.torch._table import HOST

__all__ = ["DOMAIN", "add_initializer", "rebuild_recurrent", "replace_node"]

DOMAIN = "tensor_interop"
"""The domain of the nodes that stand for torch's own layers."""

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""For each gate of torch, in order, its place in ONNX's order."""

_MOVES = frozenset({"Slice", "Concat", "Unsqueeze", "Squeeze", "Transpose", "Reshape", "Identity"})

_NAME = re.compile(r"(.*)\.(weight_ih|weight_hh|bias_ih|bias_hh)_l(\d+)(_reverse)?")

_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}


def rebuild_recurrent(graph: ir.Graph, node: ir.Node, *, anonymous: bool) -> None:
    """Replace an LSTM, GRU or RNN node, where torch's kernels compute it.

    Args:
        graph: the graph that it stands in; it is changed.
        node: the node.
        anonymous: whether weights without the names of a torch layer may get such names.
    """
    mode = _mode(node)
    if mode is None:
        return
    arrays = [_evaluate(graph, _input(node, position)) for position in (1, 2, 3)]
    if arrays[0] is None or arrays[1] is None or (arrays[2] is None and _input(node, 3) is not None):
        return
    wanted = list(_torch_weights(node.op_type, *arrays))
    weights = _named_weights(graph, node, wanted)
    if weights is None and anonymous:
        weights = _new_weights(graph, node, wanted)
    if weights is None:
        return
    reverse = int(_attribute(node, "direction", "forward") == "reverse")
    match = _NAME.fullmatch(weights[0].name or "")
    alone = int(match is not None and match[3] == "0" and f"{match[1]}.weight_ih_l1" not in graph.initializers)
    attributes = {
        "mode": mode,
        "hidden_size": int(arrays[1].shape[2]),
        "reverse": reverse,
        "layout": int(_attribute(node, "layout", 0)),
        "alone": alone,
    }
    inputs = [node.inputs[0], _input(node, 5), _input(node, 6) if mode == "LSTM" else None, *weights]
    replace_node(
        graph,
        node,
        ir.node("Recurrent", inputs, attributes, domain=DOMAIN, name=node.name, num_outputs=len(node.outputs)),
    )


def replace_node(graph: ir.Graph, node: ir.Node, made: ir.Node) -> None:
    """Put a new node in the place of another; its outputs take over name, type and uses."""
    made.metadata_props.update(node.metadata_props)
    graph.insert_after(node, made)
    for old, new in zip(node.outputs, made.outputs):
        new.name, new.type, new.shape = old.name, old.type, old.shape
        for index, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[index] = new
        ir.convenience.replace_all_uses_with(old, new)
    graph.remove(node, safe=True)


def add_initializer(graph: ir.Graph, name: str, array: Any) -> ir.Value:
    """A new initializer of a graph."""
    value = ir.Value(name=name, const_value=ir.tensor(array))
    graph.register_initializer(value)
    return value


def _mode(node: ir.Node) -> str | None:
    """Torch's word for the kernel; None where the node asks for more than it does."""
    if any(_input(node, position) is not None for position in (4, 7)) or _attribute(node, "clip", None) is not None:
        return None
    if _attribute(node, "input_forget", 0) or (
        node.op_type == "GRU" and not _attribute(node, "linear_before_reset", 0)
    ):
        return None
    given = tuple(name.lower() for name in _attribute(node, "activations", ()))
    if node.op_type == "RNN":
        names = set(given or ("tanh",))
        return f"RNN_{names.pop().upper()}" if names in ({"tanh"}, {"relu"}) else None
    expected = _ACTIVATIONS[node.op_type]
    return node.op_type if given in ((), expected, expected * 2) else None


def _attribute(node: ir.Node, name: str, default: Any) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value


def _input(node: ir.Node, position: int) -> Any:
    return node.inputs[position] if position < len(node.inputs) else None


def _evaluate(graph: ir.Graph, value: Any) -> Any:
    """The array of a value that is made of initializers by moving their elements; else None."""
    if value is None:
        return None
    if value.name in graph.initializers and graph.initializers[value.name] is value:
        return array_of(value.const_value)
    node = value.producer()
    if node is None or node.op_type not in _MOVES or node.graph is not graph:
        return None
    inputs = [_evaluate(graph, x) for x in node.inputs]
    if any(array is None and x is not None for array, x in zip(inputs, node.inputs)):
        return None
    attributes = {name: _list(attribute.value) for name, attribute in node.attributes.items()}
    return HOST[node.op_type](*inputs, **attributes)


def _list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _torch_weights(operator: str, w: Any, r: Any, b: Any) -> Iterator[tuple[str, Any]]:
    """The weights of a torch layer by name, in the order in which its kernels take them."""
    gates = _GATES[operator]

    def ordered(array: Any) -> Any:
        parts = np.split(array, len(gates))
        return np.concatenate([parts[gate] for gate in gates])

    for direction in range(w.shape[0]):
        suffix = "_reverse" if direction else ""
        yield f"weight_ih_l0{suffix}", ordered(w[direction])
        yield f"weight_hh_l0{suffix}", ordered(r[direction])
        if b is not None:
            own, recurrent = np.split(b[direction], 2)
            yield f"bias_ih_l0{suffix}", ordered(own)
            yield f"bias_hh_l0{suffix}", ordered(recurrent)


def _named_weights(graph: ir.Graph, node: ir.Node, wanted: list[tuple[str, Any]]) -> list[Any] | None:
    """The initializers that have the names and the values of the layer's weights."""
    sources = [source for position in (1, 2, 3) for source in _sources(graph, _input(node, position))]
    by_place = {}
    for source in sources:
        match = _NAME.fullmatch(source.name or "")
        if match is not None:
            by_place[match[1], match[3], match[2] + (match[4] or "")] = source
    layers = {key[:2] for key in by_place}
    if len(layers) != 1:
        return None
    (layer,) = layers
    found = []
    for name, array in wanted:
        source = by_place.get((*layer, name.replace("_l0", "")))
        if source is None or not np.array_equal(array_of(source.const_value), array):
            return None
        found.append(source)
    return found


def _sources(graph: ir.Graph, value: Any) -> Iterator[Any]:
    if value is None:
        return
    if value.name in graph.initializers:
        yield value
    elif (node := value.producer()) is not None:
        for x in node.inputs:
            yield from _sources(graph, x)


def _new_weights(graph: ir.Graph, node: ir.Node, wanted: list[tuple[str, Any]]) -> list[Any]:
    """New initializers, under the name of the operator and a number."""
    prefix, count = node.op_type.lower(), 1
    while f"{prefix}.weight_ih_l0" in graph.initializers:
        prefix, count = f"{node.op_type.lower()}_{count}", count + 1
    return [add_initializer(graph, f"{prefix}.{name}", np.ascontiguousarray(array)) for name, array in wanted]
