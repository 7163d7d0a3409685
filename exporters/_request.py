"""What an exporter is asked for, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from interop import Runtime, Signature

__all__ = ["Artifact", "DimRecord", "Exporter", "ExportRequest"]


@dataclass(frozen=True)
class ExportRequest:
    """One export, with everything found that the caller left open.

    Attributes:
        model: the model, in evaluation mode if it is a torch module.
        args: example positional arguments, private copies.
        kwargs: example keyword arguments, private copies.
        dynamic_shapes: ``"auto"``, None, or a specification (see ``export_model``).
        options: an instance of the exporter's ``options_type``.
    """

    model: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = "auto"
    options: Any = None


@dataclass(frozen=True, slots=True)
class DimRecord:
    """What became of one input dimension that was wanted dynamic.

    Attributes:
        input: name of the input.
        axis: which dimension.
        symbol: its name if it is dynamic, None if it was specialised to the example's size.
        size: the example's size.
        reason: why it was specialised; empty for a dynamic one.
    """

    input: str
    axis: int
    symbol: str | None
    size: int
    reason: str = ""

    def __str__(self) -> str:
        if self.symbol is not None:
            return f"{self.input}[{self.axis}] is dynamic ({self.symbol})"
        return f"{self.input}[{self.axis}] is fixed to {self.size}: {self.reason}"


class Artifact(Protocol):
    """An exported model in memory.

    Attributes:
        format: the format's name.
        signature: its inputs and outputs.
        dims: what became of the dims that were wanted dynamic.
        notices: what the user should know about this export.
    """

    format: str
    signature: Signature
    dims: tuple[DimRecord, ...]
    notices: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write the model to a path that does not exist yet and whose folder is private to this call."""
        ...

    def files(self, path: Path) -> tuple[Path, ...]:
        """The files or folders, in the order in which they may appear, that ``write(path)`` makes beside each other."""
        ...

    def tidy(self, path: Path) -> None:
        """Remove what an older export at this path left beside the new one."""
        ...

    def load(self) -> Runtime:
        """The model as it stands in memory, ready to run."""
        ...


class Exporter(Protocol):
    """Turns a model into an artifact of one format.

    Attributes:
        format: the format's name.
        options_type: a frozen dataclass of its options.
    """

    format: ClassVar[str]
    options_type: ClassVar[type[Any]]

    def takes(self, model: Any) -> bool:
        """Whether it can export a model of this kind that is not a torch module or ExportedProgram."""
        ...

    def export(self, request: ExportRequest) -> Artifact:
        """Export.

        Raises:
            CaptureError: torch.export cannot capture the model.
            TranslationError: the format cannot express it.
        """
        ...
