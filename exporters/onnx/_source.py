"""ONNX models that somebody else made, as the source of an export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from exporters._graph_signature import signature_of
from exporters.errors import OptionsError
from exporters.onnx._artifact import OnnxArtifact
from exporters.onnx._checked import check_file
from exporters.onnx._metadata import read_parameters, read_signature
from exporters.onnx.from_tensorflow import from_tensorflow, is_tensorflow
from interop.errors import ModelFileError

__all__ = ["is_source", "load_source"]


def is_source(model: Any) -> bool:
    """Whether ``load_source`` takes a model of this kind; nothing is opened."""
    return isinstance(model, (OnnxArtifact, onnx.ModelProto, ir.Model, str, os.PathLike)) or is_tensorflow(model)


def load_source(model: Any, opset: int | None = None) -> OnnxArtifact | None:
    """An ONNX file (with external data as memory maps), an ONNX model in memory, or an opened TensorFlow model.

    Args:
        model: the source; None is the answer for anything else.
        opset: of a model that has to be converted first; an ONNX model keeps its own.

    Raises:
        ModelFileError: the file is missing, is not valid ONNX, or refers to data outside its folder.
        TranslationError: ONNX cannot express the TensorFlow model.
    """
    if is_tensorflow(model):
        return from_tensorflow(model, opset)
    if isinstance(model, OnnxArtifact):
        return model
    if isinstance(model, onnx.ModelProto):
        return _artifact(ir.from_proto(model))
    if isinstance(model, ir.Model):
        return _artifact(model)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix != ".onnx":
            what = "is not a model that can be exported" if path.exists() else "does not exist"
            raise OptionsError(
                f"{path} {what}; give an .onnx, .keras or .pt2 file, a SavedModel folder, or a model in memory"
            )
        _check(path)
        return _artifact(ir.load(path))
    return None


def _check(path: Path) -> None:
    try:
        check_file(path)
    except onnx.checker.ValidationError as error:
        raise ModelFileError(f"{path}: not a valid ONNX model: {str(error).splitlines()[0]}") from error


def _artifact(model: ir.Model) -> OnnxArtifact:
    if model.graph is None or not model.opset_imports:
        raise ModelFileError("the ONNX model has no graph or no opset imports")
    signature = read_signature(model) or signature_of(model.graph)
    return OnnxArtifact(model, signature, parameters=read_parameters(model))
