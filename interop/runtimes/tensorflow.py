"""TensorFlow: a SavedModel, or a module in memory, called through one concrete function."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from interop.dtypes import dtype_of
from interop.errors import ConversionError, InteropError, ModelFileError
from interop.extras import require
from interop.frameworks import convert
from interop.runtimes._base import Accepted, Runtime, owner_of
from interop.runtimes._keras_file import is_keras_file, load_keras
from interop.runtimes._packed import expand, items_of, pack, unpack
from interop.runtimes._stored import read_signature
from interop.runtimes._tensorflow_models import live_function
from interop.signature import Dim, Signature, TensorSpec
from interop.structure import renamed, structure_to_json

tf = require("tensorflow", "to run a SavedModel")

__all__ = ["METADATA_FILE", "TensorFlowRuntime"]

METADATA_FILE = "assets.extra/tensor_interop.json"
"""Where an exporter leaves ``{"signature": ..., "names": {"inputs": {...}, "outputs": {...}}}`` in a SavedModel.

A signature that has other inputs or outputs than the model stands under ``"signatures"`` with data of the same form.
"""

_SIZE_LIMIT = 8 << 20
_TF_ERRORS = (tf.errors.OpError, ValueError, TypeError)


class TensorFlowRuntime(Runtime):
    """A TensorFlow signature: a concrete function with keyword inputs and a dict of outputs.

    TensorFlow's names are more restricted than other frameworks' and have no order; a SavedModel written by this
    project carries the model's own names and order beside it, and those are the names here.
    """

    name = "tensorflow"
    framework = "tensorflow"

    def __init__(self, root: Any, function: Any, metadata: Any = None, path: Path | None = None) -> None:
        """Wrap a concrete function.

        Args:
            root: the object that owns the variables; it has to live as long as the function.
            function: a ``ConcreteFunction`` of tensors that gives a dict.
            metadata: the content of ``METADATA_FILE``, or None.
            path: the folder that it was loaded from.
        """
        where = str(path or "the module in memory")
        self._root = root
        self._function = function
        graph = _graph_signature(function, where)
        self._inputs, self._outputs = _names(metadata, graph, where)
        named = graph.renamed(_inverse(self._inputs), _inverse(self._outputs))
        stored = metadata.get("signature") if isinstance(metadata, Mapping) else None
        super().__init__(named if stored is None else read_signature(stored, named, where, expand), path)
        self._holds = any(spec.kind != "tensor" for spec in (*self.signature.inputs, *self.signature.outputs))

    @classmethod
    def open(cls, model: Any, *, signature: str = "serving_default", inputs: Any = None) -> TensorFlowRuntime:
        """Load a SavedModel folder or a Keras archive, or wrap what is in memory.

        Args:
            model: path of a SavedModel or of a ``.keras`` file; what ``tf.saved_model.load`` gave; a Keras model, a
                ``tf.function`` or a ``tf.Module`` that can be called; or a ``tf.Module`` with ``serving_signature() ->
                ConcreteFunction`` and, optionally, ``interop_metadata`` and ``signatures_to_save() -> {signature:
                ConcreteFunction}``.
            signature: which of its signatures to call.
            inputs: an example call, for a live model that does not say what it takes: a tensor, a tuple of arguments or a dict.

        Raises:
            ModelFileError: no SavedModel or Keras archive, a damaged one, or one without that signature.
            InputError: a live model that does not say what it takes.
        """
        if not isinstance(model, (str, os.PathLike)):
            return cls._wrap(model, signature, inputs)
        path = Path(model)
        if is_keras_file(path):
            return cls._wrap(load_keras(path), signature, inputs, path)
        try:
            root = tf.saved_model.load(str(path))
        except (tf.errors.OpError, OSError, ValueError, KeyError, AttributeError) as error:
            raise ModelFileError(f"{path}: TensorFlow cannot load the SavedModel: {str(error)[:500]}") from error
        function = _choose(getattr(root, "signatures", {}), signature, str(path))
        return cls(root, function, _metadata_of(signature, _read_metadata(path)), path)

    @classmethod
    def _wrap(cls, model: Any, signature: str, inputs: Any, path: Path | None = None) -> TensorFlowRuntime:
        metadata = getattr(model, "interop_metadata", None)
        if callable(getattr(model, "serving_signature", None)):
            known = {**getattr(model, "signatures_to_save", dict)(), "serving_default": model.serving_signature()}
            function = _choose(known, signature, "the module in memory")
            return cls(model, function, _metadata_of(signature, metadata))
        if isinstance(getattr(model, "signatures", None), Mapping):
            return cls(model, _choose(model.signatures, signature, "the SavedModel in memory"), metadata)
        function, found = live_function(model, inputs)
        return cls(model, function, found, path)

    @property
    def concrete(self) -> tuple[Any, Any, Mapping[str, str], Mapping[str, str]]:
        """What it calls: the owner of the variables, the function, and ``{own name: TensorFlow's}`` of inputs and outputs."""
        own = expand(self.signature)
        inputs = {name: self._inputs.get(name, name) for name in own.input_names}
        return self._root, self._function, inputs, {name: self._outputs.get(name, name) for name in own.output_names}

    def with_outputs(self, names: Mapping[str, str]) -> TensorFlowRuntime:
        """The same model with other names for some outputs.

        Args:
            names: ``{own name: new name}``.
        """
        root, function, inputs, outputs = self.concrete
        data = self.signature.to_json()
        data["outputs"] = [spec | {"name": names.get(spec["name"], spec["name"])} for spec in data["outputs"]]
        if self.signature.results is not None:
            data["results"] = structure_to_json(renamed(self.signature.results, names))
        outputs = {names.get(name, name): key for name, key in outputs.items()}
        return TensorFlowRuntime(
            root, function, {"signature": data, "names": {"inputs": inputs, "outputs": outputs}}, self.path
        )

    def _examine(self, inputs: Mapping[str, Any]) -> Accepted:
        if not self._holds:
            return super()._examine(inputs)
        self.signature.check_names(inputs)
        sizes: dict[str, int] = {}
        found: list[Any] = []
        for spec in self.signature.inputs:
            items = [inputs[spec.name]] if spec.kind == "tensor" else items_of(spec, inputs[spec.name])
            for item in items:
                info = self._describe(spec.name, item)
                # Items of a sequence may differ in shape; the graph checks what it needs.
                spec.check(info.dtype, info.shape, sizes if spec.kind == "tensor" else {})
            found += items
        return Accepted(owner_of(found))

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        feed = {self._inputs.get(name, name): _to_tensorflow(value) for name, value in self._dense(inputs).items()}
        try:
            results = self._function(**feed)
        except _TF_ERRORS as error:
            raise InteropError(f"{self.path or 'the module'} failed while it ran: {str(error)[:1000]}") from error
        keys = ((spec.name, self._outputs.get(spec.name, spec.name)) for spec in expand(self.signature).outputs)
        given = {name: _give(results[key], owner) for name, key in keys}
        return {spec.name: unpack(spec, given) for spec in self.signature.outputs} if self._holds else given

    def _dense(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The dense tensors of all inputs."""
        if not self._holds:
            return inputs
        dense: dict[str, Any] = {}
        for spec in self.signature.inputs:
            value = inputs[spec.name]
            if spec.kind == "tensor":
                dense[spec.name] = value
            else:
                items = [convert(item, "numpy") for item in items_of(spec, value)]
                dense |= pack(spec, None if value is None else items[0] if spec.kind == "optional" else items)
        return dense


def _to_tensorflow(value: Any) -> Any:
    if isinstance(value, list):  # strings: NumPy is their other home
        value = np.array(value, dtype=object)
    return convert(value, "tensorflow")


def _give(value: Any, owner: str) -> Any:
    if value.dtype == tf.string and owner != "tensorflow":
        return value.numpy()
    return convert(value, owner)


def _choose(signatures: Mapping[str, Any], signature: str, where: str) -> Any:
    if signature in signatures:
        return signatures[signature]
    has = f"it has {', '.join(sorted(signatures))}; choose one with signature=" if signatures else "it has none"
    raise ModelFileError(f"{where}: no signature {signature!r}; {has}")


def _graph_signature(function: Any, where: str) -> Signature:
    """What the graph declares, under TensorFlow's names and in its order."""
    positional, keywords = function.structured_input_signature
    outputs = function.structured_outputs
    inputs = dict(zip(function.function_type.parameters, positional)) | keywords
    if len(inputs) != len(positional) + len(keywords) or not isinstance(outputs, Mapping):
        raise ModelFileError(
            f"{where}: the function must take named tensors and give a dict, as SavedModel signatures do"
        )
    return Signature(
        tuple(_spec(name, spec, where) for name, spec in inputs.items()),
        tuple(_spec(name, spec, where) for name, spec in outputs.items()),
    )


def _spec(name: str, spec: Any, where: str) -> TensorSpec:
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape"):
        raise ModelFileError(f"{where}: {name!r} is a {type(spec).__name__}; only dense tensors are supported")
    try:
        dtype = dtype_of(spec.dtype).name
    except ConversionError as error:
        raise ModelFileError(f"{where}: {name!r} has the type {spec.dtype.name}, which is not supported") from error
    dims: tuple[Dim, ...] | None = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    return TensorSpec(name, dtype, dims)


def _metadata_of(signature: str, metadata: Any) -> Any:
    """What is stored about one signature."""
    further = metadata.get("signatures") if isinstance(metadata, Mapping) else None
    return further[signature] if isinstance(further, Mapping) and signature in further else metadata


def _read_metadata(path: Path) -> Any:
    file = path / METADATA_FILE
    if not file.is_file():
        return None
    try:
        if file.stat().st_size > _SIZE_LIMIT:
            raise ValueError("it is too large")
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        warnings.warn(f"{file}: ignored: {error}", stacklevel=2)
        return None


def _names(metadata: Any, graph: Signature, where: str) -> tuple[dict[str, str], dict[str, str]]:
    """``{the model's name: TensorFlow's}`` of inputs and outputs, empty where nothing valid is stored."""
    if metadata is None:
        return {}, {}
    names = metadata.get("names") if isinstance(metadata, Mapping) else metadata
    if names is None:
        return {}, {}
    if isinstance(names, Mapping):
        inputs, outputs = names.get("inputs"), names.get("outputs")
        if _is_bijection(inputs, graph.input_names) and _is_bijection(outputs, graph.output_names):
            return dict(inputs), dict(outputs)
    warnings.warn(f"{where}: the stored names are ignored: they are not those of the graph", stacklevel=2)
    return {}, {}


def _is_bijection(names: Any, graph: tuple[str, ...]) -> TypeGuard[Mapping[str, str]]:
    return (
        isinstance(names, Mapping)
        and all(isinstance(value, str) for value in names.values())
        and sorted(names.values()) == sorted(graph)
    )


def _inverse(names: Mapping[str, str]) -> dict[str, str]:
    return {value: name for name, value in names.items()}
