"""``as_strided`` reads the memory behind a tensor; ONNX has values only, and torch.onnx takes each for one in order of rows.

So a view (``x.t()``, ``x[1:]``) that is read so is traced back to the value that owns the memory, and that one is put in the
order in which it lies there.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false

from exporters._provenance import user_frame
from exporters.errors import Unsupported, UnsupportedOperatorError
from exporters.onnx._calls import calls_of, graphs_of

__all__ = ["storage_as_values"]

_AS_STRIDED = torch.ops.aten.as_strided.default
_PERMUTE = torch.ops.aten.permute.default


def storage_as_values(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with every ``as_strided`` on a value whose rows lie in memory one after the other; often the same program.

    Raises:
        UnsupportedOperatorError: some of the memory that is read belongs to no value of the program.
    """
    if not any(_reads_other_order(node) for node in _readers(program.graph_module)):
        return program
    module = copy.deepcopy(program.graph_module)  # without the weights, which the program has
    rows = [row for node in _readers(module) if (row := _in_order(node)) is not None]
    if rows:
        raise UnsupportedOperatorError("ONNX", rows)
    for inner in graphs_of(module):
        inner.recompile()
    changed = copy.copy(program)
    changed._graph_module = module
    return changed


def _readers(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in calls_of(module) if node.target == _AS_STRIDED]


def _reads_other_order(node: torch.fx.Node) -> bool:
    owner = _owner(_source(node))
    value = owner.meta["val"]
    return owner is not _source(node) or _order(value) != list(range(value.ndim)) or value.storage_offset() != 0


def _in_order(node: torch.fx.Node) -> Unsupported | None:
    """Change the node; where that cannot be done, why not."""
    source = _source(node)
    owner = _owner(source)
    order = _order(owner.meta["val"])
    size, stride, *given = node.args[1:]
    offset = next(iter(given), node.kwargs.get("storage_offset"))
    if offset is None:
        offset = source.meta["val"].storage_offset()
    if order is None or owner.meta["val"].storage_offset() != 0 or isinstance(offset, torch.SymInt):
        reason = (
            "it reads memory that belongs to no value of the program; write that place with indices, unfold or narrow"
        )
        return Unsupported("aten.as_strided", node.name, reason, user_frame(node.stack_trace or ""))
    if order != sorted(order):
        value = owner.meta["val"]
        with node.graph.inserting_before(node):
            owner = node.graph.call_function(_PERMUTE, (owner, order))
        with value.fake_mode:
            owner.meta = {**node.meta, "val": _PERMUTE(value, order)}
    node.args, node.kwargs = (owner, size, stride, offset), {}
    return None


def _source(node: torch.fx.Node) -> torch.fx.Node:
    source = node.args[0]
    assert isinstance(source, torch.fx.Node)  # by the operator's schema
    return source


def _owner(node: torch.fx.Node) -> torch.fx.Node:
    """The value that a view is of, by the memory that the two share."""
    owner = node
    while node.op == "call_function" and node.args and isinstance(before := node.args[0], torch.fx.Node):
        if _memory(before) is None or _memory(before) != _memory(node):
            break
        node = before
        if isinstance(node.meta["val"], torch.Tensor):  # split and the like give a list of views
            owner = node
    return owner


def _memory(node: torch.fx.Node) -> Any:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return next((each.untyped_storage()._cdata for each in values if isinstance(each, torch.Tensor)), None)


def _order(value: torch.Tensor) -> list[int] | None:
    """The axes from the slowest to the fastest in memory, or None where there are gaps in it, or it is not known."""
    rows = list(range(value.ndim))
    if is_contiguous_or_false(value):
        return rows
    sizes, strides = [[_hint(each) for each in numbers] for numbers in (value.shape, value.stride())]
    order = sorted(rows, key=lambda axis: (-strides[axis], axis))
    step = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != step:
            return None
        step *= sizes[axis]
    return order


def _hint(number: Any) -> int:
    """A size of the example; -1 where it follows from the values of tensors."""
    hint = number.node.hint if isinstance(number, torch.SymInt) else number
    return -1 if hint is None else int(hint)
