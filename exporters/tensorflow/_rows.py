"""Products of many rows with one matrix, and what follows them, on a matrix of rows.

``[batch, time, features]`` times a weight ``[features, out]`` is one product of ``batch * time`` rows. TensorFlow multiplies
matrices batch by batch when the batch has axes of its own, and adds biases and activations to products of plain matrices only.
A lowering flattens the rows and restores their shape; ``lower_in_rows`` moves what follows (a bias, an activation) to the
inner side, and a product takes its rows from there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from exporters.tensorflow._layout import transposed_from
from exporters.tensorflow._table import Lowering
from exporters.tensorflow._tensors import shape_of

__all__ = ["lower_in_rows", "multiply_rows", "multiply_turned"]

FOLLOWERS = frozenset({"Add", "Gelu", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})
"""Operators that TensorFlow computes with the product, or that lead to one."""


def multiply_rows(rows: Any, matrix: Any) -> Any:
    """The product of ``[..., inner]`` and ``[inner, out]``.

    Args:
        rows: a tensor of rank 3 or more whose last dim is known.
        matrix: the matrix.
    """
    flat = _flat(rows)
    flat = tf.reshape(rows, [-1, rows.shape[-1]]) if flat is None else flat
    inner = transposed_from(matrix)
    product = tf.matmul(flat, matrix) if inner is None or inner[1] != [1, 0] else multiply_turned(flat, inner[0])
    return _restored(product, rows)


def multiply_turned(rows: Any, matrix: Any) -> Any:
    """The product of ``[n, inner]`` and the transpose of ``[out, inner]``; two transposes are none."""
    inner = transposed_from(matrix)
    if inner is None or inner[1] != [1, 0]:
        return tf.matmul(rows, matrix, transpose_b=True)
    return tf.matmul(rows, inner[0])


def lower_in_rows(entry: Lowering, arguments: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Apply a lowering to the flat rows that its input was restored from.

    Args:
        entry: the lowering.
        arguments: its inputs, as it takes them.
        attributes: its attributes.

    Returns:
        Its result in the input's shape; None where the operator or its inputs do not fit: then apply it as it is.
    """
    if entry.domain or entry.operator not in FOLLOWERS:
        return None
    flats = [_flat(x) for x in arguments]
    if sum(flat is not None for flat in flats) != 1:
        return None
    place = next(index for index, flat in enumerate(flats) if flat is not None)
    if any(x.shape.rank not in (0, 1) or not _fits(x, flats[place]) for x in arguments if x is not arguments[place]):
        return None
    moved = [x if flat is None else flat for x, flat in zip(arguments, flats)]
    return _restored(entry.function(*moved, **attributes), arguments[place])


def _fits(vector: Any, flat: Any) -> bool:
    """Whether a vector broadcasts along the rows and leaves their shape alone."""
    return vector.shape.rank == 0 or vector.shape[0] in (1, flat.shape[1])


def _flat(x: Any) -> Any:
    """The rows ``[n, features]`` that a tensor of higher rank was restored from, or None."""
    operation = getattr(x, "op", None) if tf.is_symbolic_tensor(x) else None
    if operation is None or operation.type != "Reshape" or x.shape.rank is None or x.shape.rank < 3:
        return None
    source = operation.inputs[0]
    same = source.shape.rank == 2 and x.shape[-1] is not None and source.shape[1] == x.shape[-1]
    return source if same else None


def _restored(flat: Any, like: Any) -> Any:
    """Flat rows in the shape of others, but for the last dim."""
    dims = like.shape.as_list()[:-1]
    if dims.count(None) == 1 and 0 not in dims:
        target: Any = [-1 if dim is None else dim for dim in dims] + [flat.shape[1]]
    else:
        target = tf.stack([*_dims(like), flat.shape[1]])
    restored = tf.reshape(flat, target)
    restored.set_shape([*dims, flat.shape[1]])
    return restored


def _dims(like: Any) -> list[Any]:
    """All dims but the last; those that a restored tensor was given, where that is what it is."""
    shape = like.op.inputs[1].op if _flat(like) is not None else None
    return list(shape.inputs[:-1]) if shape is not None and shape.type == "Pack" else shape_of(like, tf.int32)[:-1]
