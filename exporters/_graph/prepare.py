"""Bring any ONNX model into the form that the lowering reads: a known opset, types everywhere, no stale shapes."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx_ir.passes import common as passes

from exporters.errors import TranslationError

__all__ = ["OPSET_FLOOR", "prepare"]

OPSET_FLOOR = 13
"""The table serves this opset and newer ones; older models are upgraded first."""


def prepare(model: ir.Model) -> ir.Model:
    """Upgrade a model that is older than ``OPSET_FLOOR`` and infer the types and shapes of its values.

    Args:
        model: the model; it is not changed.

    Returns:
        A model that shares the weights with the given one.

    Raises:
        TranslationError: onnx cannot upgrade the model.
    """
    opset = model.opset_imports.get("", OPSET_FLOOR)
    if opset < OPSET_FLOOR:
        model = _upgraded(model, opset)
    return model


def infer_shapes(model: ir.Model) -> ir.Model:
    """Forget the declared shapes of inner values, which a stranger's file may have wrong, and infer them anew."""
    copied = model.clone()
    boundary = {*copied.graph.inputs, *copied.graph.outputs}
    for node in copied.graph:
        for value in node.outputs:
            if value not in boundary:
                value.shape = None
    try:
        return passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(copied).model
    except ir.serde.SerdeError as error:
        raise TranslationError(f"the model has types that onnx_ir cannot read, such as maps: {error}") from error


def _upgraded(model: ir.Model, opset: int) -> ir.Model:
    try:
        return ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(model), OPSET_FLOOR))
    except (RuntimeError, ValueError, onnx.version_converter.ConvertError) as error:
        raise TranslationError(
            f"the model uses opset {opset} and onnx cannot upgrade it to {OPSET_FLOOR}: {error}"
        ) from error
