"""From an ONNX graph to an ``fx.GraphModule``."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir
from torch import fx

from exporters._graph.context import Context, find_unsupported
from exporters._graph.nodes import array_of
from exporters._graph.prepare import infer_shapes, prepare
from exporters._graph_signature import signature_of
from exporters.errors import UnsupportedOperatorError
from exporters.torch import ops as _ops  # noqa: F401  # fills the operator table
from exporters.torch._builder import FOLD_ELEMENTS, Builder
from exporters.torch._rebuild import DOMAIN, rebuild_layers
from exporters.torch._table import TABLE
from exporters.torch._tree import identifiers
from exporters.torch._values import array_to_tensor
from exporters.torch._writer import GraphWriter, Weight, known
from interop import Signature
from interop.structure import Constant, Leaf, Node, Structure

__all__ = ["lower_model"]


def lower_model(
    model: ir.Model, signature: Signature | None = None, parameters: Mapping[str, bool] | None = None
) -> fx.GraphModule:
    """Lower an ONNX model.

    Args:
        model: the model; it is not changed.
        signature: its signature, where more is known than the graph says; then the graph's own shapes are trusted.
        parameters: ``{initializer name: trainable}`` of the torch parameters and buffers; None where the model does not say
            which they are: then all its float initializers of one axis and more are parameters.

    Returns:
        A module in evaluation mode that is called as the original was. Its ``meta`` has the ``"signature"``, and as ``"names"``
        where each weight of the model stands in it.

    Raises:
        UnsupportedOperatorError: naming every node that torch cannot express.
        TranslationError: the model is older than the table and cannot be upgraded.
    """
    model = prepare(model)
    if signature is None or signature.arguments is None:
        signature = signature or signature_of(model.graph)
        model = infer_shapes(model)
    context = Context(dict(model.opset_imports) | {DOMAIN: 1}, dict(model.functions.items()))
    if unsupported := find_unsupported(model, context, TABLE):
        raise UnsupportedOperatorError("torch", unsupported)
    model = rebuild_layers(model, anonymous=parameters is None)
    builder = Builder(context)
    env: dict[ir.Value, Any] = {}
    _bind_inputs(builder.writer, model.graph, signature, env)
    for name, value in model.graph.initializers.items():
        env[value] = _initial(name, value, parameters, context)
    results = [builder.writer.tensor(result) for result in builder.run(model.graph, env)]
    outputs = dict(zip(signature.output_names, results))
    if signature.results is None:
        nested = results[0] if len(results) == 1 else tuple(results)
    else:
        nested = _nested(builder.writer, signature.results, outputs)
    return builder.writer.finish(nested, {"signature": signature, "names": builder.writer.tree.names})


def _nested(writer: GraphWriter, structure: Structure, outputs: Mapping[str, Any]) -> Any:
    """The results in their containers; lists and dicts are made by calls, because fx has its own kind of both."""
    if isinstance(structure, Leaf):
        return outputs[structure.name]
    if isinstance(structure, Constant):
        return structure.value
    children = tuple(_nested(writer, child, outputs) for child in structure.children)
    if structure.kind == "tuple":
        return children
    if structure.kind == "list":
        return writer.call(list, (children,))
    return writer.call(dict, (tuple(zip(structure.keys, children)),))


def _bind_inputs(writer: GraphWriter, graph: ir.Graph, signature: Signature, env: dict[ir.Value, Any]) -> None:
    """One placeholder an argument of the original, and the way from it to each tensor."""
    values = {value.name: value for value in graph.inputs if value.name not in graph.initializers}
    if signature.arguments is None:
        for name, value in zip(identifiers(map(str, values), "input"), values.values()):
            env[value] = writer.placeholder(name, value)
        return
    names = signature.parameter_names
    arguments: list[tuple[str, Structure]] = []
    for position, child in enumerate(signature.arguments.children):
        fallback = child.name if isinstance(child, Leaf) else f"argument_{position}"
        arguments.append((names[position] if position < len(names) else fallback, child))
    arguments += [(str(key), child) for key, child in zip(signature.keywords.keys, signature.keywords.children)]
    for name, (_, child) in zip(identifiers(name for name, _ in arguments), arguments):
        leaf = values[child.name] if isinstance(child, Leaf) else None
        # An argument that the export fixed is still taken, and not read.
        _take(writer, writer.placeholder(name, leaf), child, values, env)


def _take(writer: GraphWriter, made: Any, structure: Structure, values: Mapping[Any, ir.Value], env: Any) -> None:
    if isinstance(structure, Leaf):
        env[values[structure.name]] = made
    elif isinstance(structure, Node):
        for key, child in zip(structure.keys or range(len(structure.children)), structure.children):
            if isinstance(child, Constant):
                continue
            inner = writer.call(operator.getitem, (made, key))
            if isinstance(child, Leaf):
                writer.describe(inner, values[child.name])
            _take(writer, inner, child, values, env)


def _initial(name: str, value: ir.Value, parameters: Mapping[str, bool] | None, context: Context) -> Any:
    """A weight, or an array of what shapes the graph."""
    tensor = value.const_value
    assert tensor is not None
    is_named = parameters is not None and name in parameters
    if not is_named and (tensor.dtype == ir.DataType.STRING or not _is_weight(value, parameters, context)):
        return known(tensor)
    trainable: bool | None = tensor.dtype.is_floating_point() if parameters is None else parameters.get(name)
    if trainable is False or not tensor.dtype.is_floating_point():
        trainable = None
    return Weight(name, array_to_tensor(array_of(tensor)), trainable)


def _is_weight(value: ir.Value, parameters: Mapping[str, bool] | None, context: Context) -> bool:
    tensor = value.const_value
    assert tensor is not None
    if tensor.size > FOLD_ELEMENTS:
        return True
    if parameters is not None or not tensor.dtype.is_floating_point() or len(tensor.shape) == 0:
        return False
    table = TABLE.resolve(context.opsets)
    uses = [
        (table.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type)), at) for node, at in value.uses()
    ]
    return not all(entry is not None and entry.is_static(position) for entry, position in uses)
