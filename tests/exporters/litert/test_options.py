"""Names, precisions and refusals of the LiteRT format."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
import torch
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper
from torch import nn

import interop
import models
from exporters import OptionsError, TranslationError, export_model
from exporters.litert import LitertOptions


@pytest.fixture(scope="module")
def digits():
    return models.load("digits")


@pytest.fixture(scope="module")
def images():
    sklearn = pytest.importorskip("sklearn.datasets")
    data = sklearn.load_digits()
    return torch.from_numpy((data.images / 16).astype(np.float32)[:, None]), torch.from_numpy(data.target)


def _weight_types(content):
    """TFLite types of the constant tensors that hold more than 256 bytes."""
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    sizes = [0 if buffer.data is None else len(buffer.data) for buffer in model.buffers]
    return {tensor.type for graph in model.subgraphs for tensor in graph.tensors if sizes[tensor.buffer] > 256}


def _activation_types(content):
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    convolutions = [op for op in graph.operators if _code(model, op) == schema.BuiltinOperator.CONV_2D]
    assert convolutions
    return {graph.tensors[op.inputs[0]].type for op in convolutions}


def _code(model, operator):
    code = model.operatorCodes[operator.opcodeIndex]
    return max(code.builtinCode, code.deprecatedBuiltinCode)


def test_names_that_tensorflow_refuses_are_the_names_of_the_loaded_file(tmp_path):
    names = ["/x", "a:0", "_y", "a.b", "a_b"]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in names]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in ("out/1", "out.1")]
    nodes = [helper.make_node("Sum", names, ["out/1"]), helper.make_node("Sub", ["a.b", "a_b"], ["out.1"])]
    graph = helper.make_graph(nodes, "g", values, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    exported = export_model(model, "litert", path=tmp_path / "m.tflite")
    runtime = interop.load(tmp_path / "m.tflite")
    assert runtime.signature.input_names == tuple(names) == exported.signature.input_names
    feed = {name: np.full((3, 2), 10.0**power, np.float32) for power, name in enumerate(names)}
    results = runtime.run(feed)
    assert list(results) == ["out/1", "out.1"]
    np.testing.assert_array_equal(results["out/1"], np.full((3, 2), 11111, np.float32))
    np.testing.assert_array_equal(results["out.1"], np.full((3, 2), 1000 - 10000, np.float32))


def test_unused_and_scalar_inputs_and_passed_through_outputs_stay():
    class Model(nn.Module):
        def forward(self, x, unused, scale):
            return x, x * scale, (x * scale).sum()

    x = torch.arange(6.0).reshape(2, 3)
    exported = export_model(Model(), "litert", inputs=(x, torch.zeros(2, 5), torch.tensor(2.0)))
    same, scaled, total = exported(x, torch.zeros(2, 5), torch.tensor(3.0))
    torch.testing.assert_close(same, x)
    torch.testing.assert_close(scaled, x * 3)
    assert total.shape == () and total == 45


def test_float16_halves_the_file_and_says_how_far_it_is_from_the_model(digits):
    single = export_model(digits, "litert", verify=False)
    half = export_model(digits, "litert", options={"precision": "float16"}, verify=False)
    assert half.artifact.approximate and not single.artifact.approximate and single.notices == ()
    assert _weight_types(single.artifact.content) == {schema.TensorType.FLOAT32}
    assert _weight_types(half.artifact.content) == {schema.TensorType.FLOAT16}
    assert len(half.artifact.content) < 0.6 * len(single.artifact.content)
    (notice,) = half.notices
    assert _decibels(notice) == pytest.approx(_measured_decibels(half, digits, digits.example_inputs()[0]), abs=6)


def _decibels(notice):
    return float(re.search(r"([\d.]+) dB", notice)[1])


def _measured_decibels(exported, model, inputs):
    with torch.no_grad():
        expected = model(inputs).double()
    noise = exported(inputs).double() - expected
    return float(10 * torch.log10(expected.square().sum() / noise.square().sum()))


def test_int8_with_representative_batches_computes_in_int8_and_still_reads_digits(digits, images):
    pixels, labels = images
    batches = [pixels[start : start + 32] for start in range(0, 320, 32)]
    exported = export_model(digits, "litert", options=LitertOptions("int8", batches), verify=False)
    assert _activation_types(exported.artifact.content) == {schema.TensorType.INT8}
    assert _decibels(exported.notices[0]) > 20
    with torch.no_grad():
        right = (digits(pixels[400:]).argmax(1) == labels[400:]).float().mean()
    assert (exported(pixels[400:]).argmax(1) == labels[400:]).float().mean() >= right - 0.02


def test_int8_without_representative_batches_keeps_activations_in_float(digits):
    exported = export_model(digits, "litert", options={"precision": "int8"}, verify=False)
    assert schema.TensorType.INT8 in _weight_types(exported.artifact.content)
    assert _activation_types(exported.artifact.content) == {schema.TensorType.FLOAT32}
    assert _decibels(exported.notices[0]) > 20


def test_representative_batches_come_as_tuples_and_as_dicts():
    model = models.load("dict_model")
    args = model.example_inputs()
    with_tuple = export_model(model, "litert", options=LitertOptions("int8", iter([args])), verify=False)
    names = with_tuple.signature.input_names
    flat = dict(zip(names, [value.detach() for value in with_tuple.signature.bind(args, {}).values()]))
    with_dict = export_model(model, "litert", options=LitertOptions("int8", [flat]), verify=False)
    assert with_dict.artifact.content == with_tuple.artifact.content
    assert any("label" in notice and "of" in notice for notice in with_dict.notices)


def test_an_onnx_file_without_example_is_measured_on_made_inputs(tmp_path):
    path = export_model(models.load("mlp"), "onnx", path=tmp_path / "m.onnx").path
    exported = export_model(path, "litert", options={"precision": "float16"}, verify=False)
    assert _decibels(exported.notices[0]) > 40


def test_options_say_what_is_allowed():
    with pytest.raises(OptionsError, match="float32, float16, int8"):
        LitertOptions("int4")
    with pytest.raises(OptionsError, match="precision='int8'"):
        LitertOptions(representative=[])


def test_sequences_are_refused():
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    sequence = helper.make_value_info("s", helper.make_sequence_type_proto(tensor))
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["s"], ["n"])],
        "g",
        [sequence],
        [helper.make_tensor_value_info("n", TensorProto.INT64, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    with pytest.raises(TranslationError, match="tensors only, and 's' is a sequence"):
        export_model(model, "litert", verify=False)


def test_an_operator_without_a_kernel_is_named_with_its_types():
    class Spectrum(nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x).abs()

    with pytest.raises(TranslationError, match=r"(?s)tf\.RFFT2D at node .*f64"):
        export_model(Spectrum(), "litert", inputs=torch.rand(2, 8))
