"""Lower ONNX graphs to TensorFlow modules and SavedModels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from exporters._formats import get_exporter, make_options
from exporters._request import DimRecord, ExportRequest
from exporters.errors import OptionsError, TranslationError, UnsupportedOperatorError
from exporters.tensorflow._convert import lower_model
from exporters.tensorflow._keras import as_keras_layer
from exporters.tensorflow._module import LoweredModule
from exporters.tensorflow._onnx_tf import OnnxTfModule, convert_with_onnx_tf
from exporters.tensorflow._savedmodel import write_savedmodel
from exporters.tensorflow._signatures import check_signatures
from exporters.tensorflow._warmup import LIMIT, Warmup, make_warmup
from interop import Runtime, Signature, load

__all__ = ["TensorFlowArtifact", "TensorFlowExporter", "TensorFlowOptions", "as_keras_layer"]


@dataclass(frozen=True)
class TensorFlowOptions:
    """Options of the TensorFlow format.

    Attributes:
        opset: ONNX opset of the graph in between. None takes one that has Attention as an operator, which TensorFlow then
            computes in fewer steps, or torch.onnx's own choice where it cannot translate the model to that.
        trainable: make the torch parameters trainable variables.
        training: add a signature ``"training"`` in which BatchNormalization and ``nn.Dropout`` behave as in training; the
            serving signature stays as it is. Implies ``trainable``.
        version: write ``path/<version>/``, the layout that TensorFlow Serving watches; other versions there stay.
        signatures: further signatures beside ``serving_default``: ``{"embed": "embedding"}`` or ``{"name": ["output", ...]}``.
            Each gives these outputs of the model and takes those of its inputs that they need; what else the model computes is
            not in it. They share the model's variables, and ``interop.load(path, signature="embed")`` runs them.
        warmup: how many warm-up requests with the example inputs are written for each of these signatures (not for
            ``"training"``), which TensorFlow Serving runs while it loads the model; True is one. An ONNX file has no example: then
            the values are made up. The model's name in them is that of the folder.
        engine: ``"native"``, or ``"onnx-tf"``: the package of that name, as a second opinion. It knows operators up to opset
            16, makes the weights constants, and its result is always compared with ONNX Runtime, also with ``verify=False``.
    """

    opset: int | None = None
    trainable: bool = False
    training: bool = False
    version: int | None = None
    signatures: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    warmup: int = 0
    engine: Literal["native", "onnx-tf"] = "native"

    def __post_init__(self) -> None:
        if self.engine not in ("native", "onnx-tf"):
            raise OptionsError(f"engine is 'native' or 'onnx-tf', got {self.engine!r}")
        if self.engine == "onnx-tf" and (self.trainable or self.training):
            raise OptionsError("engine='onnx-tf' makes weights constants; a model that trains needs engine='native'")
        if self.version is not None and not (isinstance(self.version, int) and self.version >= 0):
            raise OptionsError(f"version is a whole number or None, got {self.version!r}")
        if not isinstance(self.warmup, int) or not 0 <= self.warmup <= LIMIT:
            raise OptionsError(f"warmup is a number of requests up to {LIMIT}, or True for one, got {self.warmup!r}")
        if check_signatures(self.signatures) and self.engine == "onnx-tf":
            raise OptionsError("engine='onnx-tf' gives one signature; further ones need engine='native'")


ATTENTION_OPSET = 23
"""torch.onnx writes scaled_dot_product_attention as one node from this opset on, and as ten nodes before."""


@dataclass(frozen=True)
class TensorFlowArtifact:
    """A lowered model.

    Attributes:
        module: the ``tf.Module``; it runs as it is, and its variables can be trained.
        signature: inputs and outputs, and how they sit in the model's arguments.
        dims: what became of the dims that were wanted dynamic.
        notices: what the user should know.
        version: the folder below the path, see ``TensorFlowOptions``.
        warmup: what is written for TensorFlow Serving to run first.
    """

    module: LoweredModule | OnnxTfModule
    signature: Signature
    dims: tuple[DimRecord, ...] = ()
    notices: tuple[str, ...] = ()
    version: int | None = None
    warmup: Warmup | None = None
    format: str = "tensorflow"

    def write(self, path: Path) -> None:
        """Write the SavedModel folder."""
        (folder,) = self.files(path)
        folder.parent.mkdir(exist_ok=True)
        write_savedmodel(self.module, folder)
        if self.warmup is not None:
            self.warmup.write(folder, path.name)

    def files(self, path: Path) -> tuple[Path, ...]:
        """The folder that holds the model: the path itself, or its version."""
        return (path if self.version is None else path / str(self.version),)

    def tidy(self, path: Path) -> None:
        """Nothing of an older export is left beside the new one."""

    def load(self) -> Runtime:
        """The live module."""
        return load(self.module)


class TensorFlowExporter:
    """Asks the format table for ONNX, and lowers that graph."""

    format: ClassVar[str] = "tensorflow"
    options_type: ClassVar[type[Any]] = TensorFlowOptions

    def takes(self, model: Any) -> bool:
        """Whatever the ONNX exporter takes."""
        return get_exporter("onnx").takes(model)

    def export(self, request: ExportRequest) -> TensorFlowArtifact:
        """Export a torch module, an ExportedProgram, or an ONNX file; see ``exporters._request.Exporter``."""
        options: TensorFlowOptions = request.options or TensorFlowOptions()
        trainable = options.trainable or options.training
        graph = _onnx_graph(request, options)
        module: LoweredModule | OnnxTfModule
        if options.engine == "onnx-tf":
            module = convert_with_onnx_tf(graph, request)
        else:
            module = lower_model(
                graph.model,
                graph.signature,
                graph.parameters,
                trainable=trainable,
                training=options.training,
                signatures=check_signatures(options.signatures),
            )
        warmup = make_warmup(module, graph.signature, request, int(options.warmup)) if options.warmup else None
        return TensorFlowArtifact(module, graph.signature, graph.dims, graph.notices, options.version, warmup)


def _onnx_graph(request: ExportRequest, options: TensorFlowOptions) -> Any:
    """The artifact of the ONNX exporter."""
    onnx = get_exporter("onnx")

    def export(opset: int | None) -> Any:
        fuse = not (options.trainable or options.training)
        inner = make_options(onnx.options_type, {"opset": opset, "fuse": fuse, "dropout": options.training})
        return onnx.export(replace(request, options=inner))

    if options.opset is not None or options.engine != "native":
        return export(options.opset)
    try:
        return export(ATTENTION_OPSET)
    except UnsupportedOperatorError:
        raise
    except TranslationError:  # torch.onnx writes Attention for inputs of rank 4 only
        return export(None)
