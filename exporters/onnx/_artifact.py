"""An ONNX model in memory, and how it becomes files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

import interop
from exporters._request import DimRecord
from exporters.errors import TranslationError
from exporters.onnx._checked import check_file
from exporters.onnx._metadata import hide_machine
from exporters.onnx._runnable import named_refusals
from interop import Runtime, Signature

__all__ = ["SINGLE_FILE_BYTES", "OnnxArtifact"]

SINGLE_FILE_BYTES = 1 << 30
"""Weights up to this size (1 GiB) stay inside the one file; larger ones go to a data file beside it."""


@dataclass(frozen=True)
class OnnxArtifact:
    """An exported ONNX model.

    Attributes:
        model: the graph, with torch's stack traces on its nodes.
        signature: inputs and outputs, and how they sit in the model's arguments.
        dims: what became of the dims that were wanted dynamic.
        notices: what the user should know.
        parameters: ``{initializer name: trainable}``, or None where it is not known.
        keep_traces: leave the stack traces in the file.
        approximate: whether it was made to differ from the model, by a lower precision.
    """

    model: ir.Model
    signature: Signature
    dims: tuple[DimRecord, ...] = ()
    notices: tuple[str, ...] = ()
    parameters: Mapping[str, bool] | None = None
    keep_traces: bool = False
    approximate: bool = False
    format: str = "onnx"

    def write(self, path: Path) -> None:
        """Write the file, and a data file ``<name>.<hash>.data`` beside it if the weights are large.

        Raises:
            TranslationError: onnx's checker does not accept the model.
        """
        model, data = self.public_model(), None
        if self._weight_bytes() > SINGLE_FILE_BYTES:
            data = f"{path.name}.{self._digest()}.data"
        else:
            model = _with_weights(model)
        ir.save(model, path, external_data=data)
        try:
            check_file(path)
        except onnx.checker.ValidationError as error:
            raise TranslationError(f"the exported model is not valid ONNX: {str(error).splitlines()[0]}") from error

    def public_model(self) -> ir.Model:
        """The model as it is written: without the paths of this machine unless they were asked for."""
        if self.keep_traces:
            return self.model
        model = self.model.clone()
        hide_machine(model)
        return model

    def files(self, path: Path) -> tuple[Path, ...]:
        """The data files, then the model file."""
        return (*sorted(path.parent.glob(f"{path.name}.*.data")), path)

    def tidy(self, path: Path) -> None:
        """Remove the data files of an older export at this path, which the new model file does not name."""
        model = onnx.load(str(path), load_external_data=False)
        named = {
            entry.value
            for tensor in model.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        pattern = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}\.data")
        for other in path.parent.glob(f"{path.name}.*.data"):
            if pattern.fullmatch(other.name) and other.name not in named:
                other.unlink()

    def load(self) -> Runtime:
        """The model in ONNX Runtime."""
        with named_refusals(self.model):
            return interop.load(self.model)

    def _weight_bytes(self) -> int:
        return sum(value.const_value.nbytes for value in self.model.graph.initializers.values() if value.const_value)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name, value in self.model.graph.initializers.items():
            digest.update(str(name).encode())
            if value.const_value is not None:
                digest.update(_bytes(value.const_value))
        return digest.hexdigest()[:8]


def _with_weights(model: ir.Model) -> ir.Model:
    """The model with its weights in it, where a file that it was read from has them beside it."""
    stored = (value.const_value for graph in model.graphs() for value in graph.initializers.values())
    if not any(isinstance(tensor, ir.ExternalTensor) for tensor in stored):
        return model
    return ir.external_data.load_to_model(model.clone())


def _bytes(tensor: ir.TensorProtocol) -> Any:
    return memoryview(tensor.tobytes())
