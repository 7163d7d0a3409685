"""What was measured to fail in the field between ONNX, TensorFlow and torch: each entry gives eager's value here.

Each docstring names the public reports. The entries about torch.onnx are in ``onnx/test_field.py``; tf2onnx's are in
``test_from_tensorflow.py``.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import interop
from exporters import export_model
from interop.runtimes._torch_archive import NAMES_FILE

AWKWARD = ["a:0", "_hidden", "/encoder/x", "two words", "input.1", "a_0", "1"]


class Reshaped(nn.Module):
    """A convolution whose result is reshaped where all sizes are equal, or lose their axes of one."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.conv = nn.Conv2d(1 if kind == "squeeze" else 20, 1 if kind == "squeeze" else 20, 1)

    def forward(self, x):
        y = self.conv(x)
        return y.squeeze() if self.kind == "squeeze" else y.reshape(20, 400).reshape(20, 20, 20).transpose(0, 2)


class Labels(nn.Module):
    """Outputs whose names are numbers, not in order."""

    def forward(self, x):
        return {"2": x + 2, "0": x, "10": x * 10}


def _saved(model, target, path, *inputs):
    """What a saved export gives for the inputs, and what eager torch does, both as lists."""
    runtime = interop.load(export_model(model, target, inputs=inputs, dynamic_shapes=None, path=path).path)
    found = runtime(*inputs)
    with torch.no_grad():
        expected = model(*inputs)
    return list(torch.utils._pytree.tree_leaves(found)), list(torch.utils._pytree.tree_leaves(expected))


def _assert_same(found, expected):
    assert len(found) == len(expected)
    for one, right in zip(found, expected):
        torch.testing.assert_close(one, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind, shape", [("squeeze", (1, 1, 3, 3)), ("reshape", (1, 20, 20, 20))])
def test_equal_sizes_keep_their_order(kind, shape, tmp_path):
    """onnx2tf#478, #15, #103: a layout guessed from sizes gives the transpose."""
    torch.manual_seed(0)
    _assert_same(*_saved(Reshaped(kind).eval(), "tensorflow", tmp_path / "m", torch.randn(shape)))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("target", ["tensorflow", "torch"])
def test_recurrent_layers_of_two_ways_convert(layer, target, tmp_path):
    """onnx2tf#299, #346, #198; onnx-tensorflow#853."""
    torch.manual_seed(0)
    path = tmp_path / ("m.pt2" if target == "torch" else "m")
    _assert_same(*_saved(layer(3, 4, num_layers=2, bidirectional=True).eval(), target, path, torch.randn(5, 2, 3)))


def test_outputs_named_by_numbers_keep_names_and_order(tmp_path):
    """onnx-tensorflow#898, #1021; onnx2tf#178, #228."""
    x = torch.arange(6.0).reshape(2, 3)
    path = export_model(Labels(), "tensorflow", inputs=(x,), path=tmp_path / "m").path
    runtime = interop.load(path)
    assert runtime.signature.output_names == ("2", "0", "10")
    found = runtime.run({runtime.signature.input_names[0]: x})
    for name, right in Labels()(x).items():
        torch.testing.assert_close(found[name], right)


@pytest.mark.parametrize("target", ["tensorflow", "torch", "litert"])
def test_names_that_a_framework_refuses_work_everywhere(target, tmp_path):
    """onnx-tensorflow#426, #712, #446, #778; tensorflow#44984, #50130, #34070."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in AWKWARD]
    outputs = [helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT, ["n", 3]) for name in AWKWARD]
    weights = [onnx.numpy_helper.from_array(np.float32(number), f"{name}:w") for number, name in enumerate(AWKWARD)]
    nodes = [helper.make_node("Add", [name, f"{name}:w"], [f"{name}.y"]) for name in AWKWARD]
    graph = helper.make_graph(nodes, "names", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    suffix = {"tensorflow": "m", "torch": "m.pt2", "litert": "m.tflite"}[target]
    runtime = interop.load(export_model(tmp_path / "m.onnx", target, path=tmp_path / suffix).path)
    assert runtime.signature.input_names == tuple(AWKWARD)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = runtime.run({name: x * number for number, name in enumerate(AWKWARD)})
    assert list(found) == [f"{name}.y" for name in AWKWARD]
    for number, name in enumerate(AWKWARD):
        np.testing.assert_array_equal(found[f"{name}.y"], x * number + number)


@pytest.mark.parametrize("target", ["torch", "tensorflow"])
def test_normalization_uses_its_running_statistics(target, tmp_path):
    """onnx2pytorch#35, onnx2tf#16, tensorflow-onnx#1494: wrong for more than one row."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU())
    for _ in range(3):
        model(torch.randn(4, 2, 5, 5) * 3 + 1)
    path = tmp_path / ("m.pt2" if target == "torch" else "m")
    _assert_same(*_saved(model.eval(), target, path, torch.randn(3, 2, 5, 5)))


def test_results_given_twice_keep_both_names_in_a_file(tmp_path):
    class Twice(nn.Module):
        def forward(self, x):
            y = x + 1
            return {"first": y, "second": y, "same": x}

    x = torch.ones(2, 3)
    runtime = interop.load(export_model(Twice(), "torch", inputs=(x,), path=tmp_path / "m.pt2").path)
    assert runtime.signature.output_names == ("first", "second", "same")
    found = runtime(x)
    for name, right in Twice()(x).items():
        torch.testing.assert_close(found[name], right)


@pytest.mark.parametrize(
    "stored", [b"[]", b'{"inputs": ["a", "b"], "outputs": ["c"]}', b'{"inputs": [1], "outputs": ["y"]}']
)
def test_names_in_a_file_that_do_not_fit_are_not_believed(stored, tmp_path):
    x = torch.ones(2, 3)
    torch.export.save(
        torch.export.export(nn.Linear(3, 2), (x,)), tmp_path / "m.pt2", extra_files={NAMES_FILE: stored.decode()}
    )
    runtime = interop.load(tmp_path / "m.pt2")
    assert runtime.signature.input_names == ("input",)
    assert runtime.run({"input": x})[runtime.signature.output_names[0]].shape == (2, 2)
