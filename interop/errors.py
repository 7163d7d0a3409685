"""The errors of both packages: one base, and a class where a caller may want to act differently.

Every message says what was given, what is allowed, and what to do next.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AliasingError",
    "ConversionError",
    "CopyRequiredError",
    "InputError",
    "InteropError",
    "MissingExtraError",
    "ModelFileError",
    "ParityError",
]


class InteropError(Exception):
    """Base of everything that this project raises on purpose."""


class MissingExtraError(InteropError, ImportError):
    """A framework is needed that is not installed.

    Args:
        module: the import name that is missing, such as ``"tensorflow"``.
        extra: the extra of this project that installs it, such as ``"tensorflow"``.
        purpose: what needs it, in a few words: ``"to run a SavedModel"``.
    """

    def __init__(self, module: str, extra: str, purpose: str) -> None:
        super().__init__(f"{module} is needed {purpose} and is not installed: pip install 'tensor-interop[{extra}]'")
        self.module = module
        self.extra = extra


class ConversionError(InteropError, TypeError):
    """A tensor cannot cross to the other framework with its values and dtype intact."""


class CopyRequiredError(ConversionError, BufferError):
    """``copy=False`` was asked for and only a copy can cross; the message says why."""


class AliasingError(InteropError, RuntimeError):
    """Memory that two tensors share was written to while a guard was open; the message names both sides."""


class ModelFileError(InteropError, OSError):
    """A model file is missing, truncated, unsafe, or not a model."""


class InputError(InteropError, ValueError):
    """Inputs do not fit a model's signature: names, count, dtype, rank or a dimension."""


class ParityError(InteropError, AssertionError):
    """A candidate is not the same function as its reference.

    Attributes:
        report: the ``ParityReport`` with all figures.
    """

    def __init__(self, message: str, report: Any) -> None:
        super().__init__(message)
        self.report = report
