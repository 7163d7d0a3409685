"""The way in which a correction replaces one TensorFlow node by ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from tf2onnx import utils

__all__ = ["RefusedError", "Rewrite"]

Array = np.ndarray[Any, Any]


def _slice(data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    return data[int(starts[0]) : int(ends[0]) : 1 if steps is None else int(steps[0])]


_COMPUTED: dict[str, Callable[..., Array]] = {
    "Cast": lambda data: data,
    "Identity": lambda data: data,
    "Slice": _slice,
    "Div": np.divide,
    "Mul": np.multiply,
}
"""Operators on vectors of sizes, as ``tf.image.resize`` uses them to find its scale."""


class RefusedError(Exception):
    """A node that ONNX cannot express; the message says why."""


class Rewrite:
    """One TensorFlow node that is being replaced.

    Args:
        graph: tf2onnx's graph.
        node: the node; it is removed when the last new one is given.

    Attributes:
        inputs: names of its inputs.
    """

    def __init__(self, graph: Any, node: Any) -> None:
        self._graph, self._name = graph, node.name
        self.inputs: list[str] = list(node.input)
        self._outputs, self._shapes, self._dtypes = list(node.output), node.output_shapes, node.output_dtypes

    def dtype(self, value: str) -> int:
        """The ONNX element type of a value."""
        found = self._graph.get_dtype(value)
        if found is None:
            raise RefusedError("the dtype of its input is not known")
        return int(found)

    def rank(self, value: str) -> int:
        """How many dims a value has."""
        shape = self._graph.get_shape(value)
        if shape is None:
            raise RefusedError("the rank of its input is not known")
        return len(shape)

    def shape(self, value: str) -> list[int]:
        """The dims of a value, -1 where one is not known."""
        self.rank(value)
        return list(self._graph.get_shape(value))

    def known(self, value: str) -> np.ndarray[Any, Any] | None:
        """The array of a constant, or what follows from constants and known dims; None for any other value.

        A dim that is not known is -1 in it.
        """
        node = self._graph.get_node_by_output(value)
        if node is None:
            return None
        if node.is_const():
            return np.asarray(node.get_tensor_value(as_list=False))
        if node.type == "Shape":
            dims = self._graph.get_shape(node.input[0])
            return None if dims is None else np.array(dims)
        compute = _COMPUTED.get(node.type)
        operands = [] if compute is None else [self.known(name) for name in node.input]
        if compute is None or any(operand is None for operand in operands):
            return None
        return np.asarray(compute(*operands))

    @property
    def output_dtype(self) -> int:
        """The ONNX element type of its first output."""
        return int(self._dtypes[0])

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A constant, with a NumPy dtype."""
        node = self._graph.make_const(utils.make_name("const"), np.asarray(value, dtype))
        return str(node.output[0])

    def like(self, value: Any, dtype: int) -> str:
        """A constant of an ONNX element type."""
        return self.constant(value, onnx.helper.tensor_dtype_to_np_dtype(dtype))

    def op(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A new node with one output; gives its name."""
        node = self._graph.make_node(operator, list(inputs), attr=attributes, domain=domain)
        return str(node.output[0])

    def cast(self, value: str, dtype: int) -> str:
        """The value in another element type."""
        return value if self._graph.get_dtype(value) == dtype else self.op("Cast", value, to=dtype)

    def give(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> None:
        """The last node, which takes the place of the removed one."""
        self._graph.remove_node(self._name)
        self._graph.make_node(
            operator,
            list(inputs),
            attr=attributes,
            name=self._name,
            outputs=self._outputs[:1],
            shapes=self._shapes[:1],
            dtypes=self._dtypes[:1],
            domain=domain,
        )
