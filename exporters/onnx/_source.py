"""ONNX models that somebody else made, as the source of an export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

import interop
from exporters._graph_signature import signature_of
from exporters.errors import OptionsError
from exporters.onnx._artifact import OnnxArtifact
from exporters.onnx._metadata import read_parameters, read_signature
from interop.errors import ModelFileError

__all__ = ["is_source", "load_source"]


def is_source(model: Any) -> bool:
    """Whether ``load_source`` takes a model of this kind; nothing is opened."""
    return isinstance(model, (OnnxArtifact, onnx.ModelProto, ir.Model, str, os.PathLike))


def load_source(model: Any) -> OnnxArtifact | None:
    """An ONNX file (with external data as memory maps) or an ONNX model in memory; None for anything else.

    Raises:
        ModelFileError: the file is missing, is not ONNX, or refers to data outside its folder.
    """
    if isinstance(model, OnnxArtifact):
        return model
    if isinstance(model, onnx.ModelProto):
        return _artifact(ir.from_proto(model))
    if isinstance(model, ir.Model):
        return _artifact(model)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix != ".onnx":
            raise OptionsError(f"{path} is not an .onnx file; give a torch module, an ExportedProgram or an .onnx file")
        interop.load(path)  # checks the file and the places of its external data before anything is read
        return _artifact(ir.load(path))
    return None


def _artifact(model: ir.Model) -> OnnxArtifact:
    if model.graph is None or not model.opset_imports:
        raise ModelFileError("the ONNX model has no graph or no opset imports")
    signature = read_signature(model) or signature_of(model.graph)
    return OnnxArtifact(model, signature, parameters=read_parameters(model))
