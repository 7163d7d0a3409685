"""Export PyTorch models to ONNX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from exporters._graph_signature import signature_of
from exporters._precision import check_options
from exporters._request import DimRecord, ExportRequest
from exporters.errors import CaptureError, OptionsError, TranslationError
from exporters.onnx._artifact import OnnxArtifact
from exporters.onnx._capture import Captured, capture
from exporters.onnx._dropout import dropout_kept, switch_off_dropout
from exporters.onnx._metadata import stamp
from exporters.onnx._precision import at_precision
from exporters.onnx._source import is_source, load_source
from exporters.onnx._structures import argument_structures, output_names, result_structure
from exporters.onnx._transformers import preparations
from exporters.onnx._translate import rename_boundary, rename_dims, translate
from interop import Signature
from interop.structure import Node, names_of

__all__ = ["OnnxExporter", "OnnxOptions"]


@dataclass(frozen=True)
class OnnxOptions:
    """Options of the ONNX format.

    Attributes:
        opset: version of the default operator set, or None for torch.onnx's own choice; it is honoured or refused.
        fuse: fold BatchNormalization into convolutions and drop biases of zeros; False keeps each torch parameter as it is.
        dropout: keep each ``nn.Dropout`` as a node, switched off; only a training runtime has a use for it.
        provenance: ``"source"`` leaves ``file.py:line`` on each node; ``"full"`` leaves torch's stack traces, which hold
            the absolute paths of this machine.
        draft: take a draft of torch.export where nothing else captures the model, although it assumes what the example
            shows (which side of a branch on a tensor's value, for instance); the notices say what.
        precision: ``"float32"`` leaves the model as it is; ``"float16"`` stores and computes floats as float16, where
            onnxruntime's tool knows the operator; ``"int8"`` stores the weights of products and convolutions as int8, and
            computes in int8 with ranges found at run time, or with those that ``representative`` shows. Such a file is another
            function than the model, so it is measured instead of judged: its notices say how far each output is. Inputs and
            outputs keep their dtypes.
        representative: batches of typical inputs for int8: each a tensor, a tuple of positional arguments, or a dict of
            arguments by name. Values that hold the marks of masks (-inf, -1e9) stay in float: int8 would leave nothing beside.
    """

    opset: int | None = None
    fuse: bool = True
    dropout: bool = False
    provenance: Literal["source", "full"] = "source"
    draft: bool = False
    precision: Literal["float32", "float16", "int8"] = "float32"
    representative: Iterable[Any] | None = None

    def __post_init__(self) -> None:
        if self.provenance not in ("source", "full"):
            raise OptionsError(f"provenance is 'source' or 'full', got {self.provenance!r}")
        if self.opset is not None and not (isinstance(self.opset, int) and self.opset > 0):
            raise OptionsError(f"opset is a positive number or None, got {self.opset!r}")
        check_options(self.precision, self.representative)


class OnnxExporter:
    """Captures with torch.export, translates with torch.onnx, and gives names, dims and results their own again."""

    format: ClassVar[str] = "onnx"
    options_type: ClassVar[type[Any]] = OnnxOptions

    def takes(self, model: Any) -> bool:
        """ONNX files and models in memory, which pass through unchanged, and TensorFlow models that are opened."""
        return is_source(model)

    def export(self, request: ExportRequest) -> OnnxArtifact:
        """Export a torch module or ExportedProgram; see ``exporters._request.Exporter``."""
        options: OnnxOptions = request.options or OnnxOptions()
        artifact = load_source(request.model, options.opset) or self._from_torch(request, options)
        if options.precision == "float32":
            return artifact
        return at_precision(artifact, options.precision, options.representative, request)

    def _from_torch(self, request: ExportRequest, options: OnnxOptions) -> OnnxArtifact:
        captured, model = _captured_and_translated(request, options)
        if options.dropout:
            switch_off_dropout(model)
        _restore_names(model, request.model)
        signature = _finish(model, captured)
        dims = _renamed_dims(captured, signature)
        parameters = _parameters(captured.program, request.model, model.graph.initializers)
        stamp(model, signature, parameters, type(request.model).__qualname__)
        notices = (*captured.notices, *_dim_notices(dims))
        keep = options.provenance == "full"
        return OnnxArtifact(model, signature, dims, notices, parameters, keep)


def _captured_and_translated(request: ExportRequest, options: OnnxOptions) -> tuple[Captured, Any]:
    """The first preparation that leads to a graph; if none does, the error of the first."""
    first: CaptureError | TranslationError | None = None
    for preparation in preparations(request.model):
        try:
            with preparation as help_:
                with dropout_kept(request.model) if options.dropout else contextlib.nullcontext():
                    captured = capture(request)
                help_.repair(captured.program.graph_module)
                return captured, translate(captured.program, options.opset, fuse=options.fuse, own=help_.translations)
        except (CaptureError, TranslationError) as error:
            first = first or error
    assert first is not None
    raise first


def _finish(model: Any, captured: Captured) -> Signature:
    """Names and dims as the user knows them; gives the signature."""
    positional, keywords = argument_structures(captured.program)
    inputs = [*names_of(positional), *names_of(keywords)]
    results = result_structure(captured.program, inputs)
    rename_boundary(model, inputs, output_names(results))
    rename_dims(model, captured.names)
    names = _positional_names(captured.parameter_names, positional, keywords)
    return replace(
        signature_of(model.graph), arguments=positional, keywords=keywords, results=results, parameter_names=names
    )


def _positional_names(names: Sequence[str], positional: Node, keywords: Node) -> tuple[str, ...]:
    """The parameters that a caller may give by position or by name; nothing where ``*args`` makes that unclear."""
    return tuple(names) if len(names) == len(positional.children) + len(keywords.children) else ()


def _restore_names(model: Any, module: Any) -> None:
    """Call a weight that several layers share what ``named_parameters()`` calls it, not by its last place."""
    for name, own in _shared_names(module).items():
        value = model.graph.initializers.get(name)
        if value is not None and own not in model.graph.initializers:
            value.name = own


def _shared_names(module: Any) -> dict[str, str]:
    """Every further name of a shared weight -> its first one."""
    if not isinstance(module, torch.nn.Module):
        return {}
    first = {id(value): name for name, value in [*module.named_parameters(), *module.named_buffers()]}
    every = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {name: first[id(value)] for name, value in every if first[id(value)] != name}


def _parameters(program: torch.export.ExportedProgram, module: Any, initializers: Any) -> dict[str, bool]:
    """The parameters (True) and buffers (False) of torch among the initializers."""
    shared = _shared_names(module)
    state = program.state_dict
    found = {}
    for name in [*program.graph_signature.parameters, *program.graph_signature.buffers]:
        own = shared.get(name, name)
        if own in initializers:
            value = state.get(name)
            found[own] = name in program.graph_signature.parameters and value is not None and value.is_floating_point()
    return found


def _renamed_dims(captured: Captured, signature: Signature) -> tuple[DimRecord, ...]:
    """The records under the inputs' final names."""
    names = [item for item in captured.program.graph_signature.user_inputs if isinstance(item, str)]
    final = dict(zip(names, signature.input_names))
    return tuple(replace(record, input=final.get(record.input, record.input)) for record in captured.dims)


def _dim_notices(dims: Sequence[DimRecord]) -> list[str]:
    return [str(record) for record in dims if record.symbol is None]
