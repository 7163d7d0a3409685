"""An ONNX model without its large weights, and those beside it: as pages of the file, or as the arrays that they are.

Protobuf parses a file as a whole, twice its size in memory, and gives nothing back. Here only the places of the weights are
read off the file, which is then parsed without them.

Source: https://protobuf.dev/programming-guides/encoding/ and onnx.proto for the numbers of the fields.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.errors import ModelFileError
from interop.extras import require

__all__ = ["slim_file", "slim_graph", "slim_proto"]

Array = npt.NDArray[Any]

_Places = dict[str, tuple[int, int]]
"""Name of a weight -> where its bytes begin and end in the file."""

WEIGHT_BYTES = 1 << 16
"""Larger initializers are weights."""

_GRAPH, _INITIALIZER, _DATA_TYPE, _NAME, _RAW_DATA = 7, 5, 2, 8, 9
_PLAIN = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13})
"""The data types that NumPy itself has, in onnx.proto's numbers; others stay in the proto."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def slim_file(path: Path) -> tuple[Any, dict[str, Array]]:
    """A model file without its large weights, and those as read-only pages of the file.

    Raises:
        ModelFileError: damaged, or external data that is unsafe or missing.
    """
    onnx = require("onnx", "to look into an ONNX model")
    from interop.runtimes._external_data import check_external_data

    places: _Places = {}
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages,
            memoryview(pages) as data,
        ):
            content = b"".join(_slim_model(data, places))
        proto = onnx.ModelProto.FromString(content)
    except (OSError, ValueError, IndexError, _decode_error()) as error:
        raise ModelFileError(f"{path}: not an ONNX model, or a truncated one: {error}") from error
    check_external_data(proto, path)
    weights = {
        tensor.name: _mapped(path, tensor, places[tensor.name])
        for tensor in proto.graph.initializer
        if tensor.name in places
    }
    if not proto.HasField("graph"):
        raise ModelFileError(f"{path}: not an ONNX model: it parses, but holds no graph")
    return proto, weights


def _mapped(path: Path, tensor: Any, place: tuple[int, int]) -> Array:
    """A weight as pages of the file."""
    dtype = require("onnx", "to look into an ONNX model").helper.tensor_dtype_to_np_dtype(tensor.data_type)
    begin, end = place
    if math.prod(tensor.dims) * dtype.itemsize != end - begin:
        raise ModelFileError(
            f"{path}: weight {tensor.name!r} has {end - begin} bytes and the shape {tuple(tensor.dims)}"
        )
    return np.memmap(path, dtype, "r", begin, tuple(tensor.dims))


def _decode_error() -> type[Exception]:
    require("onnx", "to look into an ONNX model")
    from google.protobuf.message import DecodeError

    kind: type[Exception] = DecodeError
    return kind


def _slim_model(data: memoryview, places: _Places) -> Iterator[bytes]:
    for number, start, begin, end in _fields(data, 0, len(data)):
        if number == _GRAPH:
            graph = b"".join(_slim_fields(data, begin, end, places))
            yield _tag(_GRAPH) + _varint(len(graph)) + graph
        else:
            yield bytes(data[start:end])


def _slim_fields(data: memoryview, begin: int, end: int, places: _Places) -> Iterator[bytes]:
    """The fields of a graph; from initializers the raw data are taken, and their places noted."""
    for number, start, inner, stop in _fields(data, begin, end):
        if number != _INITIALIZER or stop - inner < WEIGHT_BYTES:
            yield bytes(data[start:stop])
            continue
        parts = list(_fields(data, inner, stop))
        names = [bytes(data[a:b]).decode("utf-8") for number, _, a, b in parts if number == _NAME]
        raw = [(a, b) for number, _, a, b in parts if number == _RAW_DATA]
        types = [_read_varint(data, a)[0] for number, _, a, _ in parts if number == _DATA_TYPE]
        if (len(names), len(raw)) != (1, 1) or raw[0][1] - raw[0][0] < WEIGHT_BYTES or not _PLAIN.issuperset(types):
            yield bytes(data[start:stop])
            continue
        places[names[0]] = raw[0]
        tensor = b"".join(bytes(data[a:b]) for number, a, _, b in parts if number != _RAW_DATA)
        yield _tag(_INITIALIZER) + _varint(len(tensor)) + tensor


def _fields(data: memoryview, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """``(number, start of the tag, start of the content, end)`` of each field of a message."""
    while position < end:
        start = position
        key, position = _read_varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            begin = position
            _, position = _read_varint(data, position)
        elif kind == _BYTES:
            size, begin = _read_varint(data, position)
            position = begin + size
        elif kind in (_FIXED64, _FIXED32):
            begin, position = position, position + (8 if kind == _FIXED64 else 4)
        else:
            raise ValueError(f"a field of kind {kind}")
        if position > end:
            raise ValueError("a field that is longer than its message")
        yield key >> 3, start, begin, position


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if not byte & 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)


def slim_graph(model: Any) -> tuple[Any, dict[str, Array]]:
    """An ``onnx_ir.Model`` as a proto without its large weights, and those as the arrays that it holds."""
    ir = require("onnx_ir", "to look into an ONNX model")
    copied, weights = model.clone(), {}
    for name, value in list(copied.graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None and int(tensor.dtype) in _PLAIN and tensor.nbytes >= WEIGHT_BYTES:
            weights[name] = tensor.numpy()
            copied.graph.initializers.pop(name)
    return ir.serde.serialize_model(copied), weights


def slim_proto(model: Any) -> tuple[Any, dict[str, Array]]:
    """A ``ModelProto`` as a proto of our own without its large weights, and those as arrays."""
    onnx = require("onnx", "to look into an ONNX model")
    own, weights = type(model)(), {}
    for descriptor, value in model.ListFields():
        if descriptor.name == "graph":
            continue
        getattr(own, descriptor.name).MergeFrom(value) if descriptor.message_type else setattr(
            own, descriptor.name, value
        )
    for descriptor, value in model.graph.ListFields():
        if descriptor.name != "initializer":
            field = getattr(own.graph, descriptor.name)
            field.MergeFrom(value) if descriptor.message_type else setattr(own.graph, descriptor.name, value)
    for tensor in model.graph.initializer:
        if tensor.data_type in _PLAIN and len(tensor.raw_data) >= WEIGHT_BYTES:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            weights[tensor.name] = np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")).reshape(tuple(tensor.dims))
        else:
            own.graph.initializer.add().CopyFrom(tensor)
    return own, weights
