"""The reference evaluator of the onnx package: slow, plain NumPy, a second opinion on what an ONNX model means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interop.dtypes import dtype_of
from interop.errors import ConversionError, InteropError, ModelFileError
from interop.extras import require
from interop.frameworks import convert
from interop.runtimes._base import Runtime
from interop.runtimes._onnx_model import SIGNATURE_KEY, open_model, parse_model
from interop.runtimes._stored import read_signature
from interop.signature import Signature, TensorSpec

onnx = require("onnx", "to evaluate an ONNX model")
onnx_reference = require("onnx.reference", "to evaluate an ONNX model")

__all__ = ["OnnxReferenceRuntime"]


class OnnxReferenceRuntime(Runtime):
    """An ONNX model in ``onnx.reference.ReferenceEvaluator``."""

    name = "onnx-reference"
    framework = "numpy"

    def __init__(self, model: Any, path: Path | None = None) -> None:
        super().__init__(_signature(model, str(path or "the model")), path)
        try:
            self._evaluator = onnx_reference.ReferenceEvaluator(model)
        except (NotImplementedError, RuntimeError, TypeError, ValueError, KeyError) as error:
            raise ModelFileError(f"{path or 'the model'}: the reference evaluator cannot load it: {error}") from error

    @classmethod
    def open(cls, model: Any) -> OnnxReferenceRuntime:
        """Load an ONNX file or an ONNX model in memory (see ``OnnxRuntime.open``).

        Raises:
            ModelFileError: not ONNX, truncated, or external data that is unsafe or missing.
        """
        with open_model(model) as opened:
            if isinstance(opened.source, bytes):
                return cls(onnx.load_model_from_string(opened.source), opened.path)
            proto = parse_model(Path(opened.source))
            onnx.load_external_data_for_model(proto, str(Path(opened.source).parent))
            return cls(proto, opened.path)

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        feed = {name: convert(value, "numpy") for name, value in inputs.items()}
        try:
            outputs = self._evaluator.run(None, feed)
        except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
            raise InteropError(f"{self.path or 'the model'}: the reference evaluator failed: {error}") from error
        names = [value.name for value in self._evaluator.proto_.graph.output]
        found = dict(zip(names, outputs))
        return {name: convert(found[name], owner) for name in self.signature.output_names}


def _signature(model: Any, where: str) -> Signature:
    given = {tensor.name for tensor in model.graph.initializer}
    graph = Signature(
        tuple(_spec(value, where) for value in model.graph.input if value.name not in given),
        tuple(_spec(value, where) for value in model.graph.output),
    )
    stored = {entry.key: entry.value for entry in model.metadata_props}.get(SIGNATURE_KEY)
    return graph if stored is None else read_signature(stored, graph, where)


def _spec(value: Any, where: str) -> TensorSpec:
    kind = value.type
    if not kind.HasField("tensor_type"):
        raise ModelFileError(f"{where}: {value.name!r} is no tensor; the reference evaluator is kept to tensors here")
    tensor = kind.tensor_type
    try:
        dtype = dtype_of(tensor.elem_type).name
    except ConversionError as error:
        raise ModelFileError(f"{where}: {value.name!r}: {error}") from error
    if not tensor.HasField("shape"):
        return TensorSpec(value.name, dtype, None)
    return TensorSpec(value.name, dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


def _dim(dim: Any) -> int | str | None:
    return int(dim.dim_value) if dim.HasField("dim_value") else str(dim.dim_param) or None
