"""Rebuild torch modules from ONNX graphs, and whatever becomes one: the way back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import fx

from exporters._formats import get_exporter, make_options
from exporters._request import DimRecord, ExportRequest
from exporters.errors import OptionsError, TranslationError, UnsupportedOperatorError, WriteError
from exporters.torch._convert import lower_model
from exporters.torch._program import export_program, flat_names
from exporters.torch._runtime import LoweredRuntime
from interop import ModelFileError, Runtime, Signature, load
from interop.runtimes._torch_archive import NAMES_FILE

__all__ = ["TorchArtifact", "TorchExporter", "TorchOptions"]


@dataclass(frozen=True)
class TorchOptions:
    """Options of the torch format.

    Attributes:
        opset: ONNX opset of the graph in between, where the source is no ONNX model. None takes one that has Attention as an
            operator, or torch.onnx's own choice where it cannot translate the model to that.
        trainable: whether the module's parameters require gradients.
    """

    opset: int | None = None
    trainable: bool = True

    def __post_init__(self) -> None:
        if self.opset is not None and not (isinstance(self.opset, int) and self.opset > 0):
            raise OptionsError(f"opset is a positive number or None, got {self.opset!r}")


ATTENTION_OPSET = 23
"""torch.onnx writes scaled_dot_product_attention as one node from this opset on, and as ten nodes before."""


@dataclass(frozen=True)
class TorchArtifact:
    """A rebuilt model.

    Attributes:
        module: the ``fx.GraphModule``, in evaluation mode: call it, train it, export it again. ``module.meta["names"]`` says
            under which name it holds each weight of the ONNX model.
        signature: inputs and outputs, and how they sit in the module's arguments.
        dims: what became of the dims that were wanted dynamic.
        notices: what the user should know.
    """

    module: fx.GraphModule
    signature: Signature
    dims: tuple[DimRecord, ...] = ()
    notices: tuple[str, ...] = ()
    format: str = "torch"

    def program(self) -> torch.export.ExportedProgram:
        """What ``torch.export`` makes of the module; its dims are dynamic where the signature has symbols.

        Raises:
            TranslationError: torch.export cannot follow the model.
        """
        return export_program(self.module, self.signature)

    def write(self, path: Path) -> None:
        """Write the ``.pt2`` file.

        Raises:
            WriteError: the name ends otherwise.
            TranslationError: torch.export cannot follow the model, or not read what it wrote.
        """
        if path.suffix != ".pt2":
            raise WriteError(f"a torch.export archive is called .pt2, got {path.name!r}")
        torch.export.save(self.program(), path, extra_files={NAMES_FILE: json.dumps(flat_names(self.signature))})
        try:
            load(path)
        except ModelFileError as error:
            raise TranslationError(f"torch.export wrote a file that it cannot read again: {error}") from error

    def files(self, path: Path) -> tuple[Path, ...]:
        """The one file."""
        return (path,)

    def tidy(self, path: Path) -> None:
        """Nothing of an older export is left beside the new one."""

    def load(self) -> Runtime:
        """The live module."""
        return LoweredRuntime(self.module, self.signature)


class TorchExporter:
    """Asks the format table for ONNX, and rebuilds that graph."""

    format: ClassVar[str] = "torch"
    options_type: ClassVar[type[Any]] = TorchOptions

    def takes(self, model: Any) -> bool:
        """Whatever the ONNX exporter takes."""
        return get_exporter("onnx").takes(model)

    def export(self, request: ExportRequest) -> TorchArtifact:
        """Rebuild an ONNX file or model, or what can be exported to one; see ``exporters._request.Exporter``."""
        options: TorchOptions = request.options or TorchOptions()
        graph = _onnx_graph(request, options)
        module = lower_model(graph.model, graph.signature, graph.parameters)
        if not options.trainable:
            module.requires_grad_(False)
        return TorchArtifact(module, graph.signature, graph.dims, graph.notices)


def _onnx_graph(request: ExportRequest, options: TorchOptions) -> Any:
    """The artifact of the ONNX exporter, with each parameter as it is."""
    onnx = get_exporter("onnx")

    def export(opset: int | None) -> Any:
        inner = make_options(onnx.options_type, {"opset": opset, "fuse": False})
        return onnx.export(replace(request, options=inner))

    if options.opset is not None or not isinstance(request.model, (torch.nn.Module, torch.export.ExportedProgram)):
        return export(options.opset)
    try:
        return export(ATTENTION_OPSET)
    except UnsupportedOperatorError:
        raise
    except TranslationError:  # torch.onnx writes Attention for inputs of rank 4 only
        return export(None)
