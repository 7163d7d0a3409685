"""The inner values of a TensorFlow model that this project exported, live or loaded from a SavedModel.

The model's graph is imported into a function of its own, where any tensor may be fed in place of what is computed there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.errors import ConversionError
from interop.extras import require
from interop.parity.graph import Execution, Graph, graph_of
from interop.parity.sources import Source
from interop.parity.witness import Witness

__all__ = ["OUTLINE_FILE", "TensorFlowInside", "open_tensorflow"]

Array = npt.NDArray[Any]

OUTLINE_FILE = "assets.extra/tensor_interop_graph.onnx"
"""Where an exporter leaves the ONNX graph, without weights, whose nodes say which tensors they became."""
TENSORS = "tensor_interop.tensors"
"""The metadata key of a node's tensors, one a line and in the order of its outputs."""
_SIZE_LIMIT = 64 << 20

FOREIGN = "the SavedModel does not say which of its tensors is which value of the model; a SavedModel that export_model wrote does"


def open_tensorflow(witness: Witness) -> TensorFlowInside | str:
    """Open a TensorFlow candidate, or say why that is not possible."""
    onnx = require("onnx", "to read which tensors hold which values")
    runtime = getattr(witness, "runtime", None)
    root: Any = getattr(runtime, "_root", None)
    function: Any = getattr(runtime, "_function", None)
    content, path = None, witness.path
    if callable(getattr(root, "outline", None)):
        content = root.outline()
    elif path is not None and (file := Path(path) / OUTLINE_FILE).is_file() and file.stat().st_size <= _SIZE_LIMIT:
        content, function = file.read_bytes(), getattr(root, "_concrete", None)  # a signature only calls this one
    if content is None or function is None or runtime is None:
        return FOREIGN
    try:
        proto = onnx.ModelProto.FromString(content)
    except Exception:  # noqa: BLE001 - protobuf's DecodeError stands in another package; the file is anybody's
        return "the outline of the graph beside the SavedModel is damaged"
    if runtime._holds:
        return "its inputs or outputs are sequences or optionals, which cannot be followed through the graph yet"
    present = {tensor.name for operation in function.graph.get_operations() for tensor in operation.outputs}
    tensors = {name: tensor for name, tensor in _tensors_of(proto.graph.node) if tensor in present}
    inputs = {name: runtime._inputs.get(name, name) for name in runtime.signature.input_names}
    return TensorFlowInside(graph_of(proto), function, tensors, inputs)


def _tensors_of(nodes: Iterable[Any]) -> Iterable[tuple[str, str]]:
    """``(value, tensor)`` of everything that is a tensor."""
    for node in nodes:
        names: list[str] = next((entry.value.split("\n") for entry in node.metadata_props if entry.key == TENSORS), [])
        yield from ((value, tensor) for value, tensor in zip(node.output, names) if value and tensor)


@dataclass(frozen=True)
class _Place:
    """Where a value enters the graph.

    Attributes:
        tensor: the tensor that holds it.
        root: what the tensor is the transpose of, where lowerings read that: another layout of the same value.
        order: of that transpose.
    """

    tensor: str
    root: str = ""
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class TensorFlowInside:
    """A concrete function and the tensors that hold the values of its ONNX graph.

    Attributes:
        graph: the ONNX graph, without weights.
        function: the concrete function.
        tensors: ``{value: tensor name}``.
        inputs: ``{input name: TensorFlow's name}``.
    """

    graph: Graph
    function: Any
    tensors: Mapping[str, str]
    inputs: Mapping[str, str]
    unexplained: str = (
        "with every inner value kept, nothing differs: one of TensorFlow's graph optimisations makes the difference"
    )
    format: str = "tensorflow"
    source: Source | None = None
    _places: dict[str, _Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        held = set(self.tensors.values())
        self._places.update({value: _place(self.function.graph, name, held) for value, name in self.tensors.items()})

    def run(self, feeds: Mapping[str, Array], pinned: Mapping[str, Array] | None = None) -> Execution:
        """See ``Inside``."""
        tf = require("tensorflow", "to run a TensorFlow model")
        usable = {name: values for name, values in (pinned or {}).items() if self._takes(name, values)}
        done = Execution()
        errors = (tf.errors.OpError, ValueError, TypeError)
        try:
            done.values.update(self._fetch(feeds, usable, list(self._places)))
        except errors:
            for position, node in enumerate(self.graph.nodes):  # one by one, to see which node it is
                wanted = [name for name in node.output if name in self._places]
                try:
                    done.values.update(self._fetch(feeds, usable, wanted) if wanted else {})
                except errors as error:
                    done.errors[position] = " ".join(str(error).split())[:300]
        return done

    def _takes(self, name: str, values: Array) -> bool:
        """True where a value can stand in for a tensor: the types agree."""
        if name not in self._places:
            return False
        with contextlib.suppress(ConversionError):
            found = self.function.graph.get_tensor_by_name(self._places[name].tensor)
            return dtype_of(found.dtype) is dtype_of(values.dtype)
        return False

    def _fetch(
        self, feeds: Mapping[str, Array], pinned: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """Some values, in one run."""
        tf = require("tensorflow", "to run a TensorFlow model")
        definition = self.function.graph.as_graph_def()
        # Operations, not tensors: a tensor that is replaced would be given back as what stands in for it.
        made = [(self._places[name].root or self._places[name].tensor).rsplit(":", 1) for name in wanted]
        operations = [operation for operation, _ in made]
        fed = {f"f{n}": tf.constant(values) for n, values in enumerate([*feeds.values(), *pinned.values()])}

        def body(**given: Any) -> dict[str, Any]:
            values = [given[f"f{n}"] for n in range(len(given))]
            replaced = self._replaced(dict(zip(feeds, values)), dict(zip(pinned, values[len(feeds) :])))
            found = tf.graph_util.import_graph_def(definition, replaced, return_elements=operations, name="inside")
            own = [operation.outputs[int(number)] for operation, (_, number) in zip(found, made)]
            return {name: self._turned(name, tensor) for name, tensor in zip(wanted, own)}

        specs = {key: tf.TensorSpec(None, value.dtype) for key, value in fed.items()}
        results = tf.function(body, autograph=False).get_concrete_function(**specs)(**fed)
        return {name: value.numpy() for name, value in results.items() if isinstance(value.numpy(), np.ndarray)}

    def _turned(self, name: str, tensor: Any) -> Any:
        tf = require("tensorflow", "to run a TensorFlow model")
        place = self._places[name]
        return tf.transpose(tensor, place.order) if place.root else tf.identity(tensor)

    def _replaced(self, feeds: Mapping[str, Any], pinned: Mapping[str, Any]) -> dict[str, Any]:
        """What stands in for which tensor of the graph: weights, inputs and pinned values."""
        tf = require("tensorflow", "to run a TensorFlow model")
        captured = self.function.captured_inputs
        places = self.function.inputs[len(self.function.inputs) - len(captured) :]
        found = {place.name: tf.identity(held) for place, held in zip(places, captured)}
        wanted = {self.inputs[name]: value for name, value in feeds.items()}
        for tensor in self.function.inputs[: len(self.function.inputs) - len(captured)]:
            found[tensor.name] = tf.ensure_shape(wanted[_argument(tensor)], tensor.shape)
        for name, value in pinned.items():
            place = self._places[name]
            found[place.tensor] = value
            if place.root:
                found[place.root] = tf.transpose(value, np.argsort(place.order))
        return found


def _argument(placeholder: Any) -> str:
    """The argument that a placeholder stands for: loading a SavedModel changes the placeholder's own name."""
    try:
        return str(placeholder.op.get_attr("_user_specified_name").decode())
    except ValueError:
        return str(placeholder.op.name)


def _place(graph: Any, name: str, held: set[str]) -> _Place:
    tf = require("tensorflow", "to run a TensorFlow model")
    operation = graph.get_tensor_by_name(name).op
    if operation.type != "Transpose" or operation.inputs[0].name in held:
        return _Place(name)
    order = tf.get_static_value(operation.inputs[1])
    if order is None or operation.inputs[0].op.type in ("Placeholder", "ReadVariableOp"):
        return _Place(name)
    return _Place(name, operation.inputs[0].name, tuple(int(axis) for axis in order))
