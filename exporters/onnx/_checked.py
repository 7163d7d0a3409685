"""onnx's checker, with what it asks of a file beyond ONNX taken back."""

from __future__ import annotations

from pathlib import Path

import onnx

from interop.runtimes._onnx_model import parse_model  # the same checks as for a model that is run

__all__ = ["check_file"]


def check_file(path: Path) -> None:
    """Refuse what is not valid ONNX, and external data outside the folder, before anything else that the file names is read.

    Raises:
        ModelFileError: no ONNX file, or data that is missing or lies elsewhere.
        onnx.checker.ValidationError: not valid.
    """
    model = parse_model(path)
    values = (*model.graph.input, *model.graph.output)
    kinds = [value.type.tensor_type for value in values if value.type.HasField("tensor_type")]
    shapeless = [kind for kind in kinds if not kind.HasField("shape")]
    if shapeless and any(tensor.external_data for tensor in model.graph.initializer):
        return  # the checker finds the weights of a file only, and ``parse_model`` has looked at them
    for kind in shapeless:  # the checker wants a shape for each input and output; ONNX and its runtimes do not
        kind.shape.SetInParent()
    onnx.checker.check_model(model if shapeless else str(path))
