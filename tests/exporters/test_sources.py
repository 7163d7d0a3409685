"""What an export can start from beside torch modules: files, models in memory, earlier exports; and their examples."""

from __future__ import annotations

import shutil
from pathlib import Path

import keras
import numpy as np
import onnx
import pytest
import torch

import interop
import models
from exporters import OptionsError, export_model

X = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    return models.load("mlp").eval()


@pytest.fixture(scope="module")
def expected(model):
    with torch.no_grad():
        return model(torch.from_numpy(X)).numpy()


@pytest.fixture(scope="module")
def file(model, tmp_path_factory) -> Path:
    return export_model(model, "onnx", path=tmp_path_factory.mktemp("source") / "mlp.onnx", verify=False).path


@pytest.fixture
def beside(file, tmp_path) -> Path:
    """The file with its weights in another one beside it."""
    (tmp_path / "given").mkdir()
    path = tmp_path / "given" / "mlp.onnx"
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(onnx.load(file), path, **options)
    return path


SUFFIX = {"onnx": ".onnx", "torch": ".pt2", "tensorflow": "", "litert": ".tflite"}


@pytest.mark.parametrize("target", SUFFIX)
def test_weights_beside_an_onnx_file_come_along(target, beside, expected, tmp_path):
    path = export_model(beside, target, path=tmp_path / f"made{SUFFIX[target]}").path
    shutil.rmtree(beside.parent)
    np.testing.assert_allclose(np.asarray(interop.load(path)(X)), expected, rtol=1e-4, atol=1e-6)


def test_a_file_with_weights_beside_it_may_be_written_over(beside, expected):
    export_model(beside, "onnx", path=beside)
    (beside.parent / "weights.bin").unlink()
    np.testing.assert_allclose(np.asarray(interop.load(beside)(X)), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", SUFFIX)
def test_outputs_need_no_declared_shape(target, file, expected, tmp_path):
    """onnx's checker asks for one; ONNX and ONNX Runtime do not."""
    bare = onnx.load(file)
    bare.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(bare, tmp_path / "bare.onnx")
    exported = export_model(tmp_path / "bare.onnx", target, path=tmp_path / f"made{SUFFIX[target]}")
    assert exported.parity.passed
    np.testing.assert_allclose(np.asarray(interop.load(exported.path)(X)), expected, rtol=1e-4, atol=1e-6)


def test_a_file_that_is_not_valid_is_still_refused(file, tmp_path):
    wrong = onnx.load(file)
    wrong.graph.output[0].type.tensor_type.ClearField("shape")
    wrong.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(wrong, tmp_path / "wrong.onnx")
    with pytest.raises(interop.ModelFileError, match=r"not a valid ONNX model.*NoSuchOperator"):
        export_model(tmp_path / "wrong.onnx", "torch")


@pytest.mark.parametrize("given", ["tuple", "tensor", "torch", "by name"])
def test_an_example_for_an_onnx_file_is_what_is_compared(given, file):
    inputs = {"tuple": (X,), "tensor": X, "torch": torch.from_numpy(X), "by name": {"x": X}}[given]
    report = export_model(file, "torch", inputs=inputs).parity
    assert [case.outputs["output"].shape for case in report.cases] == [(3, 4), (4, 4), (1, 4)]


def test_an_example_that_does_not_fit_is_an_error(file):
    with pytest.raises(interop.InputError):
        export_model(file, "torch", inputs={"y": X})


def test_dynamic_shapes_of_a_model_that_says_them_itself_are_an_error(file):
    with pytest.raises(OptionsError, match="dynamic_shapes are for torch models"):
        export_model(file, "torch", dynamic_shapes={"x": {0: "rows"}})


def test_an_earlier_export_is_a_source(model, expected):
    exported = export_model(export_model(model, "onnx", verify=False), "torch")
    assert exported.parity.passed
    with torch.no_grad():
        np.testing.assert_allclose(
            exported.artifact.module(torch.from_numpy(X)).numpy(), expected, rtol=1e-5, atol=1e-6
        )


def test_a_pt2_file_is_a_source(model, expected, tmp_path):
    export_model(model, "torch", path=tmp_path / "mlp.pt2", verify=False)
    exported = export_model(tmp_path / "mlp.pt2", "onnx")
    assert exported.parity.passed
    np.testing.assert_allclose(np.asarray(exported(X)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["none.pt2", "none.keras", "none.onnx", "none"])
def test_a_file_that_is_not_there_is_an_error_of_ours(name, tmp_path):
    with pytest.raises(interop.InteropError, match=r"no such file|No such file|does not exist"):
        export_model(tmp_path / name, "torch")


def test_a_pt2_file_with_code_in_it_is_not_run(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "pickle.pt2")
    with pytest.raises(interop.ModelFileError, match="pickle"):
        export_model(tmp_path / "pickle.pt2", "onnx")


@pytest.fixture(scope="module")
def two_inputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    return keras.Model({"a": a, "b": b}, {"sum": keras.layers.Add()([a, b]), "rest": keras.layers.Subtract()([a, b])})


@pytest.mark.parametrize("target", ["onnx", "torch"])
def test_a_keras_file_is_a_source(target, two_inputs, tmp_path):
    two_inputs.save(tmp_path / "two.keras")
    batch = {"a": X[:, :4], "b": X[:, 4:8]}
    for inputs in (None, batch, (batch,)):
        exported = export_model(tmp_path / "two.keras", target, inputs=inputs)
        assert exported.parity.passed
    found = interop.load(exported).run(batch)
    np.testing.assert_allclose(found["sum"], batch["a"] + batch["b"], rtol=1e-6)
    np.testing.assert_allclose(found["rest"], batch["a"] - batch["b"], rtol=1e-6)
    runtime = interop.load(tmp_path / "two.keras")
    assert runtime.signature.input_names == ("a", "b")
    np.testing.assert_allclose(np.asarray(runtime(batch)["sum"]), batch["a"] + batch["b"], rtol=1e-6)
