"""External data of ONNX files: checked before ONNX Runtime opens anything that a file names.

Source: onnx ``docs/ExternalData.md``; ``onnx.proto`` for the places where a tensor can sit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from interop.errors import ModelFileError

__all__ = ["check_external_data", "has_external_data", "tensors_of"]

_EXTERNAL = 1  # TensorProto.EXTERNAL


def check_external_data(model: Any, path: Path) -> None:
    """Raise unless all external data of a model lies in real files inside the model's own folder.

    Args:
        model: the ``ModelProto``, parsed without loading external data.
        path: the file that it was read from.

    Raises:
        ModelFileError: a location that leaves the folder, or a file that is missing or too short.
    """
    for tensor in tensors_of(model):
        if tensor.data_location == _EXTERNAL:
            _check_tensor(tensor, path)


def has_external_data(model: Any) -> bool:
    """True where any tensor of the model lives in another file."""
    return any(tensor.data_location == _EXTERNAL for tensor in tensors_of(model))


def tensors_of(model: Any) -> Iterator[Any]:
    """Every TensorProto of a model: main graph, subgraphs, attributes, functions, training graphs."""
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)
        for attribute in function.attribute_proto:
            yield from _tensors_of_attribute(attribute)
    for training in model.training_info:
        yield from _tensors_of_graph(training.initialization)
        yield from _tensors_of_graph(training.algorithm)


def _tensors_of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            yield from _tensors_of_attribute(attribute)


def _tensors_of_attribute(attribute: Any) -> Iterator[Any]:
    yield attribute.t
    yield from attribute.tensors
    for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
        yield from (sparse.values, sparse.indices)
    if attribute.HasField("g"):
        yield from _tensors_of_graph(attribute.g)
    for graph in attribute.graphs:
        yield from _tensors_of_graph(graph)


def _check_tensor(tensor: Any, path: Path) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    target = _resolve(location, path, tensor.name)
    if not target.is_file():
        raise ModelFileError(
            f"{path}: the data of tensor {tensor.name!r} should be in {location!r} beside the model, and no such file "
            "is there; keep the model and its data file in one folder"
        )
    try:
        end = int(entries.get("offset") or 0) + int(entries.get("length") or 0)
        valid = min(int(entries.get("offset") or 0), int(entries.get("length") or 0)) >= 0
    except ValueError:
        valid, end = False, 0
    size = target.stat().st_size
    if not valid or end > size:
        raise ModelFileError(
            f"{path}: tensor {tensor.name!r} wants bytes {entries.get('offset')} + {entries.get('length')} of "
            f"{location!r}, which has {size}; the data file is truncated or belongs to another model"
        )


def _resolve(location: str, path: Path, name: str) -> Path:
    refused = f"{path}: tensor {name!r} names the external data file {location!r}, which "
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    if not location or "\0" in location or posix.is_absolute() or windows.drive or windows.root:
        raise ModelFileError(refused + "is not a relative path; it must be a file inside the model's folder")
    if ".." in (*posix.parts, *windows.parts):
        raise ModelFileError(refused + "leaves the model's folder; it must be a file inside it")
    folder = path.parent.resolve()
    target = (folder / location).resolve()
    if not target.is_relative_to(folder):
        raise ModelFileError(refused + f"is a link to {target}, outside the model's folder")
    return target
