"""Exported models logged to a real MLflow store (SQLite) and loaded back by URI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import models
from exporters import ExportedModel, export_model
from interop.errors import InputError, ModelFileError
from interop.integrations.mlflow import (
    PyfuncModel,
    _open,
    load_model,
    load_parity,
    log_model,
    parity_metrics,
    signature_for_mlflow,
)
from interop.signature import Signature, TensorSpec

mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tracking store and registry in a folder; afterwards MLflow is as before."""
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("exports", (folder / "artifacts").as_uri()))
    yield folder
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def digits() -> torch.nn.Module:
    return models.load("digits")


@pytest.fixture(scope="module")
def exported(digits: torch.nn.Module) -> ExportedModel:
    return export_model(digits, "onnx")


@pytest.fixture(scope="module")
def logged(store: Path, exported: ExportedModel) -> SimpleNamespace:
    with mlflow.start_run() as run:
        info = log_model(exported, "digits", registered_model_name="digits", metadata={"owner": "tests"})
        assert mlflow.active_run() is not None, "a run that was active must stay so"
    return SimpleNamespace(run=run.info.run_id, info=info)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("form", ["models:/digits/1", "runs:/{run}/digits", "{uri}"])
def test_load_model_gives_a_runtime_that_answers_as_torch(form, logged, digits, images):
    runtime = load_model(form.format(run=logged.run, uri=logged.info.model_uri), threads=1)
    assert runtime.name == "onnxruntime"
    with torch.no_grad():
        torch.testing.assert_close(runtime(images), digits(images), rtol=1e-4, atol=1e-5)


def test_pyfunc_predict_takes_and_gives_arrays_by_name(logged, digits, images):
    served = mlflow.pyfunc.load_model("models:/digits/1")
    found = served.predict({"image": images.numpy()})
    assert list(found) == ["output"]
    np.testing.assert_allclose(found["output"], digits(images).detach().numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(mlflow.exceptions.MlflowException, match="schema"):
        served.predict({"image": images.numpy().astype(np.float64)[:, 0]})  # MLflow enforces the signature


def test_the_signature_has_names_dtypes_and_open_dims(logged):
    [image] = logged.info.signature.inputs.inputs
    [output] = logged.info.signature.outputs.inputs
    assert (image.name, image.type, image.shape) == ("image", np.dtype("float32"), (-1, 1, 8, 8))
    assert (output.name, output.type, output.shape) == ("output", np.dtype("float32"), (-1, 10))


def test_parity_is_logged_as_metrics_artifacts_and_with_the_model(logged, exported):
    run = mlflow.get_run(logged.run)
    assert run.data.metrics == pytest.approx(parity_metrics(exported.parity))
    assert run.data.metrics["parity/passed"] == 1.0
    assert run.data.metrics["parity/output/max_abs"] == exported.parity.outputs["output"].max_abs
    assert json.loads(mlflow.artifacts.load_text(f"runs:/{logged.run}/digits/parity.json"))["passed"] is True
    assert "Same function" in mlflow.artifacts.load_text(f"runs:/{logged.run}/digits/parity.html")
    assert load_parity("models:/digits/1").to_json() == exported.parity.to_json()
    kept = mlflow.get_logged_model(logged.info.model_id)
    assert {metric.key for metric in kept.metrics or ()} == set(parity_metrics(exported.parity))


def test_the_logged_folder_holds_no_pickle_and_its_requirements(logged, exported):
    folder = Path(mlflow.artifacts.download_artifacts("models:/digits/1"))
    names = {path.name for path in folder.rglob("*")}
    assert {"model.onnx", "interop.json", "parity.json", "parity.html"} <= names
    assert not [name for name in names if name.endswith((".pkl", ".pickle"))]
    assert "onnxruntime==" in (folder / "requirements.txt").read_text()
    assert logged.info.metadata["owner"] == "tests"
    assert exported.path is None  # the temporary file is not shown as the place where it was saved


def test_a_run_of_its_own_ends_and_a_savedmodel_loads_back(store, images):
    model = models.load("two_inputs")
    exported = export_model(model, "tensorflow", verify=False)
    info = log_model(exported, "two")
    assert mlflow.active_run() is None
    assert load_parity(info.model_uri) is None
    args, kwargs = model.example_inputs(), model.example_kwargs()
    with torch.no_grad():
        expected = model(*args, **kwargs)
    torch.testing.assert_close(load_model(info.model_uri)(*args, **kwargs), expected, rtol=1e-4, atol=1e-5)
    named = {k: v.numpy() for k, v in exported.signature.bind(args, kwargs).items()}
    [found] = mlflow.pyfunc.load_model(info.model_uri).predict(named).values()
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_log_model_refuses_what_is_no_export(store, digits):
    with pytest.raises(InputError, match="export it first"):
        log_model(digits, "digits")


def test_load_model_refuses_models_of_others(store, tmp_path):
    with pytest.raises(ModelFileError, match="no MLflow model"):
        load_model(str(tmp_path))
    loader = tmp_path / "loader.py"
    loader.write_text("def _load_pyfunc(path):\n    raise AssertionError('must not run')\n")
    mlflow.pyfunc.save_model(
        str(tmp_path / "other"), loader_module="loader", code_paths=[str(loader)], pip_requirements=[]
    )
    with pytest.raises(ModelFileError, match="logged by loader"):
        load_model(str(tmp_path / "other"))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model": "../secret.onnx"}', '{"model": "/etc/passwd"}', '{"model": ""}']
)
def test_a_hostile_manifest_is_an_error(text, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "secret.onnx").write_bytes(b"\x08\x0a")
    (folder / "interop.json").write_text(text)
    with pytest.raises(ModelFileError, match="not in this folder" if '"model"' in text else "not readable"):
        _open(folder)


def test_pyfunc_model_takes_frames_and_a_single_array(exported, digits, images):
    pandas = pytest.importorskip("pandas")
    served = PyfuncModel(exported.__interop_runtime__())
    expected = digits(images).detach().numpy()
    rows = pandas.DataFrame({"image": images.tolist()})  # lists of Python floats, as JSON gives them
    for given in (rows, images.numpy()):
        np.testing.assert_allclose(served.predict(given)["output"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="unknown 'picture'"):
        served.predict(rows.rename(columns={"image": "picture"}))


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("x", "bfloat16", (1,)),
        TensorSpec("x", "float32", None),
        TensorSpec("x", "float32", (1,), "sequence"),
    ],
)
def test_what_mlflow_cannot_say_has_no_signature(spec):
    assert signature_for_mlflow(Signature((spec,), (TensorSpec("y", "float32", (1,)),))) is None


def test_strings_and_scalars_have_a_signature():
    inputs = (TensorSpec("text", "string", (None, 2)), TensorSpec("scale", "int64", ()))
    found = signature_for_mlflow(Signature(inputs, (TensorSpec("y", "bool", ("n",)),)))
    assert [(spec.name, spec.shape) for spec in found.inputs.inputs] == [("text", (-1, 2)), ("scale", ())]
    assert found.outputs.inputs[0].type == np.dtype(bool)
