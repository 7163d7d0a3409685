"""Walk an ONNX graph and build the TensorFlow graph: one lowering a node, values by identity."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from exporters._graph.context import Context
from exporters._graph.function_bodies import TensorType, find_function
from exporters._graph.nodes import array_of, domain_of, operator_name, plain_attribute, source_of, unsupported_node
from exporters.errors import ExportError, UnsupportedOperatorError
from exporters.tensorflow._layout import lower_in_layout
from exporters.tensorflow._rows import lower_in_rows
from exporters.tensorflow._table import TABLE, Lowering
from exporters.tensorflow._tensors import RefusedError
from interop.dtypes import DTYPES, dtype_of

__all__ = ["Lowerer", "LoweringContext"]

# Folding is for shape arithmetic and small tables; larger results are cheaper to compute than to store.
FOLD_INPUT_ELEMENTS = 4096
FOLD_OUTPUT_ELEMENTS = 4096
STATIC_ELEMENTS = 256

Environment = MutableMapping[ir.Value, Any]

# What a lowering raises when TensorFlow or NumPy do not take its arguments.
_LOWERING_FAULTS = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    NotImplementedError,
    AssertionError,
    ZeroDivisionError,
    OverflowError,
    tf.errors.OpError,
)


@dataclass(frozen=True)
class LoweringContext(Context):
    """What an export fixes for all nodes.

    Attributes:
        training: whether BatchNormalization and Dropout behave as in training.
        update: in training, takes a running statistic (the value that holds it) and what it becomes.
    """

    training: bool = False
    update: Callable[[ir.Value, Any], None] | None = None


class Lowerer:
    """Lowers graphs into the TensorFlow graph that is being traced."""

    def __init__(self, context: LoweringContext) -> None:
        self._context = context
        self._table = TABLE.resolve(context.opsets)

    def run_graph(
        self, graph: ir.Graph | ir.GraphView | ir.Function, env: Environment, *, annotate: bool = False
    ) -> tuple[Any, ...]:
        """Lower all nodes of a graph.

        Args:
            graph: a graph, a part of one, a subgraph or a function.
            env: its inputs and initializers, and all values that it captures.
            annotate: give results the shapes that the model declares for them.

        Returns:
            Its outputs; tensors, or lists of tensors for sequences.
        """
        for node in graph:
            self._run_node(node, env, annotate)
        return tuple(None if value is None else _tensor(env[value]) for value in graph.outputs)

    def _run_node(self, node: ir.Node, env: Environment, annotate: bool) -> None:
        try:
            with tf.name_scope(_scope(node.name or node.op_type)):
                results = self._results(node, env)
                if annotate:
                    results = tuple(_annotated(value, result) for value, result in zip(node.outputs, results))
        except RefusedError as error:
            raise UnsupportedOperatorError("TensorFlow", [unsupported_node(node, str(error))]) from error
        except _LOWERING_FAULTS as error:
            place = f" ({source})" if (source := source_of(node)) else ""
            raise ExportError(
                f"lowering {operator_name(node)} at node {node.name!r}{place} failed: {type(error).__name__}: {error}"
            ) from error
        env.update((value, _known(result)) for value, result in zip(node.outputs, results))

    def _results(self, node: ir.Node, env: Environment) -> tuple[Any, ...]:
        inputs = [None if value is None else env[value] for value in node.inputs]
        attributes = self._attributes(node, env)
        entry = self._table.get((domain_of(node), node.op_type))
        if entry is not None:
            if "values" in entry.takes:
                attributes["values"] = {value.name: env[value] for value in env}
            return self._apply(entry, node, inputs, attributes)
        types = [None if x is None else _type_of(x) for x in inputs]
        function = find_function(node, self._context.functions, self._context.opsets, types)
        if function is None:
            raise RefusedError("there is no lowering for it")
        return self._call_function(function, inputs, attributes)

    def _apply(self, entry: Lowering, node: ir.Node, inputs: list[Any], attributes: dict[str, Any]) -> tuple[Any, ...]:
        while inputs and inputs[-1] is None:
            inputs.pop()
        foldable = entry.deterministic and _is_foldable(inputs, attributes)
        if "outputs" in entry.takes:
            attributes["outputs"] = len(node.outputs)
        if "training" in entry.takes:
            attributes["training"] = self._context.training
        if foldable:
            with tf.init_scope():
                results = _call(entry, inputs, attributes)
                if all(_is_small(result) for result in results):
                    return tuple(result.numpy() if isinstance(result, tf.Tensor) else result for result in results)
        results = _call(entry, inputs, attributes)
        if self._context.update is not None and node.op_type == "BatchNormalization":
            for value, moved in zip(node.inputs[3:5], results[1:3]):
                if value is not None:
                    self._context.update(value, moved)
        return results

    def _call_function(
        self, function: ir.Function, inputs: Sequence[Any], attributes: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        env: Environment = dict.fromkeys(function.inputs)
        env.update(zip(function.inputs, inputs))
        return Lowerer(self._context.inside(function, attributes)).run_graph(function, env)

    def _attributes(self, node: ir.Node, env: Environment) -> dict[str, Any]:
        found = {}
        for name, attribute in node.attributes.items():
            if attribute.is_ref():
                value = self._context.attributes.get(str(attribute.ref_attr_name))
            elif attribute.type == ir.AttributeType.GRAPH:
                value = self._branch(attribute.as_graph(), env)
            else:
                value = plain_attribute(attribute)
            if value is not None:
                found[name] = value
        return found

    def _branch(self, graph: ir.Graph, env: Environment) -> Callable[..., tuple[Any, ...]]:
        """A subgraph as a function of its inputs; outer values are captured."""

        def branch(*inputs: Any) -> tuple[Any, ...]:
            inner: Environment = ChainMap({}, env)
            for initializer in graph.initializers.values():
                assert initializer.const_value is not None
                inner[initializer] = array_of(initializer.const_value)
            inner.update(zip(graph.inputs, inputs))
            return self.run_graph(graph, inner)

        branch.graph = graph  # type: ignore[attr-defined]  # Loop and Scan read the declared types of a body
        return branch


def _call(entry: Lowering, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    arguments = [_static(x) if entry.is_static(position) else _tensor(x) for position, x in enumerate(inputs)]
    for lower_moved in (lower_in_layout, lower_in_rows):
        if (results := lower_moved(entry, arguments, attributes)) is not None:
            break
    else:
        results = entry.function(*arguments, **attributes)
    return results if isinstance(results, tuple) else (results,)


def _static(value: Any) -> Any:
    """The value as a NumPy array where it is known, otherwise as it is."""
    if not isinstance(value, tf.Tensor):
        return value
    known = tf.get_static_value(value)
    return value if known is None else np.asarray(known)


def _tensor(value: Any) -> Any:
    return tf.constant(value) if isinstance(value, (np.ndarray, np.generic)) else value


def _known(result: Any) -> Any:
    """Shape arithmetic stays on NumPy arrays, so that what follows can be folded too."""
    if not isinstance(result, tf.Tensor) or not (result.dtype.is_integer or result.dtype.is_bool):
        return result
    elements = result.shape.num_elements()
    return _static(result) if elements is not None and elements <= STATIC_ELEMENTS else result


def _is_foldable(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> bool:
    constants = [x for x in inputs if x is not None]
    return (
        bool(constants)
        and all(isinstance(x, (np.ndarray, np.generic)) for x in constants)
        and sum(np.size(x) for x in constants) <= FOLD_INPUT_ELEMENTS
        and not any(callable(value) for value in attributes.values())
    )


def _is_small(result: Any) -> bool:
    return result is None or (isinstance(result, tf.Tensor) and int(tf.size(result)) <= FOLD_OUTPUT_ELEMENTS)


def _annotated(value: ir.Value, result: Any) -> Any:
    """The result with the shape that the model declares, after a check that the element types agree."""
    if not isinstance(result, (tf.Tensor, np.ndarray)) or value.dtype is None:
        return result
    declared, given = dtype_of(int(value.dtype)), dtype_of(result.dtype)
    if declared is not given and declared is not DTYPES["string"]:
        raise TypeError(f"the result {value.name!r} is {given.name} where the model declares {declared.name}")
    if value.shape is not None and isinstance(result, tf.Tensor):
        dims = [dim if isinstance(dim, int) else None for dim in value.shape]
        return tf.ensure_shape(result, dims) if result.shape.rank is None else _with_shape(result, dims)
    return result


def _with_shape(result: Any, dims: list[int | None]) -> Any:
    result.set_shape(dims)
    return result


def _type_of(value: Any) -> TensorType | None:
    if not isinstance(value, (tf.Tensor, np.ndarray)):
        return None
    shape = (
        value.shape
        if isinstance(value, np.ndarray)
        else value.shape.as_list()
        if value.shape.rank is not None
        else None
    )
    return TensorType(dtype_of(value.dtype).onnx or 0, None if shape is None else tuple(shape))


def _scope(name: str) -> str:
    """A node's name in the letters that TensorFlow takes for a scope."""
    safe = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
    return safe if safe[:1].isalnum() else f"node{safe}"
