"""TensorFlow operators that tf2onnx 1.17 converts wrongly, or leaves in the file where no runtime can load them.

Each is a function of the node being replaced and its attributes. The truth for each is TensorFlow's own value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from exporters.onnx.from_tensorflow._loops import convert_list, convert_while
from exporters.onnx.from_tensorflow._resize import resize_area, resize_bicubic, scale_and_translate
from exporters.onnx.from_tensorflow._rewrite import RefusedError, Rewrite

__all__ = ["CORRECTIONS", "handlers"]

Correction = Callable[[Rewrite, Any], None]

_TYPE = onnx.TensorProto
_FLOATS = (_TYPE.FLOAT, _TYPE.DOUBLE, _TYPE.FLOAT16)
_WIDER = {
    _TYPE.INT8: _TYPE.INT32,
    _TYPE.UINT8: _TYPE.INT32,
    _TYPE.INT16: _TYPE.INT32,
    _TYPE.UINT16: _TYPE.INT32,
    _TYPE.UINT32: _TYPE.INT64,
    _TYPE.INT32: _TYPE.INT32,
    _TYPE.INT64: _TYPE.INT64,
}
"""Integer types that ONNX Runtime divides in, by the type of the operands."""


def floor_div(new: Rewrite, node: Any) -> None:
    """Rounds down; tf2onnx rounds integers towards zero."""
    left, right = new.inputs
    if new.dtype(left) in _FLOATS:
        new.give("Floor", new.op("Div", left, right))
        return
    kind = new.dtype(left)
    left, right, zero = *_widened(new, left, right), new.like(0, _wider(kind))
    rest = new.op("Mod", left, right, fmod=1)
    is_exact = new.op("Equal", rest, zero)
    is_crossing = new.op("Xor", new.op("Less", rest, zero), new.op("Less", right, zero))
    is_lower = new.op("And", new.op("Not", is_exact), is_crossing)
    below = new.op("Sub", new.op("Div", left, right), new.cast(is_lower, _wider(kind)))
    new.give("Cast", below, to=kind)


def floor_mod(new: Rewrite, node: Any) -> None:
    """Takes the sign of the divisor; tf2onnx gives integers that of the dividend."""
    left, right = new.inputs
    kind = new.dtype(left)
    if kind not in _FLOATS:
        new.give("Cast", new.op("Mod", *_widened(new, left, right)), to=kind)
        return
    zero = new.like(0, kind)
    rest = new.op("Mod", left, right, fmod=1)
    is_crossing = new.op("Xor", new.op("Less", rest, zero), new.op("Less", right, zero))
    moves = new.op("And", new.op("Not", new.op("Equal", rest, zero)), is_crossing)
    new.give("Where", moves, new.op("Add", rest, right), rest)


def truncate_mod(new: Rewrite, node: Any) -> None:
    """Takes the sign of the dividend."""
    left, right = new.inputs
    kind = new.dtype(left)
    if kind in _FLOATS:
        new.give("Mod", left, right, fmod=1)
    else:
        new.give("Cast", new.op("Mod", *_widened(new, left, right), fmod=1), to=kind)


def truncate_div(new: Rewrite, node: Any) -> None:
    """Integer division towards zero."""
    kind = new.dtype(new.inputs[0])
    new.give("Cast", new.op("Div", *_widened(new, *new.inputs)), to=kind)


def _wider(kind: int) -> int:
    if kind not in _WIDER:
        raise RefusedError(f"ONNX Runtime has no integer division for {_name(kind)}; cast to int64 before it")
    return int(_WIDER[kind])


def _widened(new: Rewrite, left: str, right: str) -> tuple[str, str]:
    kind = _wider(new.dtype(left))
    return new.cast(left, kind), new.cast(right, kind)


def one_hot(new: Rewrite, node: Any) -> None:
    """All off for an index outside 0..depth-1; ONNX counts negative ones from the end."""
    indices, depth, on, off = new.inputs
    rank, kind = new.rank(indices), new.dtype(indices)
    axis = node.get_attr_value("axis", -1)
    axis = rank if axis == -1 else axis
    classes = new.op("Range", new.like(0, kind), new.cast(_scalar(new, depth), kind), new.like(1, kind))
    dims = [1] * (rank + 1)
    dims[axis] = -1
    classes = new.op("Reshape", classes, new.constant(dims, np.int64))
    spread = new.op("Unsqueeze", indices, new.constant([axis], np.int64))
    new.give("Where", new.op("Equal", spread, classes), on, off)


def _scalar(new: Rewrite, value: str) -> str:
    return value if new.rank(value) == 0 else new.op("Reshape", value, new.constant([], np.int64))


def scatter_nd(new: Rewrite, node: Any) -> None:
    """Sums the updates of an index that is given more than once; tf2onnx keeps the last."""
    indices, updates, shape = new.inputs
    kind = new.dtype(updates)
    empty = new.op("Expand", new.like(0, kind), new.cast(shape, _TYPE.INT64))
    new.give("ScatterND", empty, new.cast(indices, _TYPE.INT64), updates, reduction="add")


def erfc(new: Rewrite, node: Any) -> None:
    """``1 - erf(x)``: what exact GELU is made of."""
    (value,) = new.inputs
    new.give("Sub", new.like(1, new.dtype(value)), new.op("Erf", value))


def xlogy(new: Rewrite, node: Any) -> None:
    """``x * log(y)``, and 0 where x is 0."""
    left, right = new.inputs
    _where_zero(new, left, new.op("Mul", left, new.op("Log", right)))


def xlog1py(new: Rewrite, node: Any) -> None:
    """``x * log(1 + y)``, and 0 where x is 0."""
    left, right = new.inputs
    shifted = new.op("Add", right, new.like(1, new.dtype(right)))
    _where_zero(new, left, new.op("Mul", left, new.op("Log", shifted)))


def xdivy(new: Rewrite, node: Any) -> None:
    """``x / y``, and 0 where x is 0."""
    left, right = new.inputs
    _where_zero(new, left, new.op("Div", left, right))


def div_no_nan(new: Rewrite, node: Any) -> None:
    """``x / y``, and 0 where y is 0."""
    left, right = new.inputs
    _where_zero(new, right, new.op("Div", left, right))


def _where_zero(new: Rewrite, value: str, otherwise: str) -> None:
    zero = new.like(0, new.dtype(value))
    new.give("Where", new.op("Equal", value, zero), zero, otherwise)


def matrix_inverse(new: Rewrite, node: Any) -> None:
    """ONNX Runtime's own operator: the standard has none."""
    (value,) = new.inputs
    if node.get_attr_value("adjoint", 0):
        rank = new.rank(value)
        value = new.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])
    new.give("Inverse", value, domain="com.microsoft")


def lower_bound(new: Rewrite, node: Any) -> None:
    """How many of the sorted values are smaller: ``tf.searchsorted(side="left")``."""
    _count(new, "Less")


def upper_bound(new: Rewrite, node: Any) -> None:
    """How many of the sorted values are not larger: ``tf.searchsorted(side="right")``."""
    _count(new, "LessOrEqual")


def _count(new: Rewrite, comparison: str) -> None:
    """Rows of sorted values (n, s) and of values (n, v) to counts (n, v)."""
    ordered = new.op("Unsqueeze", new.inputs[0], new.constant([1], np.int64))
    values = new.op("Unsqueeze", new.inputs[1], new.constant([2], np.int64))
    found = new.cast(new.op(comparison, ordered, values), _TYPE.INT64)
    counts = new.op("ReduceSum", found, new.constant([2], np.int64), keepdims=0)
    new.give("Cast", counts, to=new.output_dtype)


def broadcast_args(new: Rewrite, node: Any) -> None:
    """The shape that two shapes broadcast to."""
    lengths = [new.shape(value)[0] for value in new.inputs]
    if min(lengths) < 0:
        raise RefusedError("the ranks of the shapes that it broadcasts have to be known")
    kind, rank = new.output_dtype, max(lengths)
    shapes = []
    for value, length in zip(new.inputs, lengths):
        ones = new.like([1] * (rank - length), kind)
        shapes.append(new.op("Concat", ones, value, axis=0) if length < rank else value)
    left, right = shapes
    new.give("Where", new.op("Equal", left, new.like(1, kind)), right, left)


def _name(kind: int) -> str:
    return str(_TYPE.DataType.Name(kind)).lower()


CORRECTIONS: dict[str, Correction] = {
    "FloorDiv": floor_div,
    "FloorMod": floor_mod,
    "TruncateMod": truncate_mod,
    "TruncateDiv": truncate_div,
    "OneHot": one_hot,
    "ScatterNd": scatter_nd,
    "Erfc": erfc,
    "Xlogy": xlogy,
    "Xlog1py": xlog1py,
    "Xdivy": xdivy,
    "DivNoNan": div_no_nan,
    "MatrixInverse": matrix_inverse,
    "LowerBound": lower_bound,
    "UpperBound": upper_bound,
    "BroadcastArgs": broadcast_args,
    "ResizeArea": resize_area,
    "ResizeBicubic": resize_bicubic,
    "ScaleAndTranslate": scale_and_translate,
}
"""TensorFlow operator -> its correction."""


def handlers() -> dict[str, tuple[Callable[..., None], list[Any]]]:
    """The table as tf2onnx takes it: ``custom_op_handlers``."""

    def handle(correction: Correction) -> Callable[..., None]:
        def handler(graph: Any, node: Any, name: str, args: Any) -> None:
            correction(Rewrite(graph, node), node)

        return handler

    def whole(convert: Callable[[Any, Any], None]) -> Callable[..., None]:
        return lambda graph, node, name, args: convert(graph, node)

    loop, rows = whole(convert_while), whole(convert_list)
    table: dict[str, tuple[Callable[..., None], list[Any]]]
    table = {operator: (handle(correction), []) for operator, correction in CORRECTIONS.items()}
    return {**table, "While": (loop, []), "StatelessWhile": (loop, []), "TensorListFromTensor": (rows, [])}
