"""Channels-last layout across neighbouring nodes.

TensorFlow's CPU kernels for convolutions and pools are channels-last, ONNX values are channels-first. A lowering of such
an operator transposes its input and transposes its result back. The two functions for that cancel a pair that meets, and
``lower_in_layout`` moves what lies between (activations, sums, concatenations) to the inner side, so that a
convolutional network has one transpose at its begin and one at its end. What no one reads any more, TensorFlow prunes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._table import Lowering

__all__ = ["channels_first", "channels_last", "lower_in_layout", "transpose", "transposed_from"]

ELEMENTWISE: frozenset[str] = frozenset().union(
    {"Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Clip"},
    {"Cos", "Cosh", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater"},
    {"GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less"},
    {"LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow"},
    {"Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign"},
    {"Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor"},
)
"""Operators that work element by element with broadcasting."""

SCALED = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Element by element where their other inputs are single numbers."""

JOINED = frozenset({"Concat"})
"""Operators that only have an ``axis``, which moves with the layout."""

_MISSING = object()


def transpose(x: Any, order: Sequence[int]) -> Any:
    """Transpose; where that undoes the transpose that made ``x``, what it was made of."""
    inner = transposed_from(x)
    if inner is None or [inner[1][axis] for axis in order] != list(range(len(order))):
        return tf.transpose(x, order)
    source = inner[0]
    if x.shape.rank is not None:
        source.set_shape([x.shape[axis] for axis in order])
    return source


def transposed_from(x: Any) -> tuple[Any, list[int]] | None:
    """Source and permutation of the transpose that made a tensor of a graph."""
    operation = getattr(x, "op", None) if tf.is_symbolic_tensor(x) else None
    if operation is None or operation.type != "Transpose":
        return None
    order = tf.get_static_value(operation.inputs[1])
    return None if order is None else (operation.inputs[0], [int(axis) for axis in order])


def channels_last(x: Any) -> Any:
    """``[N, C, ...]`` to ``[N, ..., C]``."""
    return transpose(x, [0, *range(2, x.shape.rank), 1])


def channels_first(x: Any) -> Any:
    """``[N, ..., C]`` to ``[N, C, ...]``."""
    return transpose(x, [0, x.shape.rank - 1, *range(1, x.shape.rank - 1)])


def lower_in_layout(entry: Lowering, arguments: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Apply a lowering on the channels-last side of its inputs' transposes.

    Args:
        entry: the lowering.
        arguments: its inputs, as it takes them.
        attributes: its attributes.

    Returns:
        Its results, channels-first again; None where the operator or its inputs do not fit: then apply it as it is.
    """
    if entry.domain or entry.operator not in ELEMENTWISE | SCALED | JOINED:
        return None
    sources = [_channels_last_source(x) for x in arguments]
    ranks = {source.shape.rank for source in sources if source is not None}
    if len(ranks) != 1:
        return None
    rank = ranks.pop()
    if entry.operator in JOINED:
        attributes = {**attributes, "axis": _moved_axis(attributes["axis"], rank)}
    most = rank if entry.operator in ELEMENTWISE else 1 if entry.operator in SCALED else 0
    moved = [_moved(x, rank, most) if source is None else source for x, source in zip(arguments, sources)]
    if any(x is _MISSING for x in moved):
        return None
    results = entry.function(*moved, **attributes)
    return tuple(channels_first(result) for result in (results if isinstance(results, tuple) else (results,)))


def _channels_last_source(x: Any) -> Any:
    """The channels-last tensor that ``x`` is the channels-first transpose of, or None."""
    inner = transposed_from(x)
    if inner is None or len(inner[1]) < 3:
        return None
    source, order = inner
    if order != [0, len(order) - 1, *range(1, len(order) - 1)]:
        return None
    source.set_shape([x.shape[order.index(axis)] for axis in range(len(order))])
    return source


def _moved_axis(axis: int, rank: int) -> int:
    axis %= rank
    return 0 if axis == 0 else rank - 1 if axis == 1 else axis - 1


def _moved(x: Any, rank: int, most: int) -> Any:
    """A small operand that is broadcast, channels-last; ``_MISSING`` where it is not small.

    Args:
        x: the operand.
        rank: the rank of those that it meets.
        most: 1 where only a single number will do; 0 where nothing will.
    """
    if x is None:
        return None
    shape = x.shape.as_list() if isinstance(x, tf.Tensor) and x.shape.rank is not None else np.shape(x)
    if most == 0 or None in shape or len(shape) > rank or (isinstance(x, tf.Tensor) and x.shape.rank is None):
        return _MISSING
    long = [dim for dim in shape if dim != 1]
    if not long:
        return x
    if most == 1 or len(long) > 1:
        return _MISSING
    full = [1] * (rank - len(shape)) + list(shape)
    order = [0, *range(2, rank), 1]
    if isinstance(x, np.ndarray):
        return x.reshape(full).transpose(order)
    # All dims but one are 1, so that a reshape is a transpose.
    return tf.reshape(x, [full[axis] for axis in order])
