"""Write an fx graph: inputs, weights, literals, and values in the form that a call wants them in.

While a graph is built, a value is an fx node, a ``Weight``, an array where it is known, or None where it is left out. A node
notes in its ``meta`` whether it gives a host array (``"host"``), whether of strings (``"string"``), and its type (``"type"``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import fx

from exporters._graph.context import declared_type
from exporters._graph.function_bodies import TensorType
from exporters._graph.nodes import array_of
from exporters.torch._tree import Tree, identifiers
from exporters.torch._values import Array, array_to_tensor, as_tensor, host, is_string, tensor_to_array
from interop.dtypes import DType, dtype_of

__all__ = ["GraphWriter", "Weight", "decoded", "known", "type_of"]


@dataclass(frozen=True, eq=False)
class Weight:
    """A parameter or buffer of the model.

    Attributes:
        name: the initializer's.
        tensor: its value.
        trainable: whether it is a parameter that requires gradients; None for a buffer.
    """

    name: str
    tensor: torch.Tensor
    trainable: bool | None


class GraphWriter:
    """Writes one fx graph.

    Attributes:
        graph: the fx graph.
        tree: the modules and weights that it calls and reads.
    """

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.tree = Tree()
        self._read: dict[Any, fx.Node] = {}
        self._first: fx.Node | None = None

    def placeholder(self, name: str, value: ir.Value | None = None) -> fx.Node:
        """Add an input, of the type that a value declares; its name is another one where an input has that already."""
        taken = [str(node.target) for node in self.graph.nodes if node.op == "placeholder"]
        node = self.graph.placeholder(identifiers([*taken, name], "input")[-1])
        node.meta["host"] = False
        if value is not None:
            self.describe(node, value)
        if self._first is None and not node.meta["host"]:
            self._first = node
        return node

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any] | None = None) -> fx.Node:
        """Call a function; what it gives is a tensor until ``describe`` says otherwise."""
        node = self.graph.call_function(function, arguments, dict(keywords or {}))
        node.meta["host"] = False
        return node

    def describe(self, made: fx.Node, value: ir.Value) -> None:
        """Note the type that the model declares for what a node gives; strings are on the host."""
        kind = declared_type(value)
        if kind is not None or "type" not in made.meta:
            made.meta["type"] = kind
        strings = value.dtype == ir.DataType.STRING
        made.meta["string"] = strings or made.meta.get("string", False)
        made.meta["host"] = made.meta.get("host", False) or strings

    def tensor(self, value: Any) -> Any:
        """A value as a tensor; strings stay an array."""
        if isinstance(value, Weight):
            return self._weight(value)
        if isinstance(value, np.ndarray):
            return self.literal(value) if is_string(value) else self._constant(value)
        if isinstance(value, fx.Node) and value.meta.get("host") and not value.meta.get("string"):
            return self._converted(value)
        return value

    def static(self, value: Any) -> Any:
        """A value as a list of numbers, or one number, where they are known."""
        if isinstance(value, Weight):
            value = tensor_to_array(value.tensor)
        if not isinstance(value, np.ndarray):
            return value
        return value.tolist() if value.dtype == np.int64 and value.ndim < 2 else self.literal(value)

    def on_host(self, value: Any) -> Any:
        """A value as a host array, which it is or which is known."""
        return self.literal(value) if isinstance(value, np.ndarray) else value

    def literal(self, array: Array) -> fx.Node:
        """A host array, written in the graph."""
        entry = dtype_of(array.dtype)
        made = self.graph.call_function(host, (array.astype(_written(entry)).tolist(), entry.name))
        made.meta.update(host=True, string=entry.kind == "string", type=type_of(array))
        return made

    def _converted(self, value: fx.Node) -> fx.Node:
        """The tensor of a host array, on the device of the first input."""
        if value not in self._read:
            kind = value.meta.get("type")
            dtype = "int64" if kind is None else dtype_of(kind.dtype).name
            with self.graph.inserting_after(value):
                made = self.graph.call_function(as_tensor, (value, self._first, dtype))
            made.meta.update(value.meta | {"host": False})
            self._read[value] = made
        return self._read[value]

    def _weight(self, weight: Weight) -> fx.Node:
        if weight not in self._read:
            path = self.tree.add_weight(weight.name, weight.tensor, trainable=weight.trainable)
            self._read[weight] = self._attribute(path)
        return self._read[weight]

    def _constant(self, array: Array) -> fx.Node:
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._read:
            self._read[key] = self._attribute(self.tree.add_constant(array_to_tensor(array)))
        return self._read[key]

    def _attribute(self, path: str) -> fx.Node:
        made = self.graph.create_node("get_attr", path)
        made.meta["host"] = False
        return made

    def finish(self, results: Any, metadata: Mapping[str, Any]) -> fx.GraphModule:
        """The module of all that was written.

        Args:
            results: what it returns, nested as it likes.
            metadata: goes on the module's ``meta``.
        """
        self.graph.output(results)
        self.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
        self.graph.lint()
        module = fx.GraphModule(self.tree.root, self.graph, "Model")
        self.tree.keep_constants_out_of_the_state(module)
        module.meta.update(metadata)
        return module.eval()


def type_of(value: Any) -> TensorType | None:
    """The type of a value while the graph is built, as far as it is known."""
    if isinstance(value, (Weight, np.ndarray)):
        holder = value.tensor if isinstance(value, Weight) else value
        return TensorType(dtype_of(holder.dtype).onnx or 0, tuple(holder.shape))
    found = value.meta.get("type") if isinstance(value, fx.Node) else None
    return found if isinstance(found, TensorType) else None


def _written(entry: DType) -> Any:
    """The type whose Python numbers a literal is written in."""
    if not entry.extension:
        return entry.numpy
    return np.float64 if entry.kind == "float" else np.int64


def known(tensor: ir.TensorProtocol) -> Array:
    """The array of an initializer; strings are ``str``."""
    return decoded(array_of(tensor))


def decoded(array: Array) -> Array:
    """An array whose strings, if it holds such, are ``str``."""
    if array.dtype != object:
        return array
    found = np.empty(array.shape, object)
    found.flat[:] = [
        item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item) for item in array.flat
    ]
    return found
