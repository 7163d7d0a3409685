"""An ONNX model taken apart, so that its nodes can be run on values of our choice, a few at a time.

Weights stay outside of the small models that are made here and enter them as inputs: nothing is copied, and no model
reaches the 2 GB limit of protobuf. ONNX Runtime's graph optimisations are off: every value is computed as the file says.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.errors import InteropError
from interop.extras import loaded, require
from interop.parity.slim import slim_file, slim_graph, slim_proto

__all__ = [
    "PREFIX",
    "Execution",
    "Graph",
    "Store",
    "execute",
    "graph_of",
    "initializer",
    "inputs_of",
    "open_graph",
    "run_model",
    "segment_of",
    "submodel",
]

Array = npt.NDArray[Any]

CHUNK = 48
"""Nodes that are run in one session."""
CHUNK_BYTES = 1 << 27
"""Weights that one session may have, if it has more nodes than one."""
INLINE_BYTES = 4096
"""Smaller initializers stay in the graph: kernels want shapes, axes and pads as constants."""
MEMORY = 1 << 28
"""Bytes of intermediate values held in memory; what is beyond goes to a temporary folder."""
PREFIX = "judged::"
"""Before the name of an output that the reference's value stands in for."""


@dataclass(frozen=True)
class Graph:
    """An ONNX model without its weights.

    Attributes:
        nodes: the nodes of the main graph, in order.
        inputs: names of the inputs that have no initializer.
        outputs: names of the outputs.
        constants: small initializers and those of types that NumPy lacks, as protos.
        weights: the other initializers.
        head: the model without graph: opset imports, functions, versions.
    """

    nodes: tuple[Any, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Any]
    weights: Mapping[str, Array]
    head: Any

    def producers(self) -> dict[str, int]:
        """Position of the node that makes each value."""
        return {name: position for position, node in enumerate(self.nodes) for name in node.output if name}


def open_graph(model: Any) -> Graph | None:
    """Take apart whatever holds an ONNX model; None where the model is none or cannot be seen.

    Args:
        model: an ONNX file, a ``ModelProto``, an ``onnx_ir.Model``, an exported model in memory, or a runtime that was
            made from a file.

    Raises:
        ModelFileError: the file is damaged.
    """
    artifact = getattr(model, "artifact", None)
    if artifact is not None and hasattr(artifact, "public_model"):
        model = artifact.public_model()
    if type(model).__module__.split(".")[0] == "onnx_ir":
        return graph_of(*slim_graph(model))
    onnx = loaded("onnx")
    if onnx is not None and isinstance(model, onnx.ModelProto):
        return graph_of(*slim_proto(model))
    path = getattr(model, "path", model)
    if not isinstance(path, (str, os.PathLike)) or not _is_onnx_file(Path(path)):
        return None
    return graph_of(*slim_file(Path(path)), Path(path).parent)


def _is_onnx_file(path: Path) -> bool:
    from interop.runtimes._load import _recognise_path

    return path.is_file() and _recognise_path(path) == "onnxruntime"


def graph_of(proto: Any, known: Mapping[str, Array] | None = None, folder: Path | None = None) -> Graph:
    """Take a proto apart; its weights are taken out of it.

    Args:
        proto: an ``onnx.ModelProto`` of our own.
        known: weights that are already out of it.
        folder: where its external data are.
    """
    constants, weights = _split_weights(proto, dict(known or {}), folder)
    head = type(proto)()
    head.CopyFrom(_without_graph(proto))
    graph = proto.graph
    inputs = tuple(value.name for value in graph.input if value.name not in constants and value.name not in weights)
    return Graph(tuple(graph.node), inputs, tuple(value.name for value in graph.output), constants, weights, head)


def _split_weights(
    proto: Any, weights: dict[str, Array], folder: Path | None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Small constants as protos and large weights as arrays."""
    constants: dict[str, Any] = {}
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            continue
        values = _weight(tensor, folder)
        if values is None:
            constants[tensor.name] = tensor
        else:
            weights[tensor.name] = values
    return constants, weights


def _weight(tensor: Any, folder: Path | None) -> Array | None:
    onnx = require("onnx", "to look into an ONNX model")
    if tensor.data_type == onnx.TensorProto.STRING:
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if dtype.kind not in "biuf" or not dtype.isbuiltin or math.prod(tensor.dims) * dtype.itemsize < INLINE_BYTES:
        if external:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder or "."))
        return None
    if external:
        place = {entry.key: entry.value for entry in tensor.external_data}
        file, offset = (folder or Path()) / place["location"], int(place.get("offset", 0))
        return np.memmap(file, dtype, "r", offset, tuple(tensor.dims))
    if tensor.HasField("raw_data"):
        return np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")).reshape(tuple(tensor.dims))
    return None


def _without_graph(proto: Any) -> Any:
    head = type(proto)()
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        setattr(head, name, getattr(proto, name))
    head.opset_import.extend(proto.opset_import)
    head.functions.extend(proto.functions)
    return head


def initializer(graph: Graph, name: str) -> Array | None:
    """The values of an initializer, None where there is none."""
    if name in graph.weights:
        return graph.weights[name]
    if name not in graph.constants:
        return None
    values: Array = require("onnx", "to look into an ONNX model").numpy_helper.to_array(graph.constants[name])
    return values


def inputs_of(node: Any) -> list[str]:
    """Every value that a node uses, those that its subgraphs take from outside among them."""
    used = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            made = {value.name for value in [*body.input, *body.initializer]}
            for inner in body.node:
                used += [name for name in inputs_of(inner) if name not in made]
                made |= set(inner.output)
            used += [value.name for value in body.output if value.name not in made]
    return list(dict.fromkeys(used))


def segment_of(graph: Graph, value: str, known: Mapping[str, Any]) -> list[int]:
    """Positions of the nodes that lead from known values to one value, in order."""
    producers, wanted, found = graph.producers(), [value], set()
    while wanted:
        position = producers.get(wanted.pop())
        if position is None or position in found:
            continue
        found.add(position)
        wanted += [name for name in inputs_of(graph.nodes[position]) if name not in known]
    return sorted(found)


def submodel(
    graph: Graph,
    nodes: Sequence[Any],
    values: Mapping[str, Array],
    pinned: Mapping[str, Any],
    outputs: Sequence[str] = (),
) -> tuple[Any, dict[str, Array]]:
    """A model of some nodes and what to feed it with.

    Args:
        graph: the model that the nodes are from.
        nodes: some of its nodes, in order.
        values: arrays for what the nodes take from outside; weights and constants come from the graph.
        pinned: values that are fed even where one of the nodes makes them: its own result is then called
            ``PREFIX + name``.
        outputs: names of the outputs; every value of the nodes by default.
    """
    onnx = require("onnx", "to run parts of an ONNX model")
    model = onnx.ModelProto()
    model.CopyFrom(graph.head)
    model.graph.name = "part"
    made: set[str] = set()
    feeds: dict[str, Array] = {}
    for node in nodes:
        own = model.graph.node.add()
        own.CopyFrom(node)
        own.ClearField("metadata_props")
        for name in inputs_of(node):
            if name not in made or name in pinned:
                _feed(model, graph, name, values, feeds)
        own.output[:] = [PREFIX + name if name in pinned else name for name in node.output]
        made |= {name for name in node.output if name and name not in pinned}
    names = outputs or [name for node in model.graph.node for name in node.output if name]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model, feeds


def _feed(model: Any, graph: Graph, name: str, values: Mapping[str, Array], feeds: dict[str, Array]) -> None:
    """Make a value that comes from outside a constant or an input of the model, once."""
    onnx = require("onnx", "to run parts of an ONNX model")
    if name in feeds or any(tensor.name == name for tensor in model.graph.initializer):
        return
    if name in graph.constants:
        model.graph.initializer.append(graph.constants[name])
        return
    array = np.require(graph.weights[name] if name in graph.weights else values[name], requirements=["C", "A"])
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(object) if array.dtype.kind in "OUS" else array.dtype)
    model.graph.input.append(onnx.helper.make_tensor_value_info(name, element, array.shape))
    feeds[name] = array


def run_model(model: Any, feeds: Mapping[str, Array]) -> dict[str, Any]:
    """Run a small model as it is written.

    Raises:
        InteropError: ONNX Runtime does not take or run it.
    """
    ort = require("onnxruntime", "to run parts of an ONNX model")
    from interop.runtimes.onnxruntime import _RUN_ERRORS

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(feeds))))
    except _RUN_ERRORS as error:
        raise InteropError(" ".join(str(error).split())[:300]) from error


class Store(MutableMapping[str, Array]):
    """Arrays by name, in memory up to ``limit`` bytes, beyond it in a temporary folder."""

    def __init__(self, limit: int = MEMORY) -> None:
        self._limit, self._bytes = limit, 0
        self._held: dict[str, Array] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __getitem__(self, name: str) -> Array:
        return self._held[name]

    def __setitem__(self, name: str, values: Array) -> None:
        self._bytes += values.nbytes
        if self._bytes > self._limit and values.nbytes > INLINE_BYTES and values.dtype.kind != "O":
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="tensor-interop-")
            path = Path(self._folder.name) / f"{len(self._held)}.npy"
            np.save(path, values, allow_pickle=False)
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        self._held[name] = values

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


@dataclass
class Execution:
    """What running a graph gave.

    Attributes:
        values: every tensor that was computed.
        errors: ``{node position: message}`` of the nodes that could not be run.
    """

    values: MutableMapping[str, Array] = field(default_factory=Store)
    errors: dict[int, str] = field(default_factory=dict)


def execute(graph: Graph, feeds: Mapping[str, Array], pinned: Mapping[str, Array] | None = None) -> Execution:
    """Run a whole graph and keep every intermediate tensor.

    Args:
        graph: the model.
        feeds: its inputs.
        pinned: values that every node gets instead of what the candidate itself computed: with all of them pinned, each
            node is judged alone.
    """
    done = Execution()
    outside: dict[str, Any] = dict(feeds) | dict(pinned or {})
    for positions in _chunks(graph):
        _execute_chunk(graph, positions, outside, pinned or {}, done)
    return done


def _chunks(graph: Graph) -> Iterator[range]:
    """Neighbouring nodes that are run together."""
    start, size = 0, 0
    for position, node in enumerate(graph.nodes):
        more = sum(graph.weights[name].nbytes for name in node.input if name in graph.weights)
        if position > start and (position - start >= CHUNK or size + more > CHUNK_BYTES):
            yield range(start, position)
            start, size = position, 0
        size += more
    yield range(start, len(graph.nodes))


def _execute_chunk(
    graph: Graph, positions: range, outside: dict[str, Any], pinned: Mapping[str, Array], done: Execution
) -> None:
    """Run some nodes together, and one by one where that fails."""
    nodes = [graph.nodes[position] for position in positions]
    try:
        found = run_model(*submodel(graph, nodes, outside, pinned))
    except (InteropError, KeyError) as error:
        if len(nodes) > 1:
            for position in positions:
                _execute_chunk(graph, range(position, position + 1), outside, pinned, done)
        elif isinstance(error, InteropError):
            done.errors[positions[0]] = str(error)
        return
    for name, values in found.items():
        plain = name.removeprefix(PREFIX)
        if isinstance(values, np.ndarray):
            done.values[plain] = values
        if plain not in pinned:
            outside[plain] = done.values.get(plain, values)
