"""ONNX Runtime's own operators, against ONNX Runtime; and a model that its optimizer wrote."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import models
from exporters import export_model
from tests.exporters.torch._graphs import node_model, rebuilt, runtime_outputs

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def check(operator, inputs, results=1, attributes=None, *, domain="com.microsoft", compared=None):
    model = node_model(operator, inputs, ["f4"] * results, {**(attributes or {}), "domain": domain})
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    given = [x for x in inputs if x is not None]
    expected = runtime_outputs(model, given)
    found = rebuilt(model)(*map(torch.from_numpy, given))
    found = found if isinstance(found, tuple) else (found,)
    for index, (got, want) in enumerate(zip(found, expected, strict=True)):
        if compared is None or index in compared:
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelus(operator):
    check(operator, [floats(3, 4)])


def test_bias_gelu():
    check("BiasGelu", [floats(2, 3, 4), floats(4)])


@pytest.mark.parametrize("flags", [{}, {"transA": 1}, {"transB": 1, "alpha": 0.5}])
def test_fused_mat_mul(flags):
    a = floats(2, 3, 4) if "transA" not in flags else floats(2, 4, 3)
    b = floats(2, 4, 5) if "transB" not in flags else floats(2, 5, 4)
    check("FusedMatMul", [a, b], attributes=flags)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Tanh"])
def test_fused_gemm(activation):
    check(
        "FusedGemm",
        [floats(3, 4), floats(4, 5), floats(5)],
        attributes={"activation": activation, "activation_alpha": 0.2},
    )


@pytest.mark.parametrize("with_bias", [False, True])
def test_skip_layer_normalizations(with_bias):
    x, skip, gamma, beta = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8)
    bias = [floats(8)] if with_bias else []
    check("SkipLayerNormalization", [x, skip, gamma, beta, *bias], attributes={"epsilon": 1e-5})
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma, *bias], attributes={"epsilon": 1e-5})


def test_simplified_layer_normalization():
    check("SimplifiedLayerNormalization", [floats(2, 3, 8), floats(8)], domain="")


@pytest.mark.parametrize("with_zero_points", [False, True])
def test_mat_mul_n_bits(with_zero_points):
    packed = RNG.integers(0, 256, (6, 2, 8), dtype=np.uint8)
    zeros = [RNG.integers(0, 256, (6,), dtype=np.uint8)] if with_zero_points else []
    attributes = {"K": 32, "N": 6, "bits": 4, "block_size": 16}
    check("MatMulNBits", [floats(3, 32), packed, floats(12), *zeros], attributes=attributes)


def test_range():
    model = node_model("Range", [np.array(2), np.array(9), np.array(3)], ["i8"], {"domain": "com.microsoft"})
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    bounds = [np.array(2), np.array(9), np.array(3)]
    found = rebuilt(model)(*map(torch.from_numpy, bounds))
    assert found.tolist() == runtime_outputs(model, bounds)[0].tolist() == [2, 5, 8]


def test_conv_transpose_with_dynamic_pads():
    x, w, pads = floats(2, 4, 5, 6), floats(4, 3, 3, 2), np.array([1, 0, 2, 1])
    model = node_model(
        "ConvTransposeWithDynamicPads", [x, w, pads], ["f4"], {"domain": "com.microsoft", "strides": [2, 1]}
    )
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    found = rebuilt(model)(*map(torch.from_numpy, [x, w, pads]))
    np.testing.assert_allclose(found.numpy(), runtime_outputs(model, [x, w, pads])[0], rtol=1e-4, atol=1e-5)


def test_model_that_onnxruntime_optimized_comes_back(tmp_path):
    model = models.load("transformer_encoder")
    path = export_model(model, "onnx", path=tmp_path / "plain.onnx", verify=False).path
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    fused = onnx.load(tmp_path / "fused.onnx")
    assert any(node.domain == "com.microsoft" for node in fused.graph.node)
    assert export_model(tmp_path / "fused.onnx", "torch").parity.passed
