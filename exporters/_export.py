"""Pick the exporter, find what was left open, run it, verify, save."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import interop
from exporters._caches import register_caches
from exporters._example_inputs import find_example_inputs
from exporters._exported import ExportedModel
from exporters._formats import get_exporter, make_options
from exporters._request import ExportRequest
from exporters._sources import example_arguments, is_tensorflow, open_source, open_tensorflow
from exporters._undisturbed import evaluation_mode, kept_buffers, kept_random_state, private_copy
from exporters._verify import compare
from exporters.errors import OptionsError
from interop.extras import loaded, require

__all__ = ["export_model"]

logger = logging.getLogger("exporters")


def export_model(
    model: Any,
    format: str,
    *,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = "auto",
    path: str | os.PathLike[str] | None = None,
    options: Any = None,
    verify: bool = True,
) -> ExportedModel:
    """Export a model, and check that the result is the same function.

    The model is exported in evaluation mode and put back in its own mode afterwards; the model, the inputs and all random
    states are left as they were.

    Args:
        model: a ``torch.nn.Module``, a ``torch.export.ExportedProgram`` or its ``.pt2`` file, an ONNX file or model, or a
            TensorFlow model: a SavedModel folder, a ``.keras`` file, a Keras model, a ``tf.Module`` or a ``tf.function``.
        format: ``"onnx"``, ``"tensorflow"``, or another of ``available_formats()``.
        inputs: an example: a tensor, a tuple of positional arguments, or a dict of arguments by name. None looks for it: the
            model's ``example_inputs()``, Lightning's ``example_input_array``, transformers' ``dummy_inputs``, the first layers.
        kwargs: keyword arguments of the example.
        dynamic_shapes: ``"auto"`` makes dim 0 of the inputs one symbolic batch where the model allows it (or the dims of the
            model's own ``dynamic_shapes()``); None is static; else torch.export's form, or names: ``{"x": {0: "batch"}}``. For
            torch models: others say themselves which of their dims are open.
        path: where to save: a file for ONNX, a folder for TensorFlow. None keeps the result in memory.
        options: an instance of the format's options class, or a dict of its fields.
        verify: compare the result with the model at the example's shape and at further sizes of the symbolic dims, and
            raise where it differs, before anything is written.

    Returns:
        The exported model.

    Raises:
        MissingInputsError: no example was given and none can be found; the message shows the call to write.
        OptionsError: an unknown format or option, or an example that does not fit the model.
        CaptureError: torch.export cannot capture the model; the message names the user's own line.
        TranslationError: the format cannot express an operator of the model.
        ParityError: the exported model computes something else; nothing was written.
        WriteError: the target cannot be written; what stood there before is untouched.

    Example:
        >>> export_model(model, "onnx").save("digits.onnx")
        >>> export_model(model, "tensorflow", path="digits_savedmodel")
    """
    exporter = get_exporter(format)
    chosen = make_options(exporter.options_type, options)
    model = open_source(model)
    with _undisturbed(model) as was_training:
        request = _request(model, format, inputs, kwargs, dynamic_shapes, chosen)
        artifact = exporter.export(request)
        exported = ExportedModel(artifact, _logged((*_mode_notice(was_training), *artifact.notices)))
        if verify:
            exported.parity = _verify(request, exported)
    if path is not None:
        exported.save(Path(path))
    return exported


@contextlib.contextmanager
def _undisturbed(model: Any) -> Iterator[bool]:
    if _is_torch(model):
        require("torch", "to export a PyTorch model")
    with kept_random_state(), kept_buffers(model), evaluation_mode(model) as was_training:
        yield was_training


def _logged(notices: tuple[str, ...]) -> tuple[str, ...]:
    for notice in notices:
        logger.info("%s", notice)
    return notices


def _mode_notice(was_training: bool) -> tuple[str, ...]:
    return ("exported in evaluation mode (the model was in training mode and is again)",) if was_training else ()


def _is_torch(model: Any) -> bool:
    torch = loaded("torch")
    return torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def _request(
    model: Any, format: str, inputs: Any, kwargs: Mapping[str, Any] | None, dynamic_shapes: Any, options: Any
) -> ExportRequest:
    if not _is_torch(model):
        if dynamic_shapes not in ("auto", None):
            raise OptionsError(
                "dynamic_shapes are for torch models; any other says itself which of its dims are open. Leave them out, or open "
                "the dims where the model is made"
            )
        return _request_of_source(model, format, inputs, kwargs, options)
    with interop_no_grad():
        args, named = find_example_inputs(model, inputs, kwargs, format)
    register_caches(model, (args, named))
    return ExportRequest(model, private_copy(args), private_copy(named), dynamic_shapes, options)


def _request_of_source(
    model: Any, format: str, inputs: Any, kwargs: Mapping[str, Any] | None, options: Any
) -> ExportRequest:
    """The request for what is no torch model: ONNX, or TensorFlow, which is opened."""
    from_tensorflow = is_tensorflow(model)
    if from_tensorflow:
        model = open_tensorflow(model, inputs, kwargs)
    if not get_exporter(format).takes(model):
        raise OptionsError(
            f"cannot export a {type(model).__name__} to {format}; give a torch.nn.Module, an ExportedProgram or a .pt2 file, an "
            "ONNX file, or a TensorFlow model (a SavedModel folder, a .keras file, a Keras model, a tf.Module or a tf.function)"
        )
    if inputs is None and not kwargs:
        return ExportRequest(model, options=options)
    source = model if from_tensorflow else get_exporter("onnx").export(ExportRequest(model))
    args, named = example_arguments(source.signature, inputs, kwargs)
    return ExportRequest(model, args, named, options=options)


def interop_no_grad() -> contextlib.AbstractContextManager[Any]:
    """``torch.no_grad()`` where torch is in use."""
    torch = loaded("torch")
    return contextlib.nullcontext() if torch is None else torch.no_grad()


def _verify(request: ExportRequest, exported: ExportedModel) -> interop.ParityReport:
    """Compare with the original on private copies of the example, at its own size and at others."""
    if _is_torch(request.model) or request.args or request.kwargs:
        report, refused = compare(_reference(request.model), exported, request.args, request.kwargs)
        for notice in refused:
            logger.info("%s", notice)
        exported.notices = (*exported.notices, *refused)
    else:
        report = interop.check(request.model, exported)
    if not getattr(
        exported.artifact, "approximate", False
    ):  # a lower precision was asked for; the notices say how far it is
        report.raise_for_failure()
    return report


def _reference(model: Any) -> Any:
    torch = loaded("torch")
    return model.module() if torch is not None and isinstance(model, torch.export.ExportedProgram) else model
