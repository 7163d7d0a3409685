"""The error of this room."""

from __future__ import annotations

from interop.errors import InteropError

__all__ = ["OperatorError"]


class OperatorError(InteropError, TypeError):
    """An operator cannot be defined, called, differentiated or found as it was asked to; the message says what to do."""
