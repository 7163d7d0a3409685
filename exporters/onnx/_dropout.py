"""Keep Dropout in a graph that is otherwise captured in evaluation mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import nn

__all__ = ["dropout_kept", "switch_off_dropout"]

_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@contextlib.contextmanager
def dropout_kept(model: Any) -> Iterator[None]:
    """While this is open, the Dropout layers of a module are in training mode, so that the capture records them."""
    layers = (
        [part for part in model.modules() if isinstance(part, _LAYERS)] if isinstance(model, torch.nn.Module) else []
    )
    modes = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = True
        yield
    finally:
        for layer, mode in zip(layers, modes):
            layer.training = mode


def switch_off_dropout(model: ir.Model) -> None:
    """Set ``training_mode`` of every Dropout node to false: the graph answers as in evaluation."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None:
            off = ir.Value(name=f"{node.outputs[0].name}_training_mode", const_value=ir.tensor(np.array(False)))
            off.const_value.name = off.name
            off.dtype, off.shape = ir.DataType.BOOL, ir.Shape([])
            model.graph.initializers.add(off)
            node.replace_input_with(2, off)
