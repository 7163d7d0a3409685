"""Weights that the graph joins on each call are joined at export, and only those."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

from exporters import export_model
from exporters.tensorflow._fold import fold_weights
from tests.exporters.tensorflow._graphs import check_model, parse

GATES = """g (float[n, 3] x) => (float[n, 4] y)
<float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}> {
    first = Slice(w, zero, two, zero)
    second = Slice(w, two, four, zero)
    joined = Concat<axis = 0>(second, first)
    turned = Transpose<perm = [1, 0]>(joined)
    y = MatMul(x, turned)
}"""


def _operators(model) -> list[str]:
    return [node.op_type for node in model.graph]


def _inferred(text: str):
    from exporters._graph.prepare import infer_shapes

    return infer_shapes(ir.from_proto(parse(text)))


def test_joined_weights_are_one_weight_under_the_old_name():
    model = _inferred(GATES)
    folded, parameters = fold_weights(model, {"w": True})
    assert _operators(folded) == ["MatMul"]
    assert _operators(model) == ["Slice", "Slice", "Concat", "Transpose", "MatMul"]
    w = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(
        folded.graph.initializers["w"].const_value.numpy(), np.concatenate([w[2:], w[:2]]).T, strict=True
    )
    assert parameters == {"w": True}
    check_model(parse(GATES), [np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)])


def test_a_weight_that_something_else_reads_stays():
    text = GATES.replace("y = MatMul(x, turned)", "z = MatMul(x, turned) m = Gemm<transB = 1>(x, w) y = Add(z, m)")
    model = _inferred(text)
    assert fold_weights(model)[0] is model
    check_model(parse(text), [np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)])


def test_a_transpose_alone_stays():
    text = "g (float[n, 2] x) => (float[n, 3] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { t = Transpose(w) y = MatMul(x, t) }"
    model = _inferred(text)
    assert fold_weights(model)[0] is model


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_gates_are_ordered_once_unless_the_model_trains(layer):
    torch.manual_seed(0)
    model = nn.Sequential(layer(3, 4, bidirectional=True)).eval()
    x = torch.randn(5, 2, 3)
    exported = export_model(model, "tensorflow", inputs=x, options={"trainable": False})
    weights = exported.artifact.module.weights
    assert not set(weights) & {"0.bias_ih_l0", "0.bias_hh_l0"}
    assert any(name.count("+") for name in weights)
    trained = export_model(model, "tensorflow", inputs=x, options={"trainable": True}, verify=False)
    names = {name for name, weight in trained.artifact.module.weights.items() if weight.trainable}
    assert names == {name for name, _ in model.named_parameters()}
