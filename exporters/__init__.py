"""Turn PyTorch models into ONNX files, TensorFlow SavedModels and further formats.

Importing this package imports no framework.

Example:
    >>> from exporters import export_model
    >>> export_model(model, "onnx").save("digits.onnx")
"""

from __future__ import annotations

from exporters._export import export_model
from exporters._exported import ExportedModel
from exporters._formats import available_formats, register_exporter
from exporters._request import Artifact, DimRecord, Exporter, ExportRequest
from exporters.errors import (
    CaptureError,
    ExportError,
    MissingInputsError,
    OptionsError,
    TranslationError,
    Unsupported,
    UnsupportedOperatorError,
    WriteError,
)

__all__ = [
    "export_model",
    "ExportedModel",
    "available_formats",
    "register_exporter",
    "Artifact",
    "DimRecord",
    "Exporter",
    "ExportRequest",
    "ExportError",
    "MissingInputsError",
    "OptionsError",
    "CaptureError",
    "TranslationError",
    "Unsupported",
    "UnsupportedOperatorError",
    "WriteError",
]
