"""What int8 would spoil: scores beside the marks that hide places from attention, and normalizations."""

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


class Normalized(torch.nn.Module):
    """A normalization, torch's own or written out, between two products."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.first, self.last = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.norm = {"layer": torch.nn.LayerNorm(16), "rms": torch.nn.RMSNorm(16)}.get(kind, torch.nn.Identity())

    def forward(self, x):
        x = self.first(x)
        if self.kind == "written out":
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.last(self.norm(x))


@pytest.mark.parametrize("kind", ["layer", "rms", "written out"])
def test_a_normalization_stays_in_float_and_its_neighbours_do_not(kind, tmp_path):
    torch.manual_seed(1)
    sizes = torch.logspace(-0.5, 0.5, 8)[:, None]
    model, batches = Normalized(kind), [torch.randn(8, 16) * sizes for _ in range(4)]
    path = tmp_path / "normalized.tflite"
    options = {"precision": "int8", "representative": batches}
    exported = export_model(model, "litert", path=path, inputs=batches[0], options=options)
    (distance,) = exported.parity.outputs.values()
    assert distance.snr_db > 20
    quantised, products = _quantised("litert", path)
    assert len(products) == 2 and products <= quantised


class Divided(torch.nn.Module):
    def forward(self, x):
        return x / (x.relu() + 1e-3)


def test_a_divisor_that_int8_would_round_to_zero_does_not_end_the_run():
    torch.manual_seed(1)
    batches = [torch.randn(8, 16) for _ in range(4)]
    exported = export_model(
        Divided(), "litert", inputs=batches[0], options={"precision": "int8", "representative": batches}
    )
    assert exported(batches[0]).isfinite().all()


MODELS = {
    "gpt": lambda: (models.load("gpt"), models.load("gpt").example_inputs()),
    "vit": lambda: (models.load("vit"), models.load("vit").example_inputs()),
    "Llama": lambda: _of_transformers("Llama", num_key_value_heads=1),
    "Bert": lambda: _of_transformers("Bert"),
}


def _of_transformers(name, **more):
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = getattr(transformers, f"{name}Config")(**sizes, intermediate_size=64, use_cache=False, **more)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config).eval()
    tokens, mask = torch.arange(16).reshape(2, 8), torch.ones(2, 8, dtype=torch.int64)
    mask[1, 5:] = 0
    return model, {"input_ids": tokens, "attention_mask": mask}


@pytest.mark.parametrize("format_", ["onnx", "litert"])
@pytest.mark.parametrize("name", MODELS)
def test_models_with_attention_keep_their_answers(name, format_):
    model, example = MODELS[name]()
    options = {"precision": "int8", "representative": [example, example]}
    exported = export_model(model, format_, inputs=example, options=options)
    for output in exported.parity.outputs.values():
        assert output.snr_db > 20, output
