"""What can go wrong while a model is exported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interop.errors import InteropError

__all__ = [
    "CaptureError",
    "ExportError",
    "MissingInputsError",
    "OptionsError",
    "TranslationError",
    "Unsupported",
    "UnsupportedOperatorError",
    "WriteError",
]


class ExportError(InteropError):
    """Base of the export errors."""


class MissingInputsError(ExportError, TypeError):
    """No example inputs were given and none can be found with certainty; the message shows the call to write."""


class OptionsError(ExportError, ValueError):
    """An unknown format, an unknown option, or a value that an option does not take."""


class CaptureError(ExportError):
    """torch.export could not capture the model; the message names the user's own line where it is known."""


class TranslationError(ExportError):
    """The captured graph could not be written in the target format's operators."""


class WriteError(ExportError, OSError):
    """The target cannot be written; what stood there before is still there."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One node that the target cannot express.

    Attributes:
        operator: its type, with the domain where it is not the default one.
        node: its name.
        reason: why.
        source: the user's file and line that it comes from, or an empty string.
    """

    operator: str
    node: str
    reason: str
    source: str = ""

    def __str__(self) -> str:
        place = f" ({self.source})" if self.source else ""
        return f"{self.operator} at node {self.node!r}{place}: {self.reason}"


class UnsupportedOperatorError(TranslationError):
    """All nodes of a model that the target cannot express, found before any work was done.

    Attributes:
        unsupported: one record a node.
    """

    def __init__(self, target: str, unsupported: Sequence[Unsupported]) -> None:
        lines = "\n  ".join(map(str, unsupported))
        super().__init__(f"{target} cannot express {len(unsupported)} of the model's nodes:\n  {lines}")
        self.unsupported = tuple(unsupported)
