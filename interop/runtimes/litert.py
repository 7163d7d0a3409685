"""LiteRT (TensorFlow Lite): a ``.tflite`` file in the interpreter, called through one of its signatures."""

from __future__ import annotations

import json
import os
import struct
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interop.dtypes import dtype_of
from interop.errors import ConversionError, InteropError, ModelFileError
from interop.extras import require
from interop.frameworks import convert
from interop.runtimes._base import Runtime
from interop.runtimes._stored import read_signature
from interop.signature import Dim, Signature, TensorSpec

_PURPOSE = "to run a LiteRT model"
litert = require("ai_edge_litert.interpreter", _PURPOSE)
schema = require("ai_edge_litert.schema_py_generated", _PURPOSE)

__all__ = ["METADATA_NAME", "LitertRuntime"]

METADATA_NAME = b"tensor_interop"
"""The entry of ``Model.metadata`` where an exporter leaves ``{"signature": ..., "names": {"inputs": ..., "outputs": ...}}``."""

_IDENTIFIER = b"TFL3"
_SIZE_LIMIT = 8 << 20


class LitertRuntime(Runtime):
    """A LiteRT model; inputs of new shapes resize it.

    The interpreter holds the tensors of one call, so calls from several threads wait for each other.
    """

    name = "litert"
    framework = "numpy"

    def __init__(self, interpreter: Any, runner: Any, metadata: Any = None, path: Path | None = None) -> None:
        """Wrap an interpreter.

        Args:
            interpreter: the interpreter; it has to live as long as the runner.
            runner: its signature runner, or what has the same methods.
            metadata: the content of the entry ``METADATA_NAME``, or None.
            path: the file.
        """
        where = str(path or "the model in memory")
        self._interpreter = interpreter
        self._runner = runner
        self._lock = threading.Lock()
        graph = _graph_signature(runner, where)
        self._inputs, self._outputs = _names(metadata, graph, where)
        named = graph.renamed(_inverse(self._inputs), _inverse(self._outputs))
        stored = metadata.get("signature") if isinstance(metadata, Mapping) else None
        super().__init__(named if stored is None else read_signature(stored, named, where), path)

    @classmethod
    def open(cls, model: Any, *, threads: int | None = None, signature: str = "serving_default") -> LitertRuntime:
        """Load a ``.tflite`` file.

        Args:
            model: its path, or its content as bytes.
            threads: number of threads; the interpreter's own choice where None.
            signature: which of the file's signatures to call; a file with one or none needs no choice.

        Raises:
            ModelFileError: not a LiteRT file, a truncated one, or one without that signature.
        """
        path = Path(model) if isinstance(model, (str, os.PathLike)) else None
        where = str(path or "the model in memory")
        content = model if path is None else _map(path)
        if bytes(content[4:8]) != _IDENTIFIER:
            raise ModelFileError(f"{where}: not a LiteRT file: it does not have the identifier {_IDENTIFIER.decode()}")
        source = {"model_content": bytes(content)} if path is None else {"model_path": str(path)}
        try:  # the interpreter verifies that every table lies within the file and names only what the file has ...
            interpreter = litert.Interpreter(**source, num_threads=threads)
            _require_subgraphs(content, where)  # ... but for this
            return cls(interpreter, _choose(interpreter, signature, where), _read_metadata(content, where), path)
        except (ValueError, RuntimeError) as error:  # also names that are not UTF-8
            raise ModelFileError(f"{where}: LiteRT cannot load it: {str(error)[:500]}") from error

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        feed = {self._inputs.get(name, name): convert(value, "numpy") for name, value in inputs.items()}
        try:
            with self._lock:
                results = self._runner(**feed)
        except (RuntimeError, ValueError) as error:
            raise InteropError(f"{self.path or 'the model'} failed while it ran: {str(error)[:1000]}") from error
        keys = ((name, self._outputs.get(name, name)) for name in self.signature.output_names)
        return {name: convert(results[key], owner) for name, key in keys}


class _Whole:
    """The only subgraph of a file without signatures, under the names of its tensors."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
        self._outputs = {detail["name"]: detail for detail in interpreter.get_output_details()}

    def get_input_details(self) -> dict[str, Any]:
        return self._inputs

    def get_output_details(self) -> dict[str, Any]:
        return self._outputs

    def __call__(self, **feed: Any) -> dict[str, Any]:
        for name, value in feed.items():
            self._interpreter.resize_tensor_input(self._inputs[name]["index"], value.shape)
        self._interpreter.allocate_tensors()
        for name, value in feed.items():
            self._interpreter.set_tensor(self._inputs[name]["index"], value)
        self._interpreter.invoke()
        return {name: self._interpreter.get_tensor(detail["index"]) for name, detail in self._outputs.items()}


def _choose(interpreter: Any, signature: str, where: str) -> Any:
    known = list(interpreter.get_signature_list())
    if not known:
        return _Whole(interpreter)
    if signature not in known and len(known) > 1:
        raise ModelFileError(f"{where}: no signature {signature!r}; choose one of {', '.join(known)} with signature=")
    return interpreter.get_signature_runner(signature if signature in known else known[0])


def _map(path: Path) -> Any:
    try:
        return np.memmap(path, np.uint8, "r").data
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read: {error}") from error


def _require_subgraphs(content: Any, where: str) -> None:
    model = schema.Model.GetRootAs(content)
    for number in range(model.SignatureDefsLength()):
        called, count = model.SignatureDefs(number).SubgraphIndex(), model.SubgraphsLength()
        if called >= count:
            raise ModelFileError(f"{where}: the file is damaged: a signature calls graph {called}, and it has {count}")


def _graph_signature(runner: Any, where: str) -> Signature:
    """What the file declares, under its own names."""
    return Signature(
        tuple(_spec(name, detail, where) for name, detail in runner.get_input_details().items()),
        # An empty shape of an output stands for a scalar and for an unknown rank alike.
        tuple(_spec(name, detail, where, unranked=True) for name, detail in runner.get_output_details().items()),
    )


def _spec(name: str, detail: Mapping[str, Any], where: str, unranked: bool = False) -> TensorSpec:
    try:
        dtype = dtype_of(np.dtype(detail["dtype"])).name
    except (ConversionError, TypeError) as error:
        raise ModelFileError(f"{where}: {name!r} has the type {detail['dtype']}, which is not supported") from error
    dims: tuple[Dim, ...] = tuple(None if dim < 0 else int(dim) for dim in detail["shape_signature"])
    return TensorSpec(name, dtype, None if unranked and not dims else dims)


def _read_metadata(content: Any, where: str) -> Any:
    try:
        model = schema.Model.GetRootAs(content)
        entries = [model.Metadata(number) for number in range(model.MetadataLength())]
        for entry in entries:
            if entry.Name() == METADATA_NAME:
                data = model.Buffers(entry.Buffer()).DataAsNumpy()
                return json.loads(data.tobytes()) if data.size <= _SIZE_LIMIT else None
    except (struct.error, ValueError, TypeError, AttributeError, RecursionError) as error:
        warnings.warn(f"{where}: the stored metadata is ignored: {error}", stacklevel=3)
    return None


def _names(metadata: Any, graph: Signature, where: str) -> tuple[dict[str, str], dict[str, str]]:
    """``{the model's name: the file's}`` of inputs and outputs, empty where nothing valid is stored."""
    names = metadata.get("names") if isinstance(metadata, Mapping) else metadata
    if names is None:
        return {}, {}
    found = []
    for kind, real in (("inputs", graph.input_names), ("outputs", graph.output_names)):
        given = names.get(kind) if isinstance(names, Mapping) else None
        if not isinstance(given, Mapping) or not _is_permutation(list(given.values()), real):
            warnings.warn(f"{where}: the stored names are ignored: they are not those of the graph", stacklevel=3)
            return {}, {}
        found.append(dict(given))
    return found[0], found[1]


def _is_permutation(given: list[Any], names: tuple[str, ...]) -> bool:
    return all(isinstance(name, str) for name in given) and sorted(given) == sorted(names)


def _inverse(names: Mapping[str, str]) -> dict[str, str]:
    return {value: name for name, value in names.items()}
