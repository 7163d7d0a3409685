"""The ``ExportedProgram`` that is compiled, and the names and dims of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

import interop
from exporters._formats import get_exporter
from exporters._request import DimRecord, ExportRequest
from exporters.errors import CaptureError, TranslationError
from interop import Signature
from interop.structure import Structure, fill, names_of

__all__ = ["Captured", "capture"]

_FAILURES = (RuntimeError, ValueError, TypeError, AssertionError, NotImplementedError, KeyError, AttributeError)
"""What torch.export raises."""


@dataclass(frozen=True)
class Captured:
    """What is compiled.

    Attributes:
        program: the program.
        signature: its inputs and outputs.
        dims: what became of the dims that were wanted dynamic.
        notices: what the user should know.
    """

    program: torch.export.ExportedProgram
    signature: Signature
    dims: tuple[DimRecord, ...] = ()
    notices: tuple[str, ...] = ()


def capture(request: ExportRequest) -> Captured:
    """Capture the model of a request.

    Raises:
        CaptureError: torch.export cannot capture it.
        TranslationError: the model does not run on the CPU, or does not take and give tensors.
    """
    model = request.model
    if isinstance(model, torch.export.ExportedProgram):
        return _checked(Captured(model, interop.load(model).signature))
    if not isinstance(model, torch.nn.Module):
        exporter = get_exporter("torch")
        rebuilt: Any = exporter.export(replace(request, options=exporter.options_type()))
        return _checked(Captured(rebuilt.program(), rebuilt.signature, rebuilt.dims, rebuilt.notices))
    _require_cpu(model)
    return _checked(_of_module(request))


def _of_module(request: ExportRequest) -> Captured:
    """A module's program under the names of its ONNX export; static where ONNX cannot express it."""
    onnx = get_exporter("onnx")
    try:
        graph: Any = onnx.export(replace(request, options=onnx.options_type()))
    except TranslationError as error:
        program = _exported(request, None)
        notice = f"the sizes of the example are fixed, because the names of dims come from the ONNX export: {error}"
        return Captured(program, interop.load(program).signature, (), (notice,))
    return Captured(_exported(request, graph.signature), graph.signature, graph.dims, graph.notices)


def _exported(request: ExportRequest, signature: Signature | None) -> torch.export.ExportedProgram:
    args, kwargs = pytree.tree_map(_contiguous, (tuple(request.args), dict(request.kwargs)))
    shapes = None if signature is None else _dynamic_shapes(signature)
    errors: list[Exception] = []
    for oblivious in (True, False):  # without taking a batch of one for special, where torch.export can do that
        try:
            settings: Any = torch.fx.experimental._config
            with settings.patch(backed_size_oblivious=oblivious), torch.no_grad():
                return torch.export.export(request.model, args, kwargs, dynamic_shapes=shapes)
        except _FAILURES as error:
            errors.append(error)
    raise CaptureError(f"torch.export cannot capture the model: {str(errors[0])[:1000]}") from errors[0]


def _dynamic_shapes(signature: Signature) -> Any:
    """torch.export's form of the signature's dims, by parameter where there are names for all."""
    dims = {spec.name: _dims(spec.shape) for spec in signature.inputs}
    if signature.arguments is None:
        return tuple(dims.values())
    given = [_filled(child, dims) for child in signature.arguments.children]
    named = dict(
        zip(map(str, signature.keywords.keys), (_filled(child, dims) for child in signature.keywords.children))
    )
    if len(signature.parameter_names) < len(given):
        return tuple(given) if not named else None
    return dict(zip(signature.parameter_names, given)) | named


def _filled(structure: Structure, dims: Mapping[str, Any]) -> Any:
    """The dims in the place of the tensors; None in the place of a constant."""
    names = list(names_of(structure))
    return fill(structure, dims) if names else None


def _dims(shape: tuple[Any, ...] | None) -> dict[int, Any]:
    auto = torch.export.Dim.AUTO
    return {axis: auto for axis, dim in enumerate(shape or ()) if not isinstance(dim, int)}


def _contiguous(leaf: Any) -> Any:
    return leaf.contiguous() if isinstance(leaf, torch.Tensor) else leaf


def _require_cpu(model: torch.nn.Module) -> None:
    devices = {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} - {"cpu"}
    if devices:
        raise TranslationError(
            f"the model is on {', '.join(sorted(devices))}; the package is compiled for the CPU: model.cpu()"
        )


def _checked(captured: Captured) -> Captured:
    for spec in (*captured.signature.inputs, *captured.signature.outputs):
        if spec.kind != "tensor" or spec.dtype == "string":
            raise TranslationError(f"a LibTorch package takes and gives tensors only, and {spec.name!r} is none")
    return captured
