"""Turn whatever a caller has of an ONNX model into something a session can be made of."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.errors import InputError, ModelFileError
from interop.extras import require
from interop.runtimes._external_data import check_external_data, has_external_data

__all__ = ["SIGNATURE_KEY", "OpenedModel", "open_model", "parse_model"]

SIGNATURE_KEY = "tensor_interop.signature"
"""Key of ``ModelProto.metadata_props`` that holds ``Signature.to_json()`` as text."""

_PROTOBUF_LIMIT = (1 << 31) - 1
_SPLIT_ABOVE = 1 << 20  # bytes; only the large tensors of an oversized model go to the side file


@dataclass(frozen=True)
class OpenedModel:
    """What a session is made of.

    Attributes:
        source: a path or serialized bytes.
        path: the caller's file, if there is one.
        where: how messages call the model.
    """

    source: str | bytes
    path: Path | None
    where: str


def parse_model(path: Path) -> Any:
    """Parse an ONNX file without reading any other file that it names.

    Raises:
        ModelFileError: not ONNX, truncated, or external data that is unsafe or missing.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read as an ONNX file: {error.strerror}") from error
    model = _parse(data, str(path))
    check_external_data(model, path)
    return model


def _parse(data: bytes, where: str) -> Any:
    onnx = require("onnx", "to read an ONNX model")
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelFileError(f"{where}: not an ONNX model, or a truncated one ({len(data)} bytes)") from error
    if not model.HasField("graph"):
        raise ModelFileError(f"{where}: not an ONNX model: it parses, but holds no graph ({len(data)} bytes)")
    return model


@contextlib.contextmanager
def open_model(model: Any) -> Iterator[OpenedModel]:
    """Give a checked path or bytes; what had to be written for it is removed on exit.

    Args:
        model: path, serialized bytes, ``onnx.ModelProto`` or ``onnx_ir.Model``.

    Raises:
        ModelFileError: not ONNX, unsafe, or a model in memory whose data is in files of an unknown folder.
    """
    if isinstance(model, (str, Path)):
        parse_model(Path(model))
        yield OpenedModel(str(model), Path(model), str(model))
        return
    with tempfile.TemporaryDirectory(prefix="tensor-interop-", ignore_cleanup_errors=True) as folder:
        yield OpenedModel(_source(model, Path(folder)), None, "the model in memory")


def _source(model: Any, folder: Path) -> str | bytes:
    if isinstance(model, (bytes, bytearray)):
        return _in_memory(_parse(bytes(model), "the model in memory"), folder, bytes(model))
    module = type(model).__module__.split(".")[0]
    if module == "onnx_ir":
        return _from_ir(model, folder)
    if module == "onnx":
        return _in_memory(model, folder, None)
    raise InputError(f"expected a path, bytes, an onnx.ModelProto or an onnx_ir.Model, got {type(model).__qualname__}")


def _in_memory(proto: Any, folder: Path, data: bytes | None) -> str | bytes:
    if not proto.HasField("graph"):
        raise ModelFileError("the model in memory holds no graph")
    if has_external_data(proto):
        raise ModelFileError(
            "the model in memory names external data files, whose folder is unknown; load it by its path, or load its "
            "data first with onnx.load_external_data_for_model"
        )
    if data is not None:
        return data
    if proto.ByteSize() <= _PROTOBUF_LIMIT:
        return bytes(proto.SerializeToString())
    ir = require("onnx_ir", "to run a model of more than 2 GB")
    return _write(ir.serde.deserialize_model(proto), folder)


def _from_ir(model: Any, folder: Path) -> str | bytes:
    ir = require("onnx_ir", "to run an onnx_ir model")
    values = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    external = any(isinstance(value, ir.ExternalTensor) for value in values)
    if external or sum(value.nbytes for value in values if value is not None) > _PROTOBUF_LIMIT - (64 << 20):
        return _write(model, folder)
    return bytes(ir.serde.serialize_model(model).SerializeToString())


def _write(model: Any, folder: Path) -> str:
    ir = require("onnx_ir", "to run a model of more than 2 GB")
    path = folder / "model.onnx"
    ir.save(model, path, external_data="model.onnx.data", size_threshold_bytes=_SPLIT_ABOVE)
    return str(path)
