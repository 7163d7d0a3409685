"""Loops that fill a TensorArray: tf2onnx takes one row an iteration, in their order, wherever they were written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tf2onnx import utils
from tf2onnx.onnx_opset.controlflow import TensorListFromTensor, While
from tf2onnx.tf_loader import find_function

from exporters.onnx.from_tensorflow._rewrite import RefusedError

__all__ = ["convert_list", "convert_while"]


def convert_list(graph: Any, node: Any) -> None:
    """Convert a tensor that a loop reads row by row; tf2onnx leaves an Identity with two inputs."""
    TensorListFromTensor.version_7(graph, node)
    if node.type == "Identity":
        graph.replace_inputs(node, list(node.input[:1]))


def convert_while(graph: Any, node: Any) -> None:
    """Convert a loop, and give the rows that it writes their places.

    Rows that it writes from the last to the first are turned round afterwards; of a single row that it writes again and again
    the last one is kept.

    Raises:
        RefusedError: it writes rows in another order.
    """
    body = find_function(node.get_attr_str("body"))
    writes = [(node.output[place], slicing) for place, slicing in _unordered_writes(body, node)]
    stacks = [(stack, slicing) for output, slicing in writes for stack in _stacks(graph, output)]
    While.version_7(graph, node)
    for stack, slicing in stacks:
        _slice(graph, stack.output[0], slicing)


_TURNED = (-1, np.iinfo(np.int64).min, -1)
_LAST = (-1, np.iinfo(np.int64).max, 1)
"""Start, end and step of the rows."""


def _unordered_writes(body: Any, loop: Any) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """The loop variables that are TensorArrays filled otherwise than row by row, and the slice that makes up for it."""
    for node in body.get_nodes():
        if node.type != "TensorListSetItem" or _is_counter(body, loop, node.input[1]):
            continue
        places = [place for place, name in enumerate(body.outputs) if _source(body, name) == node.output[0]]
        if places and _is_backward(body, loop, node.input[1]):
            yield places[0], _TURNED
        elif places and _is_fixed(body, node.input[1]) and _has_one_row(loop.inputs[places[0]]):
            yield places[0], _LAST
        else:
            raise RefusedError(
                f"{node.name} writes the rows of a TensorArray in an order that an ONNX Loop does not have"
            )


def _is_backward(body: Any, loop: Any, index: str) -> bool:
    """Whether an index is a fixed number minus the counter."""
    node = body.get_node_by_output(_source(body, index))
    is_difference = node is not None and node.type == "Sub"
    return is_difference and _is_fixed(body, node.input[0]) and _is_counter(body, loop, node.input[1])


def _has_one_row(array: Any) -> bool:
    size = array.inputs[1] if array.type == "TensorListReserve" else None
    return size is not None and size.is_const() and bool(np.all(size.get_tensor_value(as_list=False) == 1))


def _is_counter(body: Any, loop: Any, value: str) -> bool:
    place = _place(body, value)
    if place is None:
        return False
    if place == 0:
        return True  # TensorFlow's own counter
    step = body.get_node_by_output(_source(body, body.outputs[place]))
    start = loop.inputs[place]
    if step is None or step.type not in ("Add", "AddV2") or not start.is_const():
        return False
    others = [name for name in step.input if _place(body, name) != place]
    one = body.get_node_by_output(_source(body, others[0])) if len(others) == 1 else None
    is_one = one is not None and one.is_const() and np.all(one.get_tensor_value(as_list=False) == 1)
    return bool(is_one and np.all(start.get_tensor_value(as_list=False) == 0))


def _is_fixed(body: Any, value: str) -> bool:
    """Whether a value is the same in every iteration."""
    place = _place(body, value)
    if place is not None:
        return place == 1 or _place(body, body.outputs[place]) == place
    node = body.get_node_by_output(_source(body, value))
    return node is not None and not node.is_graph_input() and all(_is_fixed(body, name) for name in node.input)


def _place(body: Any, value: str) -> int | None:
    """Which loop variable a value is at the start of an iteration."""
    source = _source(body, value)
    return body.input_names.index(source) if source in body.input_names else None


def _source(body: Any, value: str) -> str:
    node = body.get_node_by_output(value)
    while node is not None and node.type in ("Identity", "Cast"):
        value = node.input[0]
        node = body.get_node_by_output(value)
    return value


def _stacks(graph: Any, output: str) -> Iterator[Any]:
    for consumer in graph.find_output_consumers(output):
        if consumer.type == "TensorListStack":
            yield consumer
        elif consumer.type == "Identity":
            yield from _stacks(graph, consumer.output[0])
        else:
            raise RefusedError(f"its TensorArray, which is not filled row by row, is read by {consumer.type}")


def _slice(graph: Any, value: str, slicing: tuple[int, int, int]) -> None:
    start, end, step = slicing
    arrays = [np.array([number], np.int64) for number in (start, end, 0, step)]
    inputs = [graph.make_const(utils.make_name("rows"), array).output[0] for array in arrays]
    rows = graph.insert_new_node_on_output("Slice", value, name=utils.make_name("rows"), inputs=[value, *inputs])
    graph.copy_shape(value, rows.output[0])
    graph.copy_dtype(value, rows.output[0])
