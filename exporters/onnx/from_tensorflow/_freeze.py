"""A concrete function as one TensorFlow graph of operators and constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tf2onnx import tf_loader

from exporters.errors import TranslationError

__all__ = ["Frozen", "freeze"]

LIMIT_BYTES = 2**31 - 2**20
"""A frozen graph is one protobuf message, which holds less than 2 GiB."""


@dataclass(frozen=True)
class Frozen:
    """A frozen graph.

    Attributes:
        graph: the ``GraphDef``.
        inputs: names of its input tensors, in order.
        outputs: names of its output tensors, in order.
        tables: contents of lookup tables, as tf2onnx wants them.
        operators: ``{node name: operator}`` of all its nodes.
    """

    graph: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tables: Mapping[Any, Any]
    operators: Mapping[str, str]


def freeze(root: Any, function: Any, inputs: list[str], outputs: list[str]) -> Frozen:
    """Make every variable and captured value of a function a constant.

    Args:
        root: the owner of the variables and tables.
        function: a concrete function of keyword tensors that gives a dict.
        inputs: its keywords, in the order that is wanted.
        outputs: the keys of its result, likewise.

    Raises:
        TranslationError: the weights are larger than a graph can be.
    """
    _require_size(function)
    positional = _positional(function, inputs, outputs)
    own = positional.inputs[: len(positional.inputs) - len(positional.captured_inputs)]
    names, results = [tensor.name for tensor in own], [tensor.name for tensor in positional.outputs]
    captured = {inner.op.name: outer for outer, inner in positional.graph.captures if outer.dtype != tf.resource}
    with tf.device("/cpu:0"):
        graph, tables = tf_loader.from_trackable(root, positional, names, results, large_model=False)
    for node in graph.node:
        if node.op == "Placeholder" and node.name in captured:
            node.CopyFrom(_constant(node.name, captured[node.name]))
    bodies = [node for body in graph.library.function for node in body.node_def]
    return Frozen(graph, tuple(names), tuple(results), tables, {node.name: node.op for node in (*graph.node, *bodies)})


def _positional(function: Any, inputs: list[str], outputs: list[str]) -> Any:
    """The same function with inputs and outputs by position, so that their order is certain."""
    declared = _declared(function)
    specs = [
        tf.TensorSpec(declared[name].shape, declared[name].dtype, name=f"interop_input_{position}")
        for position, name in enumerate(inputs)
    ]

    def call(*tensors: Any) -> list[Any]:
        given = function(**dict(zip(inputs, tensors)))
        return [tf.identity(given[key], name=f"interop_output_{position}") for position, key in enumerate(outputs)]

    return tf.function(call, autograph=False).get_concrete_function(*specs)


def _declared(function: Any) -> Mapping[str, Any]:
    positional, keywords = function.structured_input_signature
    return {**dict(zip(function.function_type.parameters, positional)), **keywords}


def _require_size(function: Any) -> None:
    total = sum(_bytes_of(variable) for variable in (function.graph.variables or function.variables))
    if total > LIMIT_BYTES:
        raise TranslationError(
            f"the model's variables take {total / 2**30:.1f} GiB, and tf2onnx freezes a model into one message of less than 2 GiB; "
            "export a part of it, or its torch original"
        )


def _bytes_of(variable: Any) -> int:
    count = variable.shape.num_elements() or 0
    return int(count) * int(variable.dtype.size or 0)


def _constant(name: str, value: Any) -> Any:
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = value.dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.asarray(value), dtype=value.dtype))
    return node
