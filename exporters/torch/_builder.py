"""Walk an ONNX graph and write an fx graph: one lowering a node, values by identity."""

from __future__ import annotations

import operator
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch import fx

from exporters._graph.context import Context
from exporters._graph.function_bodies import find_function
from exporters._graph.nodes import domain_of, operator_name, plain_attribute, source_of, unsupported_node
from exporters.errors import ExportError, UnsupportedOperatorError
from exporters.torch._hosted import host_function, is_text
from exporters.torch._modules import Built, build_module
from exporters.torch._recurrent import DOMAIN
from exporters.torch._subgraphs import Subgraphs, free_values
from exporters.torch._table import TABLE, Lowering
from exporters.torch._tree import identifier
from exporters.torch._values import RefusedError, array_to_tensor, as_tensor, is_string, tensor_to_array
from exporters.torch._writer import GraphWriter, Weight, decoded, known, type_of
from interop.dtypes import dtype_of

__all__ = ["FOLD_ELEMENTS", "Builder", "Environment"]

FOLD_ELEMENTS = 4096
"""Folding is for shape arithmetic and small tables; larger results are cheaper to compute than to store."""

Environment = MutableMapping[ir.Value, Any]
"""Values as ``exporters.torch._writer`` has them."""

# What a lowering raises when torch or NumPy do not take its arguments.
_FAULTS = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    NotImplementedError,
    AssertionError,
    RuntimeError,
    ZeroDivisionError,
    OverflowError,
)


class Builder:
    """Lowers graphs into one fx graph.

    Attributes:
        writer: writes that graph.
    """

    def __init__(self, context: Context) -> None:
        self.writer = GraphWriter()
        self._context = context
        self._table = TABLE.resolve(context.opsets)

    def run(self, graph: ir.Graph | ir.Function, env: Environment) -> list[Any]:
        """Lower all nodes of a graph.

        Args:
            graph: a graph, a subgraph or a function.
            env: its inputs and initializers, and all values that it captures.

        Returns:
            Its outputs.
        """
        for node in graph:
            self._run_node(node, env)
        return [None if value is None else env[value] for value in graph.outputs]

    def _run_node(self, node: ir.Node, env: Environment) -> None:
        try:
            results = self._results(node, env)
        except RefusedError as error:
            raise UnsupportedOperatorError("torch", [unsupported_node(node, str(error))]) from error
        except _FAULTS as error:
            place = f" ({source})" if (source := source_of(node)) else ""
            raise ExportError(
                f"lowering {operator_name(node)} at node {node.name!r}{place} failed: {type(error).__name__}: {error}"
            ) from error
        for value, result in zip(node.outputs, results):
            if isinstance(result, fx.Node):
                self.writer.describe(result, value)
            env[value] = result

    def _results(self, node: ir.Node, env: Environment) -> Sequence[Any]:
        inputs = [None if value is None else env[value] for value in node.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        attributes = self._attributes(node)
        entry = self._table.get((domain_of(node), node.op_type))
        if entry is not None:
            if "outputs" in entry.takes:
                attributes["outputs"] = len(node.outputs)
            if "dtypes" in entry.takes:
                attributes["dtypes"] = [None if value.dtype is None else int(value.dtype) for value in node.outputs]
            return self._apply(entry, node, inputs, attributes, env)
        types = [None if x is None else type_of(x) for x in inputs]
        function = find_function(node, self._context.functions, self._context.opsets, types)
        if function is None:
            raise RefusedError("there is no lowering for it")
        return self._call_function(function, inputs, attributes)

    def _attributes(self, node: ir.Node) -> dict[str, Any]:
        """Attributes as a lowering takes them; a subgraph stays what it is."""
        found = {}
        for name, attribute in node.attributes.items():
            if attribute.is_ref():
                value = self._context.attributes.get(str(attribute.ref_attr_name))
            elif attribute.type == ir.AttributeType.GRAPH:
                value = attribute.as_graph()
            else:
                value = _shortest(plain_attribute(attribute), attribute.type)
            if value is not None:
                found[name] = decoded(value) if isinstance(value, np.ndarray) else value
        return found

    def _call_function(self, function: ir.Function, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
        env: Environment = dict.fromkeys(function.inputs)
        env.update(zip(function.inputs, inputs))
        outer, outer_table = self._context, self._table
        self._context = outer.inside(function, attributes)
        self._table = TABLE.resolve(self._context.opsets)
        try:
            return self.run(function, env)
        finally:
            self._context, self._table = outer, outer_table

    def _apply(
        self, entry: Lowering, node: ir.Node, inputs: list[Any], attributes: dict[str, Any], env: Environment
    ) -> Sequence[Any]:
        """The cheapest way to a node's results: now, on the host, by a module, by its lowering."""
        if any(isinstance(value, ir.Graph) for value in attributes.values()):
            return self._call_bodies(entry, node, inputs, attributes, env)
        if entry.deterministic and _is_foldable(inputs) and (folded := _fold(entry, inputs, attributes)) is not None:
            return folded
        if (on_host := self._call_host(entry, inputs, attributes)) is not None:
            return [on_host]
        if (results := self._call_module(node, inputs, attributes)) is not None:
            return results
        return self._call_lowering(entry, node, inputs, attributes)

    def _call_host(self, entry: Lowering, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """The call of an operator's function for host arrays, where it has one that fits."""
        function = host_function(entry, inputs, attributes)
        if function is None:
            return None
        writer = self.writer
        arguments = tuple(
            writer.static(x) if entry.is_static(position) and not is_text(x) else writer.on_host(x)
            for position, x in enumerate(inputs)
        )
        made = writer.call(function, arguments, attributes)
        made.meta["host"] = True
        return made

    def _call_module(self, node: ir.Node, inputs: Sequence[Any], attributes: dict[str, Any]) -> Sequence[Any] | None:
        """The call of an ``nn`` module, where there is one for the node and a place for it."""
        if domain_of(node) not in ("", DOMAIN):
            return None
        built = build_module(node, [_constant_tensor(x) for x in inputs], attributes)
        if built is None:
            return None
        sources = {name: inputs[position] for name, position in built.weights.items()}
        path = self._module_path(node, sources)
        if path is None:
            return None
        for name, source in sources.items():
            self._give(built.module, name, source)
        path = self.writer.tree.add_module(path, built.module.eval())
        for name, source in sources.items():
            if isinstance(source, Weight):
                self.writer.tree.names.setdefault(source.name, f"{path}.{name}")
        arguments = tuple(
            self.writer.tensor(inputs[position]) if position < len(inputs) else None for position in built.arguments
        )
        return self._call_built(built, path, arguments, len(node.outputs))

    def _call_built(self, built: Built, path: str, arguments: tuple[Any, ...], outputs: int) -> Sequence[Any]:
        writer = self.writer
        if built.prepare is None or built.finish is None:
            return [writer.graph.call_module(path, arguments)]
        prepared = writer.call(built.prepare, arguments, built.options)
        parts = tuple(writer.call(operator.getitem, (prepared, index)) for index in range(2))
        finished = writer.call(built.finish, (writer.graph.call_module(path, parts),), built.options)
        return [writer.call(operator.getitem, (finished, index)) for index in range(outputs)]

    def _give(self, module: torch.nn.Module, name: str, source: Any) -> None:
        """Set a weight of a module; one that does not train requires no gradient."""
        if isinstance(source, Weight):
            tensor, trainable = source.tensor, source.trainable
        else:
            tensor, trainable = array_to_tensor(source), None
        if name in module._buffers:
            setattr(module, name, tensor)
        elif trainable is None:
            setattr(module, name, torch.nn.Parameter(tensor, requires_grad=False))
        else:
            setattr(module, name, self.writer.tree.share(source.name, tensor, trainable))

    def _module_path(self, node: ir.Node, sources: Mapping[str, Any]) -> str | None:
        """Where a module's weights have the names that they have in the model; None where there is no such place."""
        names = {key: source.name for key, source in sources.items() if isinstance(source, Weight)}
        prefixes = {name.rpartition(".")[0] for name in names.values()}
        is_own = len(prefixes) == 1 and all(name.rpartition(".")[2] == key for key, name in names.items())
        if is_own and (prefix := prefixes.pop()):
            return prefix if self.writer.tree.is_free(prefix) else None
        if any("." in name for name in names.values()):
            return None
        return identifier(node.name or node.op_type.lower())

    def _call_lowering(
        self, entry: Lowering, node: ir.Node, inputs: Sequence[Any], attributes: dict[str, Any]
    ) -> Sequence[Any]:
        writer = self.writer
        arguments = tuple(
            writer.static(x) if entry.is_static(position) else writer.tensor(x) for position, x in enumerate(inputs)
        )
        literal = {name: writer.on_host(value) for name, value in attributes.items()}
        made = writer.call(entry.function, arguments, literal)
        made.meta["host"] = not entry.domain and entry.operator in ("Shape", "Size")
        return self._unpacked(made, node, entry)

    def _unpacked(self, made: fx.Node, node: ir.Node, entry: Lowering) -> Sequence[Any]:
        if not _gives_tuple(entry, self._context.opsets):
            return [made]
        return [self.writer.call(operator.getitem, (made, index)) for index in range(len(node.outputs))]

    def _call_bodies(
        self, entry: Lowering, node: ir.Node, inputs: Sequence[Any], attributes: dict[str, Any], env: Environment
    ) -> Sequence[Any]:
        """The call of a module that holds the subgraphs of a node, and takes the values that they capture."""
        bodies = {name: value for name, value in attributes.items() if isinstance(value, ir.Graph)}
        plain = {name: value for name, value in attributes.items() if name not in bodies}
        captured = [value for value in free_values(bodies.values()) if not isinstance(env.get(value), np.ndarray)]
        built = {name: self._body(graph, captured, env) for name, graph in bodies.items()}
        dtypes = {name: [_dtype_name(value) for value in graph.outputs] for name, graph in bodies.items()}
        counts = {name: len(graph.inputs) for name, graph in bodies.items()}
        module = Subgraphs(entry.function, built, plain, dtypes, counts)
        path = self.writer.tree.add_module(identifier(node.op_type.lower()), module)
        arguments = tuple(self.writer.tensor(x) for x in inputs)
        outer = tuple(
            self.writer.tensor(env[value]) if isinstance(env[value], Weight) else env[value] for value in captured
        )
        made = self.writer.graph.call_module(path, (arguments, outer))
        made.meta["host"] = False
        return self._unpacked(made, node, entry)

    def _body(self, graph: ir.Graph, captured: Sequence[ir.Value], env: Environment) -> fx.GraphModule:
        """A subgraph as a module of its inputs and the captured values."""
        inner = Builder(self._context)
        values: Environment = {value: found for value, found in env.items() if isinstance(found, np.ndarray)}
        for value in graph.inputs:
            values[value] = inner.writer.placeholder(value.name or "input", value)
        for value in captured:
            outer = env[value]
            made = inner.writer.placeholder(value.name or "captured", value)
            if isinstance(outer, fx.Node):
                made.meta.update(outer.meta)
            values[value] = None if outer is None else made
        for initializer in graph.initializers.values():
            assert initializer.const_value is not None
            values[initializer] = known(initializer.const_value)
        results = inner.run(graph, values)
        return inner.writer.finish(tuple(map(inner.writer.tensor, results)), {})


def _dtype_name(value: ir.Value) -> str | None:
    return None if value.dtype is None else dtype_of(int(value.dtype)).name


def _shortest(value: Any, kind: ir.AttributeType) -> Any:
    """A float attribute is float32: 1e-05, which torch takes for 64 bits, is written as 9.999999747378752e-06."""
    if kind == ir.AttributeType.FLOAT:
        return float(str(np.float32(value)))
    return [float(str(np.float32(item))) for item in value] if kind == ir.AttributeType.FLOATS else value


def _is_foldable(inputs: Sequence[Any]) -> bool:
    constants = [x for x in inputs if x is not None]
    return all(isinstance(x, np.ndarray) for x in constants) and sum(x.size for x in constants) <= FOLD_ELEMENTS


def _fold(entry: Lowering, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any] | None:
    """The results of a node whose inputs are known; None where they are too large to keep, or no tensors."""
    with torch.no_grad():
        arguments = [x if entry.is_static(position) else as_tensor(x) for position, x in enumerate(inputs)]
        results = entry.function(*arguments, **attributes)
    results = results if isinstance(results, tuple) else (results,)
    if not all(isinstance(x, (torch.Tensor, np.ndarray)) for x in results):
        return None
    arrays = [tensor_to_array(x) if isinstance(x, torch.Tensor) else x for x in results]
    return arrays if sum(x.size for x in arrays) <= FOLD_ELEMENTS else None


def _constant_tensor(value: Any) -> Any:
    """A value that is known for good, as a tensor; else None."""
    if isinstance(value, Weight):
        return value.tensor
    return as_tensor(value) if isinstance(value, np.ndarray) and not is_string(value) else None


# Operators with several outputs whose schemas are not onnx's.
_TUPLES = {
    (DOMAIN, "Recurrent"),
    ("", "SimplifiedLayerNormalization"),
    *(
        ("com.microsoft", operator)
        for operator in (
            "EmbedLayerNormalization",
            "GroupQueryAttention",
            "MultiHeadAttention",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
        )
    ),
}


def _gives_tuple(entry: Lowering, opsets: Mapping[str, int]) -> bool:
    """Whether the operator can have several outputs: then its lowering returns a tuple."""
    if (entry.domain, entry.operator) in _TUPLES:
        return True
    try:
        schema = onnx.defs.get_schema(entry.operator, opsets.get(entry.domain, 1), entry.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.max_output > 1)
