"""Files of onnxruntime's quantiser as sources: every form that it writes, to torch and TensorFlow, judged by its own rounding."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static

import interop
import models
from exporters import export_model
from interop.parity import quantized

RNG = np.random.default_rng(3)


class Calibration(CalibrationDataReader):
    def __init__(self, name, example):
        self._batches = iter([{name: RNG.normal(size=example.shape).astype(np.float32)} for _ in range(3)])

    def get_next(self):
        return next(self._batches, None)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """``{(model, form): path}``."""
    folder, found = tmp_path_factory.mktemp("quantized"), {}
    for name in ("digits", "conv_transpose_autoencoder", "vit"):
        model = models.load(name)
        plain = export_model(model, "onnx", path=folder / f"{name}.onnx", verify=False)
        (spec,), (example,) = plain.signature.inputs, model.example_inputs()
        forms = {"QDQ": {"quant_format": QuantFormat.QDQ}, "channels": {"per_channel": True}}
        forms["QOperator"] = {"quant_format": QuantFormat.QOperator}
        for form, options in forms.items():
            found[name, form] = folder / f"{name}_{form}.onnx"
            quantize_static(plain.path, found[name, form], Calibration(spec.name, example), **options)
        found[name, "dynamic"] = folder / f"{name}_dynamic.onnx"
        quantize_dynamic(plain.path, found[name, "dynamic"])
    return found


@pytest.mark.parametrize("target", ["torch", "tensorflow"])
@pytest.mark.parametrize("form", ["QDQ", "channels", "QOperator", "dynamic"])
@pytest.mark.parametrize("name", ["digits", "conv_transpose_autoencoder", "vit"])
def test_each_form_is_the_same_function(name, form, target, files):
    domains = {node.domain for node in onnx.load(files[name, form]).graph.node}
    assert ("com.microsoft" in domains) == (form == "QOperator")
    exported = export_model(files[name, form], target)
    assert exported.parity.passed
    assert len(exported.parity.cases) == 3


def test_rounding_of_the_runtime_s_own_rewrites_is_not_a_fault(files, monkeypatch):
    """This file in ONNX Runtime, rewritten by it and as it is written: some values are a step apart."""
    path = files["conv_transpose_autoencoder", "QOperator"]
    exported = export_model(path, "torch", verify=False)
    assert interop.check(path, exported, locate=False, witnesses=False).passed
    proto = onnx.load(path)
    before = proto.SerializeToString(deterministic=True)
    for model in (proto, onnx_ir.from_proto(proto)):  # also of a model in memory, which stays as it is
        assert interop.check(model, exported, locate=False, witnesses=False).passed
    assert proto.SerializeToString(deterministic=True) == before
    monkeypatch.setattr(quantized, "VERSIONS", 0)
    assert not interop.check(path, exported, locate=False, witnesses=False).passed


def _changed(path, suffix, change):
    """The file with the first float scale, zero point, or weight, whose name ends so, replaced."""
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.name.endswith(suffix) and np.prod(t.dims) >= 1)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))
    return model


FAULTS = {
    "a scale off by 5 percent": ("weight_scale", lambda x: (x * np.float32(1.05)).astype(x.dtype)),
    "another scale of the activations": ("relu_scale", lambda x: (x * np.float32(1.1)).astype(x.dtype)),
    "a zero point off by three steps": ("relu_zero_point", lambda x: (x + 3).astype(x.dtype)),
    "weights with the wrong sign": (
        "weight_quantized",
        lambda x: (-x.astype(np.int32)).clip(-127, 127).astype(x.dtype),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_still_found(fault, files):
    path = files["digits", "QDQ"]
    suffix, change = FAULTS[fault]
    assert not interop.check(path, _changed(path, suffix, change), locate=False, witnesses=False).passed


def test_versions_are_of_quantised_files_only_and_leave_sizes_alone(files, tmp_path):
    plain = export_model(models.load("unet"), "onnx", path=tmp_path / "unet.onnx", verify=False)
    assert list(quantized.moved_versions(plain.path, 0)) == []
    assert list(quantized.moved_versions(None, 0)) == []
    assert list(quantized.moved_versions(onnx.load(plain.path), 0)) == []
    (spec,) = plain.signature.inputs
    path = tmp_path / "quantized.onnx"
    quantize_static(plain.path, path, Calibration(spec.name, models.load("unet").example_inputs()[0]))
    image = RNG.normal(size=models.load("unet").example_inputs()[0].shape).astype(np.float32)
    own = next(iter(interop.load(path).run({spec.name: image}).values()))
    versions = list(quantized.moved_versions(path, 0))
    assert len(versions) == quantized.VERSIONS
    for version in versions:  # whose Resize still has its own scales
        found = next(iter(version.run({spec.name: image}).values()))
        assert found.shape == own.shape
        assert 0 < np.abs(found - own).max() < 0.1 * np.abs(own).max()
