"""Exported models and parity reports in TensorBoard: the graph, the error of every layer, weights and errors as histograms.

Each function takes a folder, or the ``SummaryWriter`` of a training loop.

Source: https://docs.pytorch.org/docs/stable/tensorboard.html
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.errors import ConversionError, InputError
from interop.extras import loaded, require
from interop.integrations._tensorboard_graph import graph_def_of
from interop.parity.compare import OutputComparison
from interop.parity.difference import Layer
from interop.parity.figures import DECADES, as_numpy
from interop.parity.locate import layer_errors
from interop.parity.report import ParityReport

__all__ = ["log_graph", "log_layers", "log_parity", "log_weights"]

_FIGURES = ("max_abs", "max_rel", "rms", "max_ulp", "allowed")
_EQUAL_AT = -13.0  # where the histogram of differences shows elements that are equal, below the smallest decade


def log_graph(where: Any, model: Any) -> None:
    """Log the graph of an ONNX model; its nodes stand in the scopes of the torch modules that they come from.

    Args:
        where: a folder, or a ``torch.utils.tensorboard.SummaryWriter``.
        model: an ``ExportedModel`` of ONNX, a path to an ONNX file, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.

    Raises:
        InputError: the model is not ONNX.
        MissingExtraError: TensorBoard is not installed.

    Example:
        >>> log_graph("runs/digits", export_model(model, "onnx"))  # then: tensorboard --logdir runs
    """
    graph = graph_def_of(_onnx_model(model))
    with _writer(where) as writer:
        from tensorboard.compat.proto.config_pb2 import RunMetadata

        writer.file_writer.add_graph((graph, RunMetadata()))


def log_parity(where: Any, report: ParityReport, step: int = 0) -> None:
    """Log a report: each output at its worst, the error of every layer that was compared, and histograms of the differences.

    ``parity/passed`` is 0 or 1. ``parity/OUTPUT/...`` are the output's figures. Where the report has a first difference,
    ``layers/error`` and ``layers/local`` are curves along the graph (their step is the position of the value), and
    ``layer/VALUE/...`` has the same numbers by value, at ``step``. A histogram ``difference/OUTPUT`` counts elements by the
    decimal logarithm of their difference relative to the output's scale; elements that are equal count at -13.

    Args:
        where: a folder, or a ``SummaryWriter``.
        report: of ``interop.check`` or ``ExportedModel.parity``.
        step: of the training that the model was exported from.
    """
    with _writer(where) as writer:
        writer.add_scalar("parity/passed", float(report.passed), step)
        writer.add_text("parity/summary", report.to_markdown(), step)
        for name, output in report.outputs.items():
            for figure in _FIGURES:
                writer.add_scalar(f"parity/{name}/{figure}", getattr(output, figure), step)
            if output.histogram:
                _log_difference(writer, f"difference/{name}", output, step)
        if report.first_difference is not None:
            _write_layers(writer, report.first_difference.layers, step)


def log_layers(where: Any, reference: Any, candidate: Any, inputs: Any, step: int = 0) -> tuple[Layer, ...]:
    """Log the error of every layer, also of an export that passes: what ``log_parity`` logs of one that failed.

    Args:
        where: a folder, or a ``SummaryWriter``.
        reference: what is right, as for ``interop.parity.locate``.
        candidate: likewise; an ``ExportedModel`` too.
        inputs: one ``{input name: tensor}``, one tuple of positional arguments, or one tensor.
        step: of the training.

    Returns:
        The layers, as ``interop.parity.locate.layer_errors`` gives them.

    Raises:
        InputError: the inputs do not fit, or no inner values can be compared; the message says why.

    Example:
        >>> log_layers("runs/digits", model, export_model(model, "onnx"), images, step=epoch)
    """
    layers = layer_errors(reference, candidate, inputs)
    with _writer(where) as writer:
        _write_layers(writer, layers, step)
    return layers


def _write_layers(writer: Any, layers: tuple[Layer, ...], step: int) -> None:
    for position, layer in enumerate(layers):
        for figure, value in (("error", layer.error), ("local", layer.local)):
            writer.add_scalar(f"layers/{figure}", value, position)
            writer.add_scalar(f"layer/{layer.value}/{figure}", value, step)


def log_weights(where: Any, model: Any, step: int = 0, *, reference: Any = None) -> None:
    """Log a histogram of every floating-point weight; with a reference, also of how far each is off.

    Args:
        where: a folder, or a ``SummaryWriter``.
        model: an ``nn.Module``, an ``ExportedModel``, or what ``log_graph`` or ``interop.load`` takes.
        step: of the training.
        reference: another of these; weights of the same name and shape are compared as ``weight_error/NAME``.

    Raises:
        InputError: the model shows no weights, or none that the reference has too.
    """
    weights = dict(_weights(model))
    if not weights:
        raise InputError(
            f"a {type(model).__name__} shows no floating-point weights; give the module or an exported model"
        )
    errors: dict[str, npt.NDArray[Any]] = {}
    if reference is not None:
        known = {name: values for name, values in _weights(reference) if name in weights}
        errors = {name: weights[name] - values for name, values in known.items() if values.shape == weights[name].shape}
        if not errors:
            raise InputError(f"the two models share no weight by name and shape: {sorted(weights)[:5]} ...")
    with _writer(where) as writer:
        for name, values in weights.items():
            _log_values(writer, f"weight/{name}", values, step)
        for name, values in errors.items():
            _log_values(writer, f"weight_error/{name}", values, step)


@contextlib.contextmanager
def _writer(where: Any) -> Iterator[Any]:
    if hasattr(where, "add_scalar") and hasattr(where, "add_histogram_raw"):
        if where.file_writer is None:
            raise InputError("this SummaryWriter is closed; log before close(), or give its folder")
        yield where
        where.flush()
        return
    if not isinstance(where, (str, os.PathLike)):
        raise InputError(f"give a folder or a torch.utils.tensorboard.SummaryWriter, got a {type(where).__name__}")
    require("tensorboard", "to write TensorBoard's files")
    require("torch", "to write TensorBoard's files")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(os.fspath(where)) as writer:
        yield writer


def _onnx_model(model: Any) -> Any:
    ir = require("onnx_ir", "to read a graph")
    artifact = getattr(model, "artifact", None)
    model = getattr(artifact, "model", model) if getattr(model, "format", "onnx") == "onnx" else model
    onnx = loaded("onnx")
    if isinstance(model, ir.Model):
        return model
    if onnx is not None and isinstance(model, onnx.ModelProto):
        return ir.from_proto(model)
    if isinstance(model, (str, os.PathLike)) and Path(model).is_file():
        from interop.runtimes._onnx_model import parse_model

        parse_model(Path(model))  # refuses what is damaged, and data files outside the model's folder
        return ir.load(model)
    raise InputError(f'{model!r:.80} is not ONNX; export it: log_graph(folder, export_model(model, "onnx"))')


def _weights(model: Any) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Name and float64 values of every floating-point weight."""
    for name, values in _stored_values(model):
        try:
            array = as_numpy(values)
            if dtype_of(array.dtype).is_floating and array.size:
                yield name, array.astype(np.float64)
        except ConversionError:  # packed dtypes have no values to count
            continue


def _stored_values(model: Any) -> Iterator[tuple[str, Any]]:
    torch = loaded("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        yield from ((name, value.detach().cpu()) for name, value in model.state_dict().items())
        return
    with contextlib.suppress(InputError):
        for name, value in _onnx_model(model).graph.initializers.items():
            if value.const_value is not None:
                yield name, value.const_value.numpy()
        return
    from interop.runtimes import load

    runtime = load(model)
    if runtime.framework == "tensorflow" and hasattr(runtime, "concrete"):
        for variable in runtime.concrete[1].variables:
            yield variable.name.split(":")[0], variable.numpy()
    elif torch is not None and isinstance(module := getattr(runtime, "module", None), torch.nn.Module):
        yield from _stored_values(module)


def _log_values(writer: Any, tag: str, values: npt.NDArray[Any], step: int) -> None:
    finite = values[np.isfinite(values)]  # TensorBoard refuses others
    if finite.size:
        writer.add_histogram(tag, finite, step)


def _log_difference(writer: Any, tag: str, output: OutputComparison, step: int) -> None:
    """The report's own counts, as they are: elements by decades of their relative difference."""
    centres = np.array([_EQUAL_AT, *(math.log10(float(name)) - 0.5 for name in DECADES[1:])])
    counts = np.asarray(output.histogram, dtype=np.float64)
    used = centres[counts > 0]
    writer.add_histogram_raw(
        tag,
        min=float(used.min()) - 0.5,
        max=float(used.max()) + 0.5,
        num=float(counts.sum()),
        sum=float(counts @ centres),
        sum_squares=float(counts @ centres**2),
        bucket_limits=(centres + 0.5).tolist(),
        bucket_counts=counts.tolist(),
        global_step=step,
    )
