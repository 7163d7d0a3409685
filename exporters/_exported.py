"""The result of an export."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from exporters._files import publish, staging_folder
from exporters._request import Artifact, DimRecord
from exporters.errors import WriteError
from interop import ParityReport, Runtime, Signature

__all__ = ["ExportedModel"]


class ExportedModel:
    """An exported model: call it like the original, save it, ask it for its signature.

    Attributes:
        format: the format's name, ``"onnx"`` or ``"tensorflow"``.
        signature: inputs and outputs with names, dtypes and symbolic dims.
        parity: the report of the comparison with the original, or None where ``verify=False``.
        path: where it was saved last, or None.
        dims: what became of each input dimension that was wanted dynamic.
        notices: what the user should know about this export, one sentence each.

    Example:
        >>> exported = export_model(model, "onnx")
        >>> exported.save("model.onnx")
        >>> exported(images)  # the same call as model(images)
    """

    def __init__(self, artifact: Artifact, notices: tuple[str, ...]) -> None:
        self._artifact = artifact
        self._runtime: Runtime | None = None
        self._lock = threading.Lock()
        self.format = artifact.format
        self.signature: Signature = artifact.signature
        self.dims: tuple[DimRecord, ...] = artifact.dims
        self.notices = notices
        self.parity: ParityReport | None = None
        self.path: Path | None = None

    @property
    def artifact(self) -> Artifact:
        """The exported graph in memory, for further exporters."""
        return self._artifact

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model: the original's arguments in, the original's results out, in the caller's framework."""
        return self.__interop_runtime__()(*args, **kwargs)

    def __interop_runtime__(self) -> Runtime:
        """What ``interop.load`` and ``interop.check`` take from this object."""
        with self._lock:
            if self._runtime is None:
                self._runtime = self._artifact.load()
        return self._runtime

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model; it appears whole or not at all.

        Args:
            path: a file for ONNX, a folder for TensorFlow; missing parent folders are made.

        Returns:
            The path.

        Raises:
            WriteError: the target cannot be written; what stood there before is untouched.
        """
        target = Path(path).expanduser()
        if not target.name:
            raise WriteError(f"{str(path)!r} is no path for a model; give a name")
        target = target.absolute()
        with staging_folder(target) as folder:
            staged = folder / target.name
            self._artifact.write(staged)
            for item in self._artifact.files(staged):
                place = target.parent / item.relative_to(folder)
                place.parent.mkdir(exist_ok=True)
                publish(item, place)
        self._artifact.tidy(target)
        self.path = target
        return target

    def __repr__(self) -> str:
        verdict = "not verified" if self.parity is None else "verified" if self.parity.passed else "differs"
        place = f", saved at {self.path}" if self.path is not None else ""
        return f"<ExportedModel {self.format} {self.signature}, {verdict}{place}>"
