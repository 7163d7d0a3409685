"""What a model file says about itself: one reader a format, and none of them runs the model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interop.cli._common import CliError
from interop.dtypes import dtype_of
from interop.errors import ConversionError, ModelFileError
from interop.extras import loaded, require
from interop.signature import Signature, TensorSpec
from interop.specs import is_project

__all__ = ["Description", "describe"]

PARAMETERS_KEY = "tensor_interop.parameters"


@dataclass(frozen=True)
class Description:
    """A model file, read.

    Attributes:
        format: ``"ONNX"``, ``"LiteRT"``, ``"TensorFlow SavedModel"``, ``"LibTorch project"``, ``"torch.export archive"``,
            ``"torch module"``, ``"Keras model"`` or ``"TensorFlow function"``.
        file_bytes: size on disk, with the files that belong to it; None for a model in memory.
        signature: inputs and outputs; None where the model does not say.
        opsets: operator set -> version.
        operators: operator -> how often it stands in the graph; control flow bodies count, function bodies once. None where
            they are compiled, and with them the next three.
        parameters: elements of all stored tensors.
        tensors: how many there are.
        parameter_bytes: their size.
        metadata: who wrote the file, and what else it says in words.
    """

    format: str
    file_bytes: int | None
    signature: Signature | None
    operators: Mapping[str, int] | None = None
    parameters: int | None = None
    tensors: int | None = None
    parameter_bytes: int | None = None
    opsets: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return vars(self) | {"signature": None if self.signature is None else self.signature.to_json()}


def describe(model: Any) -> Description:
    """Read what a model says about itself.

    Args:
        model: the path of a model file, or a model in memory.

    Raises:
        ModelFileError: not a model, or damaged.
        InputError: a TensorFlow function that does not say what it takes.
        CliError: a format that only its own runtime can read.
    """
    if not isinstance(model, Path):
        return _describe_object(model)
    if (model / "saved_model.pb").is_file():
        return _describe_savedmodel(model)
    if is_project(model):
        from interop.cli import _describe_libtorch

        return Description(**_describe_libtorch.read(model))
    if model.is_dir():
        raise ModelFileError(f"{model}: a folder without saved_model.pb is not a SavedModel")
    with model.open("rb") as stream:
        head = stream.read(8)
    if head[4:8] == b"TFL3":
        from interop.cli import _describe_litert

        return Description(**_describe_litert.read(model))
    return _describe_onnx(model)


# ---------------------------------------------------------------------------------------------------------- ONNX


def _describe_onnx(path: Path) -> Description:
    from interop.runtimes._onnx_model import parse_model

    model = parse_model(path)
    tensors: list[Any] = []
    _count(model.graph, Counter(), tensors)
    size = path.stat().st_size + sum(file.stat().st_size for file in _data_files(path, tensors))
    return _describe_proto(model, str(path), size)


def _describe_proto(model: Any, where: str, file_bytes: int | None) -> Description:
    from interop.runtimes._onnx_model import SIGNATURE_KEY
    from interop.runtimes._stored import read_signature

    operators: Counter[str] = Counter()
    tensors: list[Any] = []
    _count(model.graph, operators, tensors)
    for function in model.functions:
        _count_nodes(function.node, operators, tensors)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    signature = _onnx_signature(model.graph)
    properties.pop(PARAMETERS_KEY, None)  # one entry a parameter: not something to read
    if (stored := properties.pop(SIGNATURE_KEY, None)) is not None:
        signature = read_signature(stored, signature, where)
    sizes = [math.prod(tensor.dims) for tensor in tensors]
    return Description(
        format="ONNX",
        file_bytes=file_bytes,
        signature=signature,
        opsets={entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        operators=operators,
        parameters=sum(sizes),
        tensors=len(sizes),
        parameter_bytes=sum(_bytes(size, tensor.data_type) for size, tensor in zip(sizes, tensors)),
        metadata={"producer": _producer(model), "IR version": str(model.ir_version), **properties},
    )


def _producer(model: Any) -> str:
    return " ".join(filter(None, (model.producer_name, model.producer_version))) or "not said"


def _data_files(path: Path, tensors: Iterable[Any]) -> set[Path]:
    entries = (entry for tensor in tensors for entry in tensor.external_data)
    return {path.parent / entry.value for entry in entries if entry.key == "location"}


def _count(graph: Any, operators: Counter[str], tensors: list[Any]) -> None:
    tensors.extend(graph.initializer)
    tensors.extend(sparse.values for sparse in graph.sparse_initializer)
    _count_nodes(graph.node, operators, tensors)


def _count_nodes(nodes: Any, operators: Counter[str], tensors: list[Any]) -> None:
    for node in nodes:
        operators[f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type] += 1
        for attribute in node.attribute:
            for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
                _count(graph, operators, tensors)


def _bytes(elements: int, dtype: Any) -> int:
    try:
        return math.ceil(elements * dtype_of(dtype).bits / 8)
    except ConversionError:
        return 0


def _onnx_signature(graph: Any) -> Signature:
    stored = {tensor.name for tensor in graph.initializer}
    inputs = tuple(_onnx_spec(value) for value in graph.input if value.name not in stored)
    return Signature(inputs, tuple(map(_onnx_spec, graph.output)))


def _onnx_spec(value: Any) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return TensorSpec(value.name, (kind or "unknown").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return TensorSpec(value.name, dtype_of(tensor.elem_type).name, None)
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim)
    return TensorSpec(value.name, dtype_of(tensor.elem_type).name, dims)


# ---------------------------------------------------------------------------------------------- TensorFlow SavedModel

_BOOKKEEPING = frozenset({"Const", "Identity", "IdentityN", "NoOp", "Placeholder"}) | frozenset(
    {"ReadVariableOp", "VarHandleOp", "StatefulPartitionedCall", "PartitionedCall"}
)
"""What TensorFlow needs to hold a graph together; not part of what the model computes."""


def _describe_savedmodel(path: Path) -> Description:
    tf = require("tensorflow", "to read a SavedModel")
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    import interop

    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((path / "saved_model.pb").read_bytes())
    except DecodeError as error:
        raise ModelFileError(f"{path}: saved_model.pb is damaged: {error}") from error
    if not saved.meta_graphs:
        raise ModelFileError(f"{path}: saved_model.pb holds no graph")
    meta = saved.meta_graphs[0]
    variables = _variables(tf, path)
    return Description(
        format="TensorFlow SavedModel",
        file_bytes=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        signature=interop.load(path).signature,
        operators=_savedmodel_operators(meta),
        parameters=sum(size for size, _ in variables),
        tensors=len(variables),
        parameter_bytes=sum(size * bits // 8 for size, bits in variables),
        metadata={"TensorFlow": meta.meta_info_def.tensorflow_version, "tags": ", ".join(meta.meta_info_def.tags)},
    )


def _variables(tf: Any, path: Path) -> list[tuple[int, int]]:
    """Elements and bits per element of every variable in the checkpoint."""
    prefix = path / "variables" / "variables"
    if not prefix.with_suffix(".index").is_file():
        return []
    reader = tf.train.load_checkpoint(str(prefix))
    dtypes = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    own = [name for name in shapes if name.endswith("VARIABLE_VALUE") and not name.startswith("save_counter")]
    return [(math.prod(shapes[name]), dtype_of(dtypes[name]).bits) for name in own]


def _savedmodel_operators(meta: Any) -> Counter[str]:
    """Count what the serving signature reaches; a SavedModel also holds the graphs that save and restore it."""
    functions = {function.signature.name: function.node_def for function in meta.graph_def.library.function}
    nodes = {node.name: node for node in meta.graph_def.node}
    signature = meta.signature_def.get("serving_default")  # indexing would add an empty one
    waiting = [output.name for output in signature.outputs.values()] if signature else list(nodes)
    reached: dict[str, Any] = {}
    while waiting:
        name = waiting.pop().lstrip("^").partition(":")[0]
        if name in nodes and name not in reached:
            reached[name] = nodes[name]
            waiting.extend(nodes[name].input)
    operators: Counter[str] = Counter()
    _count_functions(reached.values(), functions, operators, set())
    return operators


def _count_functions(
    nodes: Iterable[Any], functions: Mapping[str, Any], operators: Counter[str], seen: set[str]
) -> None:
    for node in nodes:
        if node.op not in _BOOKKEEPING and node.op not in functions:
            operators[node.op] += 1
        for name in {node.op, *_called(node)} & functions.keys() - seen:
            seen.add(name)
            _count_functions(functions[name], functions, operators, seen)


def _called(node: Any) -> Iterator[str]:
    for attribute in node.attr.values():
        yield attribute.func.name
        yield from (item.name for item in attribute.list.func)


# -------------------------------------------------------------------------------------------------- models in memory


def _describe_object(model: Any) -> Description:
    torch, onnx, keras = loaded("torch"), loaded("onnx"), loaded("keras")
    if torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        return _describe_torch(model)
    if onnx is not None and isinstance(model, onnx.ModelProto):
        return _describe_proto(model, "the ONNX model", None)
    import interop

    runtime: Any = interop.load(model)
    if runtime.name != "tensorflow":
        raise CliError(f"{_class_name(model)} is a model that interop inspect cannot read", "interop run runs it")
    return _describe_function(model, runtime, is_keras=keras is not None and isinstance(model, keras.Model))


def _describe_function(model: Any, runtime: Any, *, is_keras: bool) -> Description:
    """A TensorFlow model in memory: what its one concrete function reaches, or the layers of Keras."""
    function = runtime.concrete[1]
    variables = [(variable.shape.num_elements(), dtype_of(variable.dtype).bits) for variable in function.variables]
    graph = function.graph.as_graph_def()
    operators: Counter[str] = Counter()
    _count_functions(graph.node, {f.signature.name: f.node_def for f in graph.library.function}, operators, set())
    layers = Counter(type(layer).__name__ for layer in _layers(model)) if is_keras else None
    return Description(
        format="Keras model" if is_keras else "TensorFlow function",
        file_bytes=None,
        signature=runtime.signature,
        operators=operators if layers is None else layers,
        parameters=sum(size for size, _ in variables),
        tensors=len(variables),
        parameter_bytes=sum(size * bits // 8 for size, bits in variables),
        metadata={"class": _class_name(model)},
    )


def _layers(model: Any) -> Iterator[Any]:
    """The layers of a Keras model and of the models in it, without their inputs."""
    for layer in model.layers:
        if isinstance(inner := getattr(layer, "layers", None), list):
            yield from _layers(layer) if inner else ()
        elif type(layer).__name__ != "InputLayer":
            yield layer


def _describe_torch(model: Any) -> Description:
    program = hasattr(model, "graph_module")
    tensors = list(model.state_dict().values() if not program else model.state_dict.values())
    return Description(
        format="torch.export archive" if program else "torch module",
        file_bytes=None,
        signature=_program_signature(model) if program else None,
        operators=_program_operators(model) if program else _module_types(model),
        opsets={},
        parameters=sum(tensor.numel() for tensor in tensors),
        tensors=len(tensors),
        parameter_bytes=sum(tensor.nbytes for tensor in tensors),
        metadata={} if program else {"class": _class_name(model)},
    )


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _module_types(model: Any) -> Counter[str]:
    return Counter(type(module).__name__ for module in model.modules() if not any(module.children()))


def _program_operators(program: Any) -> Counter[str]:
    modules = (module for module in program.graph_module.modules() if hasattr(module, "graph"))
    nodes = (node for module in modules for node in module.graph.nodes if node.op == "call_function")
    return Counter(str(node.target) for node in nodes)


def _program_signature(program: Any) -> Signature:
    import interop

    return interop.load(program).signature
