"""LiteRT (TensorFlow Lite): a ``.tflite`` file in the interpreter, called through one of its signatures."""

from __future__ import annotations

import json
import os
import struct
import threading
import warnings
from collections.abc import Iterator, Mapping
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
_DAMAGED = (struct.error, ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, MemoryError)


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
        metadata = _read_metadata(_checked(content, where), where)
        source = {"model_content": bytes(content)} if path is None else {"model_path": str(path)}
        try:
            interpreter = litert.Interpreter(**source, num_threads=threads)
            return cls(interpreter, _choose(interpreter, signature, where), metadata, path)
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


def _checked(content: Any, where: str) -> Any:
    """The file's tables, all read once: the interpreter itself follows offsets out of a damaged file.

    Raises:
        ModelFileError: a part lies outside the file, or names something that the file does not have.
    """
    if bytes(content[4:8]) != _IDENTIFIER:
        raise ModelFileError(f"{where}: not a LiteRT file: it does not have the identifier {_IDENTIFIER.decode()}")
    try:
        model = schema.ModelT.InitFromPackedBuf(content, 0)
        problem = next(_problems(model, len(content)), None)
    except _DAMAGED as error:
        problem = f"a table lies outside of it ({type(error).__name__})"
    if problem:
        raise ModelFileError(f"{where}: the file is damaged or truncated: {problem}")
    return model


def _problems(model: Any, size: int) -> Iterator[str]:
    buffers, graphs = model.buffers or [], model.subgraphs or []
    if not graphs:
        yield "it has no graph"
    for buffer in buffers:
        if buffer.offset > 1 and buffer.offset + buffer.size > size:
            yield "the data of a tensor lies outside of it"
    for graph in graphs:
        yield from _problems_of_graph(graph, len(buffers), len(model.operatorCodes or []))
    for signature in model.signatureDefs or []:
        if not 0 <= signature.subgraphIndex < len(graphs):
            yield f"a signature calls graph {signature.subgraphIndex}"
            continue
        count = len(graphs[signature.subgraphIndex].tensors)
        if any(not 0 <= item.tensorIndex < count for item in [*(signature.inputs or []), *(signature.outputs or [])]):
            yield "a signature names a tensor that does not exist"


def _problems_of_graph(graph: Any, buffers: int, codes: int) -> Iterator[str]:
    tensors, operators = graph.tensors or [], graph.operators or []
    if any(not 0 <= tensor.buffer < max(buffers, 1) for tensor in tensors):
        yield "a tensor names a buffer that does not exist"
    if any(not 0 <= operator.opcodeIndex < codes for operator in operators):
        yield "an operator has a code that does not exist"
    lists = [(graph.inputs, 0), (graph.outputs, 0)]
    for operator in operators:
        lists += [(operator.inputs, -1), (operator.outputs, 0), (operator.intermediates, -1)]
    for indices, lowest in lists:  # -1 stands for an optional input that is not given
        if indices is not None and any(not lowest <= index < len(tensors) for index in indices):
            yield "an operator or the graph names a tensor that does not exist"


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


def _read_metadata(model: Any, where: str) -> Any:
    for entry in model.metadata or []:
        if entry.name != METADATA_NAME:
            continue
        try:
            data = bytes(model.buffers[entry.buffer].data)
            if len(data) > _SIZE_LIMIT:
                raise ValueError("it is too large")
            return json.loads(data)
        except (ValueError, TypeError, IndexError, RecursionError) as error:
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
        if not isinstance(given, Mapping) or sorted(map(str, given.values())) != sorted(real):
            warnings.warn(f"{where}: the stored names are ignored: they are not those of the graph", stacklevel=3)
            return {}, {}
        found.append(dict(given))
    return found[0], found[1]


def _inverse(names: Mapping[str, str]) -> dict[str, str]:
    return {value: name for name, value in names.items()}
