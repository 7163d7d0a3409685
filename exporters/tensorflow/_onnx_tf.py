"""The second engine: the package onnx-tf 1.10 (2022), with stand-ins for modules that no longer exist.

It serves as a witness, not as a way to production: weights become constants of the graph, and a graph is relabelled to an
opset that it knows (16) without being rewritten. So its result counts only after it agrees with ONNX Runtime.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import onnx
import onnx_ir as ir
import tensorflow as tf

import interop
from exporters._request import ExportRequest
from exporters._samples import sample_batches
from exporters.errors import OptionsError, TranslationError
from exporters.tensorflow._names import safe_names
from exporters.tensorflow._tensors import tf_dtype
from interop import Signature
from interop.errors import ParityError

__all__ = ["OnnxTfModule", "convert_with_onnx_tf", "standing_in"]

NEWEST_OPSET = 16
"""What onnx-tf 1.10 knows."""

# onnx-tf writes the model's opset onto its handler classes, so two conversions cannot run side by side.
_LOCK = threading.Lock()


class OnnxTfModule(tf.Module):  # type: ignore[misc]  # tf.Module is untyped
    """What onnx-tf made of a graph, with the same surface as ``LoweredModule``; all weights are constants.

    Attributes:
        weights: empty: there are no variables.
    """

    def __init__(self, inner: Any, signature: Signature, given: Sequence[str]) -> None:
        """Wrap onnx-tf's module.

        Args:
            inner: the module.
            signature: the model's signature.
            given: the names under which the module takes the inputs, in order.
        """
        super().__init__(name="model")
        self.weights: dict[str, tf.Variable] = {}
        self._inner = inner
        self._signature = signature
        self._given = tuple(given)
        self._input_names = safe_names(signature.input_names)
        specs = {self._input_names[spec.name]: _tensor_spec(spec, self._input_names) for spec in signature.inputs}
        self._function = tf.function(self._forward, autograph=False)
        self._concrete = self._function.get_concrete_function(**specs)

    def _forward(self, **inputs: Any) -> dict[str, Any]:
        values = [inputs[self._input_names[name]] for name in self._signature.input_names]
        outputs = self._inner(**dict(zip(self._given, values)))
        return {name: tf.identity(outputs[name]) for name in self._signature.output_names}

    def __call__(self, *inputs: Any, training: bool = False) -> dict[str, Any]:
        """Run the model on tensors in the order of its inputs; there is no training signature."""
        if training:
            raise OptionsError(f"engine='onnx-tf' has no training signature; {_ADVICE}")
        return dict(self._concrete(**dict(zip(self._input_names.values(), inputs, strict=True))))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The model's own input names, in order."""
        return self._signature.input_names

    def outline(self) -> bytes | None:
        """None: which tensor is which value of the graph, onnx-tf does not tell."""
        return None

    @property
    def trains(self) -> bool:
        """Never: it has no variables."""
        return False

    def signatures_to_save(self) -> dict[str, Any]:
        """``serving_default``."""
        return {"serving_default": self._concrete}

    def serving_signature(self) -> Any:
        """The concrete function that serves the model; its keywords are the TensorFlow-safe input names."""
        return self._concrete

    @property
    def interop_metadata(self) -> dict[str, Any]:
        """Signature and name map as plain JSON data."""
        outputs = {name: name for name in self._signature.output_names}
        names = {"inputs": dict(self._input_names), "outputs": outputs, "variables": {}}
        return {"signature": self._signature.to_json(), "names": names}


def convert_with_onnx_tf(artifact: Any, request: ExportRequest) -> OnnxTfModule:
    """Convert a graph, and compare the result with the graph in ONNX Runtime before anybody uses it.

    Args:
        artifact: the ONNX artifact; its model is not changed.
        request: the export, whose example is what is compared on; without one, inputs are made from the signature.

    Raises:
        OptionsError: onnx-tf is not installed.
        TranslationError: onnx-tf cannot convert the graph.
        ParityError: it converted the graph to something else.
    """
    signature: Signature = artifact.signature
    module = _convert(artifact.model, signature)
    inputs = sample_batches(signature, request.args, request.kwargs) if request.args or request.kwargs else None
    report = interop.check(artifact.load(), module, inputs=inputs, names=["onnx-tf"])
    if not report.passed:
        raise ParityError(f"onnx-tf converted this model to another function; {_ADVICE}\n{report.summary}", report)
    return module


_ADVICE = "use the native engine: TensorFlowOptions(engine='native')"


def _convert(model: ir.Model, signature: Signature) -> OnnxTfModule:
    for spec in (*signature.inputs, *signature.outputs):
        if spec.kind != "tensor":
            raise TranslationError(f"onnx-tf serves tensors only, and {spec.name!r} is a {spec.kind}; {_ADVICE}")
    proto, given = _relabelled(model)
    with _LOCK, standing_in():
        backend = _import_backend()
        try:
            inner = backend.prepare(proto, logging_level="ERROR").tf_module
            return OnnxTfModule(inner, signature, given)
        # A package of another time fails in every way that there is, and each is a refusal.
        except Exception as error:
            # TensorFlow's tracing wraps the cause in the source lines that led to it, which come first.
            text = " ".join(str(error).split())[-300:]
            raise TranslationError(
                f"onnx-tf cannot convert this model ({type(error).__name__}: {text}); {_ADVICE}"
            ) from error


def _relabelled(model: ir.Model) -> tuple[onnx.ModelProto, list[str]]:
    """A copy that declares an opset which onnx-tf knows, and whose inputs have names that Python and TensorFlow take."""
    copied = model.clone()
    copied.graph.opset_imports[""] = min(copied.opset_imports.get("", NEWEST_OPSET), NEWEST_OPSET)
    used = {value.name for node in ir.traversal.RecursiveGraphIterator(copied.graph) for value in node.outputs}
    used |= {value.name for value in copied.graph.inputs} | set(copied.graph.initializers)
    given = []
    for value in copied.graph.inputs:
        if value.name in copied.graph.initializers:
            continue
        if not (value.name or "").isidentifier() and value not in copied.graph.outputs:
            value.name = next(name for number in range(len(used) + 1) if (name := f"input_{number}") not in used)
            used.add(value.name)
        given.append(str(value.name))
    return ir.to_proto(copied), given


def _tensor_spec(spec: Any, names: Mapping[str, str]) -> tf.TensorSpec:
    dims = None if spec.shape is None else [dim if isinstance(dim, int) else None for dim in spec.shape]
    return tf.TensorSpec(dims, tf_dtype(spec.dtype), name=names[spec.name])


def _import_backend() -> Any:
    before = set(sys.modules)
    try:
        import onnx_tf.backend  # type: ignore[import-not-found]  # a package that users may have

        return onnx_tf.backend.TensorflowBackend
    except ModuleNotFoundError as error:
        for name in set(sys.modules) - before:  # half a package would be taken for a whole one the next time
            if name.partition(".")[0] == "onnx_tf":
                del sys.modules[name]
        missing = str(error.name)
        if missing.partition(".")[0] == "onnx_tf":
            install = "is not installed: pip install --no-deps onnx-tf==1.10.0"
            raise OptionsError(f"engine='onnx-tf' needs the package onnx-tf, which {install}; or {_ADVICE}") from error
        raise OptionsError(f"onnx-tf needs {missing}, which is not installed; install it, or {_ADVICE}") from error


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """Put the modules that onnx-tf wants and that no longer exist in place; all of it is gone afterwards."""
    mapping = _mapping()
    modules = {"onnx.mapping": mapping, "tensorflow_addons": _addons(), "tensorflow_probability": _probability()}
    put = {name: module for name, module in modules.items() if name not in sys.modules}
    owners = [owner for owner in (onnx, onnx.helper) if not hasattr(owner, "mapping")]
    level = logging.root.level
    sys.modules.update(put)
    for owner in owners:
        owner.mapping = mapping
    try:
        yield
    finally:
        for name in put:
            sys.modules.pop(name, None)
        for owner in owners:
            del owner.mapping
        logging.root.setLevel(level)


def _mapping() -> ModuleType:
    """The four tables of ``onnx.mapping``, which left onnx with 1.19."""
    helper = onnx.helper
    kinds = list(helper.get_all_tensor_dtypes())
    module: Any = ModuleType("onnx.mapping")
    module.TENSOR_TYPE_TO_NP_TYPE = {kind: helper.tensor_dtype_to_np_dtype(kind) for kind in kinds}
    module.NP_TYPE_TO_TENSOR_TYPE = {dtype: kind for kind, dtype in module.TENSOR_TYPE_TO_NP_TYPE.items()}
    module.TENSOR_TYPE_TO_STORAGE_TENSOR_TYPE = {
        kind: helper.tensor_dtype_to_storage_tensor_dtype(kind) for kind in kinds
    }
    module.STORAGE_TENSOR_TYPE_TO_FIELD = {kind: helper.tensor_dtype_to_field(kind) for kind in kinds}
    return module  # type: ignore[no-any-return]  # Any, to give it attributes


def _addons() -> ModuleType:
    module: Any = ModuleType("tensorflow_addons")
    module.seq2seq = ModuleType("tensorflow_addons.seq2seq")
    module.seq2seq.hardmax = lambda logits, name=None: tf.one_hot(
        tf.argmax(logits, -1), tf.shape(logits)[-1], dtype=logits.dtype, name=name
    )
    return module  # type: ignore[no-any-return]  # Any, to give it attributes


def _probability() -> ModuleType:
    module: Any = ModuleType("tensorflow_probability")
    module.distributions = ModuleType("tensorflow_probability.distributions")
    module.distributions.Bernoulli = _Bernoulli
    return module  # type: ignore[no-any-return]  # Any, to give it attributes


class _Bernoulli:
    def __init__(self, probs: Any, dtype: Any) -> None:
        self._probs, self._dtype = probs, dtype

    def sample(self, seed: int | None = None) -> Any:
        return tf.cast(
            tf.random.uniform(tf.shape(self._probs), dtype=self._probs.dtype, seed=seed) < self._probs, self._dtype
        )
