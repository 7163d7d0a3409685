"""Marks that hide places from attention, in int8: beside a range that reaches down to them, scores would all be one number."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from ai_edge_litert.interpreter import Interpreter

import models
from exporters import export_model


class Masked(torch.nn.Module):
    """Attention whose scores of later tokens are so low that they count for nothing."""

    def __init__(self, mark):
        super().__init__()
        torch.manual_seed(0)
        self.mark = mark
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        query, key, value = (layer(x) for layer in self.layers)
        scores = query @ key.mT
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return (scores + torch.zeros_like(scores).masked_fill(later, self.mark)).softmax(-1) @ value


def _quantised(format_, path):
    """The values that are int8, and those that products give."""
    if format_ == "onnx":
        graph = onnx.load(path).graph
        products = {node.output[0] for node in graph.node if node.op_type == "MatMul"}
        return {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}, products
    interpreter = Interpreter(model_path=str(path))
    names = {each["index"]: each["name"] for each in interpreter.get_tensor_details()}
    operators = interpreter._get_ops_details()
    products = {names[op["outputs"][0]] for op in operators if op["op_name"] in ("BATCH_MATMUL", "FULLY_CONNECTED")}
    return {each["name"] for each in interpreter.get_tensor_details() if each["dtype"] is np.int8}, products


@pytest.mark.parametrize("mark", [-np.inf, float(np.finfo(np.float32).min), -1e9, -1e4])
@pytest.mark.parametrize("format_", ["onnx", "litert"])
def test_marks_do_not_stretch_the_range_of_an_activation(format_, mark, tmp_path):
    """LiteRT ends the process on the range of the first two."""
    torch.manual_seed(1)
    model, batches = Masked(mark), [torch.randn(2, 6, 16) for _ in range(4)]
    path = tmp_path / {"onnx": "masked.onnx", "litert": "masked.tflite"}[format_]
    options = {"precision": "int8", "representative": batches}
    exported = export_model(model, format_, path=path, inputs=batches[0], options=options)
    (distance,) = exported.parity.outputs.values()
    assert 0 < distance.max_abs < 0.1 * distance.scale
    quantised, products = _quantised(format_, path)
    assert quantised & products, "the rest still is int8"


@pytest.mark.parametrize("format_", ["onnx", "litert"])
def test_a_causal_decoder_keeps_its_answers(format_):
    model = models.load("gpt")
    batches = [model.example_inputs()] * 2
    exported = export_model(model, format_, options={"precision": "int8", "representative": batches})
    for output in exported.parity.outputs.values():
        assert output.snr_db > 20, output
