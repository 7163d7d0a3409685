"""ONNX files of lower precision: what they hold, that they still answer right, and that their notices tell the distance."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

import interop
import models
from exporters import OptionsError, TranslationError, export_model

FLOAT16, INT8 = TensorProto.FLOAT16, TensorProto.INT8


@pytest.fixture(scope="module")
def digits():
    return models.load("digits")


@pytest.fixture(scope="module")
def images():
    sklearn = pytest.importorskip("sklearn.datasets", reason="scikit-learn ships the digits")
    data = sklearn.load_digits()
    return torch.from_numpy((data.images / 16).astype(np.float32)[:, None]), torch.from_numpy(data.target)


def weight_types(path):
    """Element types of the initializers that hold more than 256 values."""
    return {tensor.data_type for tensor in onnx.load(path).graph.initializer if np.prod(tensor.dims) > 256}


def options_of(precision, images):
    representative = [images[0][:64]] if precision == "int8, seen" else None
    return {"precision": precision.split(",")[0], "representative": representative}


@pytest.mark.parametrize(("precision", "kind"), [("float16", FLOAT16), ("int8", INT8), ("int8, seen", INT8)])
def test_digits_are_still_read_right(digits, images, tmp_path, precision, kind):
    path = tmp_path / "small.onnx"
    exported = export_model(digits, "onnx", path=path, options=options_of(precision, images))
    assert weight_types(path) == {kind}
    pixels, labels = images
    runtime = interop.load(path)
    assert [spec.dtype for spec in (*runtime.signature.inputs, *runtime.signature.outputs)] == ["float32", "float32"]
    assert runtime.signature.symbols == ("batch",)
    answers = runtime(pixels)
    assert answers.dtype == torch.float32
    with torch.no_grad():
        expected = digits(pixels)
    assert (answers.argmax(1) == expected.argmax(1)).float().mean() > 0.99
    assert (answers.argmax(1) == labels).float().mean() > 0.97
    assert not torch.equal(answers, expected)
    assert not exported.parity.passed


def test_representative_inputs_make_the_activations_int8(digits, images, tmp_path):
    for name, options in (("dynamic", {}), ("static", {"representative": [images[0][:32], (images[0][32:64],)]})):
        export_model(digits, "onnx", path=tmp_path / name, options={"precision": "int8", **options})
    kinds = {name: {node.op_type for node in onnx.load(tmp_path / name).graph.node} for name in ("dynamic", "static")}
    assert "DynamicQuantizeLinear" in kinds["dynamic"]
    assert "QuantizeLinear" in kinds["static"]
    assert "DynamicQuantizeLinear" not in kinds["static"]


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_notices_tell_the_distance_of_each_output(digits, precision):
    exported = export_model(digits, "onnx", options={"precision": precision})
    (notice,) = [notice for notice in exported.notices if notice.startswith(precision)]
    example = digits.example_inputs()
    batches = [example[0], torch.cat([example[0], example[0][:1]]), example[0][:1]]
    with torch.no_grad():
        pairs = [(digits(batch), exported(batch)) for batch in batches]
    furthest = max(float((left - right).abs().max()) for left, right in pairs)
    assert float(re.search(r"by ([\d.e-]+) at most", notice).group(1)) == pytest.approx(furthest, rel=0.02)
    assert "dB signal to noise" in notice


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("name", ["resnet", "dict_model"])
def test_models_of_other_kinds_become_small_and_stay_near(name, precision, tmp_path):
    model = models.load(name)
    exported = export_model(model, "onnx", path=tmp_path / "small.onnx", options={"precision": precision})
    full = export_model(model, "onnx", path=tmp_path / "full.onnx", verify=False)
    assert exported.signature.input_names == full.signature.input_names
    assert exported.signature.output_names == full.signature.output_names
    for output in exported.parity.outputs.values():
        if output.dtype == "float32":
            assert 0 < output.max_abs < 0.2 * output.scale, output


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 8)
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, 300))

    def forward(self, x):
        return self.lstm(x)[0].sum(-1, keepdim=True) * self.scale


def test_recurrent_layers_stay_in_float32_beside_float16_weights(tmp_path):
    x = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0))
    exported = export_model(Recurrent(), "onnx", inputs=x, path=tmp_path / "m.onnx", options={"precision": "float16"})
    graph = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "m.onnx")).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    (lstm,) = [node for node in graph.node if node.op_type == "LSTM"]
    assert kinds[lstm.output[0]] == TensorProto.FLOAT
    assert FLOAT16 in {tensor.data_type for tensor in graph.initializer}
    assert any("float16: output" in notice for notice in exported.notices)


def test_a_float16_model_that_kills_onnxruntime_is_refused(tmp_path):
    """onnxruntime 1.32 dies of this one; a release that opens it may drop the child process in ``_precision``."""
    with pytest.raises(TranslationError, match="process dies"):
        export_model(models.load("lstm_tagger"), "onnx", path=tmp_path / "m.onnx", options={"precision": "float16"})
    assert not list(tmp_path.iterdir())


def test_a_model_without_an_int8_operator_is_refused(tmp_path):
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softmax(-1))
    with pytest.raises(TranslationError, match="no operator of this model an int8 one"):
        export_model(model, "onnx", inputs=torch.randn(2, 3), path=tmp_path / "m.onnx", options={"precision": "int8"})
    assert not list(tmp_path.iterdir())


def test_an_int8_file_goes_on_to_tensorflow(digits, images, tmp_path):
    path = tmp_path / "int8.onnx"
    export_model(digits, "onnx", path=path, options=options_of("int8, seen", images))
    there = export_model(path, "tensorflow", verify=False)
    answers = there(images[0][:100])
    expected = interop.load(path)(images[0][:100])
    assert (answers.argmax(1) == expected.argmax(1)).float().mean() >= 0.99
    torch.testing.assert_close(answers, expected, rtol=0, atol=0.05 * float(expected.abs().max()))


def test_a_file_of_somebody_else_is_a_source(digits, tmp_path):
    full, small = tmp_path / "full.onnx", tmp_path / "half.onnx"
    export_model(digits, "onnx", path=full)
    export_model(full, "onnx", path=small, options={"precision": "float16"})
    assert weight_types(full) == {TensorProto.FLOAT}
    assert weight_types(small) == {FLOAT16}
    assert small.stat().st_size < 0.7 * full.stat().st_size


def test_options_that_do_not_fit_are_refused(digits):
    with pytest.raises(OptionsError, match="float32, float16, int8"):
        export_model(digits, "onnx", options={"precision": "int4"})
    with pytest.raises(OptionsError, match="representative batches are for precision='int8'"):
        export_model(digits, "onnx", options={"precision": "float16", "representative": []})
