"""Sequences and optionals in a format that has dense tensors only.

A sequence ``x`` of n tensors is two tensors there: ``x.values``, the elements of all tensors one after the other (1-D), and
``x.shapes``, int64 ``[n, r]``, a row for each tensor's shape, filled up with -1 behind a shape of a lower rank than r. An
optional tensor is a sequence of length 0 or 1. An optional sequence has ``x.present`` beside the two, a bool scalar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from interop.dtypes import dtype_of
from interop.signature import Signature, TensorSpec

__all__ = ["expand", "items_of", "pack", "unpack"]


def expand(signature: Signature) -> Signature:
    """The dense tensors that carry a signature's inputs and outputs."""
    inputs, outputs = (
        [part for spec in specs for part in _parts(spec)] for specs in (signature.inputs, signature.outputs)
    )
    return Signature(tuple(inputs), tuple(outputs))


def _parts(spec: TensorSpec) -> list[TensorSpec]:
    if spec.kind == "tensor":
        return [spec]
    parts = [
        TensorSpec(f"{spec.name}.values", spec.dtype, None),
        TensorSpec(f"{spec.name}.shapes", "int64", None),
    ]
    return [*parts, TensorSpec(f"{spec.name}.present", "bool", ())] if spec.kind == "optional_sequence" else parts


def items_of(spec: TensorSpec, value: Any) -> list[Any]:
    """The tensors that a value holds: a list, one tensor, or None."""
    if value is None:
        return []
    return [value] if spec.kind == "optional" else list(value)


def pack(spec: TensorSpec, value: Any) -> dict[str, Any]:
    """The dense arrays of a value; its tensors are NumPy arrays."""
    items = [np.asarray(item) for item in items_of(spec, value)]
    rank = max((item.ndim for item in items), default=0)
    rows = [[*item.shape, *[-1] * (rank - item.ndim)] for item in items]
    empty = np.zeros([0], dtype_of(spec.dtype).numpy)
    parts = {
        f"{spec.name}.values": np.concatenate([empty, *(item.reshape(-1) for item in items)], dtype=empty.dtype),
        f"{spec.name}.shapes": np.array(rows, np.int64).reshape(len(items), rank),
    }
    return parts | {f"{spec.name}.present": np.array(value is not None)} if spec.kind == "optional_sequence" else parts


def unpack(spec: TensorSpec, parts: Mapping[str, Any]) -> Any:
    """The inverse of ``pack``; the tensors are slices of the values, in whatever framework those are."""
    if spec.kind == "tensor":
        return parts[spec.name]
    if spec.kind == "optional_sequence" and not bool(parts[f"{spec.name}.present"]):
        return None
    values = parts[f"{spec.name}.values"]
    shapes = [[int(dim) for dim in row if dim >= 0] for row in np.asarray(parts[f"{spec.name}.shapes"])]
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)]).tolist()
    items = [_reshaped(values[start:end], shape) for start, end, shape in zip(ends, ends[1:], shapes)]
    return (items[0] if items else None) if spec.kind == "optional" else items


def _reshaped(values: Any, shape: list[int]) -> Any:
    """The values in a shape; ``tf.Tensor`` has no such method."""
    if hasattr(values, "reshape"):
        return values.reshape(shape)
    import tensorflow as tf

    return tf.reshape(values, shape)
