"""From an ONNX graph to a lowered module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from exporters._graph.prepare import infer_shapes, prepare
from exporters._graph_signature import signature_of
from exporters.tensorflow import ops as _ops  # noqa: F401  # fills the operator table
from exporters.tensorflow._fold import fold_weights
from exporters.tensorflow._module import LoweredModule
from interop import Signature

__all__ = ["lower_model"]


def lower_model(
    model: ir.Model,
    signature: Signature | None = None,
    parameters: Mapping[str, bool] | None = None,
    *,
    trainable: bool = False,
    training: bool = False,
    signatures: Mapping[str, Sequence[str]] | None = None,
) -> LoweredModule:
    """Lower an ONNX model.

    Args:
        model: the model; it is not changed.
        signature: its signature, where more is known than the graph says; then the graph's own shapes are trusted.
        parameters: see ``LoweredModule``.
        trainable: whether parameters are trainable variables.
        training: see ``LoweredModule``.
        signatures: see ``LoweredModule``.

    Raises:
        UnsupportedOperatorError: naming every node that TensorFlow cannot express.
        TranslationError: the model is older than the table and cannot be upgraded.
        OptionsError: a further signature wants an output that the model does not have.
    """
    model = prepare(model)
    if signature is None or signature.arguments is None:
        signature = signature_of(model.graph)
        model = infer_shapes(model)
    if not (trainable or training):
        model, parameters = fold_weights(model, parameters)
    return LoweredModule(model, signature, parameters, trainable=trainable, training=training, signatures=signatures)
