"""TensorFlow models as the source of an ONNX export: tf2onnx converts, and what it does wrong is corrected or refused.

Importing this package imports neither TensorFlow nor tf2onnx.
"""

from __future__ import annotations

from typing import Any

from exporters.onnx._artifact import OnnxArtifact
from interop import Runtime
from interop.extras import require

__all__ = ["from_tensorflow", "is_tensorflow"]


def is_tensorflow(model: Any) -> bool:
    """Whether this is a TensorFlow model that ``interop.load`` has opened."""
    return isinstance(model, Runtime) and model.name == "tensorflow"


def from_tensorflow(runtime: Any, opset: int | None = None) -> OnnxArtifact:
    """The ONNX model of an opened TensorFlow model, under the runtime's names.

    Args:
        runtime: what ``interop.load`` gives for a TensorFlow model.
        opset: version of the default operator set, 16 to 18; None for the newest that tf2onnx writes.

    Raises:
        UnsupportedOperatorError: naming every TensorFlow operator that ONNX, tf2onnx or this project cannot express.
        TranslationError: another opset, or the model is larger than 2 GB.
        MissingExtraError: tf2onnx is not installed.
    """
    require("tf2onnx", "to export a TensorFlow model")
    from exporters.onnx.from_tensorflow._convert import convert

    return convert(runtime, opset)
