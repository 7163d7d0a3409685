"""Write LiteRT files (``.tflite``), by way of a SavedModel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import interop
from exporters._formats import get_exporter
from exporters._precision import bound, check_options, example_of, measured
from exporters._request import DimRecord, ExportRequest
from exporters.errors import TranslationError
from exporters.litert._convert import convert_savedmodel
from exporters.litert._metadata import stamp
from interop import Runtime, Signature

__all__ = ["LitertArtifact", "LitertExporter", "LitertOptions"]


@dataclass(frozen=True)
class LitertOptions:
    """Options of the LiteRT format.

    A file of lower precision is another function than the model, so it is measured instead of judged: its notices say, for
    each output, how far it is from the float32 model. Inputs and outputs keep their dtypes in every precision.

    Attributes:
        precision: ``"float32"``; ``"float16"`` stores the weights as float16; ``"int8"`` stores the weights as int8, and
            computes in int8 where ``representative`` says which values to expect and LiteRT has an int8 kernel.
        representative: batches of typical inputs for int8: each a tensor, a tuple of positional arguments, or a dict of
            arguments by name. None leaves the activations in float. With them stay in float what int8 would spoil: values that hold
            the marks of masks (-inf, -1e9), normalizations, and divisors.
    """

    precision: Literal["float32", "float16", "int8"] = "float32"
    representative: Iterable[Any] | None = None

    def __post_init__(self) -> None:
        check_options(self.precision, self.representative)


@dataclass(frozen=True)
class LitertArtifact:
    """A converted model.

    Attributes:
        content: the bytes of the file.
        signature: inputs and outputs, and how they sit in the model's arguments.
        dims: what became of the dims that were wanted dynamic.
        notices: what the user should know.
        approximate: whether it was made to differ from the model, by a lower precision.
    """

    content: bytes
    signature: Signature
    dims: tuple[DimRecord, ...] = ()
    notices: tuple[str, ...] = ()
    approximate: bool = False
    format: str = "litert"

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_bytes(self.content)

    def files(self, path: Path) -> tuple[Path, ...]:
        """The one file."""
        return (path,)

    def tidy(self, path: Path) -> None:
        """Nothing of an older export is left beside the new one."""

    def load(self) -> Runtime:
        """The file's bytes in the LiteRT interpreter."""
        return interop.load(self.content, runtime="litert")


class LitertExporter:
    """Asks the format table for TensorFlow, and converts its SavedModel to LiteRT's builtin operators."""

    format: ClassVar[str] = "litert"
    options_type: ClassVar[type[Any]] = LitertOptions

    def takes(self, model: Any) -> bool:
        """Whatever the TensorFlow exporter takes."""
        return get_exporter("tensorflow").takes(model)

    def export(self, request: ExportRequest) -> LitertArtifact:
        """Export a torch module, an ExportedProgram, or an ONNX file; see ``exporters._request.Exporter``.

        Raises:
            UnsupportedOperatorError: LiteRT has no builtin operator for a node; the message names them all.
        """
        options: LitertOptions = request.options or LitertOptions()
        tensorflow = get_exporter("tensorflow")
        source: Any = tensorflow.export(_without_options(request, tensorflow.options_type()))
        signature: Signature = source.signature
        _require_tensors(signature)
        names: Mapping[str, Any] = source.module.interop_metadata["names"]
        batches = list(bound(signature, options.representative))
        samples = [_feed(batch, names["inputs"]) for batch in batches]
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / "model"
            source.write(saved)
            (model,) = source.files(saved)
            content = convert_savedmodel(model, options.precision, samples)
        content = stamp(content, {"signature": signature.to_json(), "names": _boundary_names(names)})
        artifact = LitertArtifact(content, signature, source.dims, source.notices, options.precision != "float32")
        if not artifact.approximate:
            return artifact
        inputs = [*example_of(request, signature), *batches]
        notices = (*source.notices, *measured(source.load(), artifact.load(), inputs, options.precision))
        return LitertArtifact(content, signature, source.dims, notices, True)


def _without_options(request: ExportRequest, options: Any) -> ExportRequest:
    return ExportRequest(request.model, request.args, request.kwargs, request.dynamic_shapes, options)


def _boundary_names(names: Mapping[str, Any]) -> dict[str, Any]:
    return {"inputs": names["inputs"], "outputs": names["outputs"]}


def _require_tensors(signature: Signature) -> None:
    for spec in (*signature.inputs, *signature.outputs):
        if spec.kind != "tensor":
            raise TranslationError(f"LiteRT takes and gives tensors only, and {spec.name!r} is a {spec.kind}")


def _feed(batch: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: interop.convert(value, "numpy") for name, value in batch.items()}
