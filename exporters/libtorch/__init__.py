"""Compile models for C++: an AOTInductor package, and a CMake project that runs it with LibTorch."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from exporters._formats import get_exporter
from exporters._request import DimRecord, ExportRequest
from exporters.errors import OptionsError
from exporters.libtorch._package import compile_program
from exporters.libtorch._program import capture
from exporters.libtorch._project import write_project
from interop import Runtime, Signature
from interop.runtimes._torch_archive import load_archive
from interop.runtimes._torch_package import PackageRuntime

__all__ = ["LibtorchArtifact", "LibtorchExporter", "LibtorchOptions"]


@dataclass(frozen=True)
class LibtorchOptions:
    """Options of the LibTorch format.

    Attributes:
        portable: compile for every x86-64 processor with AVX2 (2013 and later) instead of for the one of this machine. On other
            architectures: for their common base.
        namespace: the C++ namespace of the typed wrapper; it has to be an identifier.
    """

    portable: bool = False
    namespace: str = "model"

    def __post_init__(self) -> None:
        if not isinstance(self.portable, bool):
            raise OptionsError(f"portable is True or False, got {self.portable!r}")
        if not (self.namespace.isidentifier() and self.namespace.isascii()):
            raise OptionsError(f"namespace is a C++ identifier, got {self.namespace!r}")


@dataclass(frozen=True)
class LibtorchArtifact:
    """A compiled model.

    Attributes:
        package: the bytes of the AOTInductor package.
        signature: inputs and outputs, and how they sit in the model's arguments.
        namespace: of the typed wrapper.
        dims: what became of the dims that were wanted dynamic.
        notices: what the user should know.
    """

    package: bytes
    signature: Signature
    namespace: str = "model"
    dims: tuple[DimRecord, ...] = ()
    notices: tuple[str, ...] = ()
    format: str = "libtorch"

    def write(self, path: Path) -> None:
        """Write the project folder: the package and its sources."""
        path.mkdir()
        write_project(path, self.package, self.signature, self.namespace)

    def files(self, path: Path) -> tuple[Path, ...]:
        """The one folder."""
        return (path,)

    def tidy(self, path: Path) -> None:
        """Nothing of an older export is left beside the new one."""

    def load(self) -> Runtime:
        """The package, loaded into this process."""
        with tempfile.TemporaryDirectory() as folder:  # the loader unpacks the package elsewhere
            path = Path(folder) / "model.pt2"
            path.write_bytes(self.package)
            return PackageRuntime(load_archive(path, allow_native_code=True), self.signature)


class LibtorchExporter:
    """Captures with torch.export under the names of the ONNX export, and compiles with AOTInductor."""

    format: ClassVar[str] = "libtorch"
    options_type: ClassVar[type[Any]] = LibtorchOptions

    def takes(self, model: Any) -> bool:
        """Whatever the torch exporter takes."""
        return get_exporter("torch").takes(model)

    def export(self, request: ExportRequest) -> LibtorchArtifact:
        """Export a torch module, an ExportedProgram, or a source of the torch format; see ``exporters._request.Exporter``.

        Raises:
            TranslationError: AOTInductor cannot compile the model, or the model does not run on the CPU.
        """
        options: LibtorchOptions = request.options or LibtorchOptions()
        captured = capture(request)
        package = compile_program(captured.program, portable=options.portable)
        return LibtorchArtifact(package, captured.signature, options.namespace, captured.dims, captured.notices)
