"""Exported models in MLflow: files, signature, parity report and figures in; a runtime, or a pyfunc model, out.

No pickle is written or read: MLflow's pyfunc flavour names this module as the loader and a folder as the data.

Source: https://mlflow.org/docs/latest/api_reference/python_api/mlflow.pyfunc.html
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import interop
from interop.dtypes import dtype_of
from interop.errors import InputError, ModelFileError
from interop.extras import require
from interop.parity.report import ParityReport
from interop.runtimes import Runtime, load
from interop.signature import Signature, TensorSpec

__all__ = ["PyfuncModel", "load_model", "load_parity", "log_model", "parity_metrics", "signature_for_mlflow"]

MANIFEST, PARITY_JSON, PARITY_HTML = "interop.json", "parity.json", "parity.html"
_SUFFIX = {"onnx": ".onnx", "litert": ".tflite", "torch": ".pt2"}
_NEEDS = {
    "onnx": ("onnx", "onnxruntime"),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "litert": ("ai-edge-litert",),
    "torch": ("torch",),
}
"""Format -> the distributions that run it; those that are installed become the logged model's requirements."""
_FIGURES = ("max_abs", "max_rel", "rms", "max_ulp", "allowed", "cosine")


def log_model(
    exported: Any,
    name: str,
    *,
    report: ParityReport | None = None,
    registered_model_name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """Log an exported model to the active MLflow run, or to one of its own where none is active.

    Logged are the model's files with the MLflow signature of its inputs and outputs, the parity report as JSON and HTML (with
    the model, and as artifacts of the run) and its figures as metrics of run and model.

    Args:
        exported: an ``exporters.ExportedModel``; it need not be saved.
        name: the model's name in the run.
        report: of ``interop.check``, instead of the one that ``export_model`` made.
        registered_model_name: also register it under this name, as ``models:/NAME/VERSION``.
        metadata: more of your own to keep with the model; plain JSON data.

    Returns:
        MLflow's ``ModelInfo``; its ``model_uri`` is what ``load_model`` takes.

    Raises:
        InputError: this is no exported model.
        MissingExtraError: MLflow is not installed.

    Example:
        >>> info = log_model(export_model(model, "onnx"), "digits")
        >>> load_model(info.model_uri)(images)
    """
    mlflow = require("mlflow", "to log a model")
    if not isinstance(getattr(exported, "signature", None), Signature) or not hasattr(exported, "save"):
        raise InputError(
            f"log_model takes what export_model returns, got a {type(exported).__name__}; export it first: "
            'log_model(export_model(model, "onnx"), name)'
        )
    report = report if report is not None else exported.parity
    with tempfile.TemporaryDirectory() as place, _run_of(mlflow, name):
        folder = _write(exported, report, Path(place) / "model")
        info = mlflow.pyfunc.log_model(
            name=name,
            loader_module=__name__,
            data_path=str(folder),
            signature=signature_for_mlflow(exported.signature),
            pip_requirements=_requirements(exported.format),
            registered_model_name=registered_model_name,
            metadata={
                **(metadata or {}),
                "tensor_interop": {"version": interop.__version__, "format": exported.format},
            },
        )
        if report is not None:
            mlflow.log_metrics(parity_metrics(report), model_id=info.model_id)
            mlflow.log_text(report.to_json(indent=2), f"{name}/{PARITY_JSON}")
            mlflow.log_text(report.to_html(), f"{name}/{PARITY_HTML}")
    return info


def load_model(uri: str, **options: Any) -> Runtime:
    """Open a logged model.

    Args:
        uri: ``models:/NAME/VERSION``, ``models:/NAME@ALIAS``, ``models:/ID``, ``runs:/RUN/NAME`` or a folder.
        **options: of ``interop.load``, such as ``threads=1``.

    Raises:
        ModelFileError: what is there was not logged by ``log_model``.
        MissingExtraError: MLflow, or the framework that runs the model, is not installed.
    """
    return _open(_data_of(uri), **options)


def load_parity(uri: str) -> ParityReport | None:
    """The parity report that was logged with a model, or None where there was none.

    Args:
        uri: as for ``load_model``.

    Raises:
        ModelFileError: what is there was not logged by ``log_model``.
    """
    path = _data_of(uri) / PARITY_JSON
    return ParityReport.from_json(path.read_text(encoding="utf-8")) if path.is_file() else None


def signature_for_mlflow(signature: Signature) -> Any:
    """MLflow's form of a signature: a named tensor spec each, -1 for every dim that may change.

    Returns:
        A ``mlflow.models.ModelSignature``, or None where MLflow cannot say it: a sequence, an unknown rank, or a dtype that
        NumPy lacks (bfloat16, float8).
    """
    require("mlflow", "to make a signature")
    from mlflow.models import ModelSignature
    from mlflow.types import Schema
    from mlflow.types import TensorSpec as MlflowSpec

    def schema(specs: tuple[TensorSpec, ...]) -> Any:
        return Schema([MlflowSpec(_dtype(spec), _shape(spec), spec.name) for spec in specs])

    if not all(_expressible(spec) for spec in (*signature.inputs, *signature.outputs)):
        return None
    return ModelSignature(schema(signature.inputs), schema(signature.outputs))


def parity_metrics(report: ParityReport) -> dict[str, float]:
    """The figures of a report under names that MLflow takes: each output at its worst, and the counts.

    Example:
        >>> parity_metrics(report)["parity/passed"]
        1.0
    """
    metrics = {
        "parity/passed": float(report.passed),
        "parity/runs": float(len(report.cases)),
        "parity/failures": float(len(report.failures)),
    }
    for name, output in report.outputs.items():
        figures = {figure: float(getattr(output, figure)) for figure in _FIGURES}
        metrics |= {f"parity/{_metric_name(name)}/{figure}": value for figure, value in figures.items()}
    return metrics


def _expressible(spec: TensorSpec) -> bool:
    dtype = dtype_of(spec.dtype)
    return spec.kind == "tensor" and spec.shape is not None and not dtype.extension


def _dtype(spec: TensorSpec) -> np.dtype[Any]:
    dtype = dtype_of(spec.dtype)
    return np.dtype(str) if dtype.kind == "string" else dtype.numpy


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else -1 for dim in spec.shape or ())


def _metric_name(name: str) -> str:
    return re.sub(r"[^\w\-. :]", "_", name, flags=re.ASCII)


@contextlib.contextmanager
def _run_of(mlflow: Any, name: str) -> Iterator[None]:
    """The active run, which stays open, or a new one that ends here."""
    with contextlib.nullcontext() if mlflow.active_run() is not None else mlflow.start_run(run_name=name):
        yield


def _write(exported: Any, report: ParityReport | None, folder: Path) -> Path:
    folder.mkdir()
    target = "model" + _SUFFIX.get(exported.format, "")
    known = exported.path
    exported.save(folder / target)
    exported.path = known  # the folder of this call is gone after it
    manifest = {"model": target, "format": exported.format, "signature": exported.signature.to_json()}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    if report is not None:
        (folder / PARITY_JSON).write_text(report.to_json(indent=2), encoding="utf-8")
        (folder / PARITY_HTML).write_text(report.to_html(), encoding="utf-8")
    return folder


def _requirements(kind: str) -> list[str]:
    found = [f"tensor-interop=={interop.__version__}"]
    for name in ("numpy", *_NEEDS.get(kind, ())):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name}=={importlib.metadata.version(name).partition('+')[0]}")
    return found


def _data_of(uri: str) -> Path:
    """The folder that ``_write`` made, on this machine."""
    mlflow = require("mlflow", "to load a logged model")
    from mlflow.models import Model

    place = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(uri)))
    if not (place / "MLmodel").is_file():
        raise ModelFileError(f"{uri}: no MLflow model is there; log one with interop.integrations.mlflow.log_model")
    flavor = Model.load(str(place)).flavors.get("python_function", {})
    if flavor.get("loader_module") != __name__:
        raise ModelFileError(
            f"{uri}: this model was logged by {flavor.get('loader_module') or 'another flavour'}; load it with "
            "mlflow.pyfunc.load_model, or log it again with interop.integrations.mlflow.log_model"
        )
    return _inside(place, str(flavor.get("data", "")))


def _inside(folder: Path, name: str) -> Path:
    """What a file names in its own folder; hostile ones name something else."""
    path = (folder / name).resolve()
    if not name or folder.resolve() not in path.parents:
        raise ModelFileError(f"{folder}: it names {name!r}, which is not in this folder; the model was tampered with")
    return path


def _open(folder: Path, **options: Any) -> Runtime:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        name = manifest["model"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{folder / MANIFEST}: not readable ({error!r}); log the model again") from error
    return load(_inside(folder, str(name)), **options)


class PyfuncModel:
    """A runtime with the interface of an MLflow pyfunc model; NumPy arrays in and out.

    Attributes:
        runtime: what runs it.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the model.

        Args:
            model_input: ``{input name: array}``, a DataFrame with a column an input, or the only input.
            params: not used; MLflow passes it.

        Returns:
            ``{output name: array}``.

        Raises:
            InputError: names, dtypes or shapes do not fit.
        """
        specs = self.runtime.signature.inputs
        if hasattr(
            model_input, "columns"
        ):  # a row a sample; MLflow itself makes arrays of it where there is a signature
            dtypes = {spec.name: dtype_of(spec.dtype).numpy for spec in specs}
            model_input = {
                str(name): np.array(model_input[name].to_list(), dtypes.get(name)) for name in model_input.columns
            }
        elif not isinstance(model_input, Mapping):
            if len(specs) != 1:
                raise InputError(f"the model has inputs {[spec.name for spec in specs]}; give a dict of arrays")
            model_input = {specs[0].name: model_input}
        return self.runtime.run({name: _as_array(value) for name, value in model_input.items()})


def _as_array(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        return value.astype(object)  # how strings travel in this project
    return value if isinstance(value, (np.ndarray, np.generic)) else np.asarray(value)


def _load_pyfunc(path: str | os.PathLike[str]) -> PyfuncModel:
    """What ``mlflow.pyfunc.load_model`` calls with the folder that was logged."""
    return PyfuncModel(_open(Path(path)))
