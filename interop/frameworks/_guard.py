"""Aliasing made visible: memory that two frameworks share is watched while a guard is open."""

from __future__ import annotations

import contextvars
import zlib
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from interop.errors import AliasingError, ConversionError
from interop.frameworks._info import Framework, TensorInfo
from interop.frameworks._table import owner_of

__all__ = ["Guard", "guard", "open_guard"]

_OPEN: contextvars.ContextVar[Guard | None] = contextvars.ContextVar("interop_guard", default=None)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the tensors over the memory, and torch's count of writes through it (None where there is none)."""

    tensor: Any
    owner: Framework
    info: TensorInfo
    role: str
    version: int | None

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.info.shape))
        return f"{self.role} ({self.info.framework} {self.info.dtype}[{sizes}])"


@dataclass(frozen=True, slots=True)
class _Watched:
    """Memory with two sides, and the digest of its bytes when the watch began."""

    source: _Side
    alias: _Side
    digest: int

    def problem(self) -> str:
        """What happened to the memory; empty where nothing did."""
        sides = (self.source, self.alias)
        wrote = [side for side in sides if side.version is not None and _version_of(side.tensor) != side.version]
        if not wrote and _digest(self.source) == self.digest:
            return ""
        if wrote:
            who = f"a write went through {wrote[0]}"
        elif all(side.version is not None for side in sides):
            who = "a write went past torch, through raw memory or another alias"
        else:
            who = "a write went through " + " or ".join(str(side) for side in sides if side.version is None)
        return f"{self.source} and {self.alias} share memory, and {who}"


class Guard:
    """Watches what ``convert(..., guard=True)`` shares, from that call to the end of the ``with`` block.

    Checks read the whole shared memory (a second or two for a gigabyte), so a guard is for tests and for finding a bug; both
    tensors are held until the block ends. What cannot be seen is a write that leaves every byte as it was, unless torch
    made it. A write of another thread is seen as well.

    Example:
        >>> with interop.guard():
        ...     y = interop.convert(x, "tensorflow", guard=True)
        ...     x.add_(1)
        Traceback (most recent call last):
        interop.errors.AliasingError: ...
    """

    def __init__(self) -> None:
        self._watched: list[_Watched] = []
        self._tokens: list[contextvars.Token[Guard | None]] = []

    def __enter__(self) -> Guard:
        self._tokens.append(_OPEN.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _OPEN.reset(self._tokens.pop())
        try:
            if error is None:  # an error of the block itself says more
                self.check()
        finally:
            if not self._tokens:
                self._watched.clear()

    def check(self) -> None:
        """Look at everything that is watched now.

        Raises:
            AliasingError: memory was written to since its watch began; the message names both sides.
        """
        problems = [problem for watched in self._watched if (problem := watched.problem())]
        if problems:
            raise AliasingError(
                f"{'; '.join(problems)}. Give one of them memory of its own with convert(..., copy=True), or write "
                "outside of the guard"
            )

    def watch(self, source: Any, alias: Any) -> None:
        """Watch a pair of tensors over the same memory that did not come from ``convert``.

        Args:
            source: a tensor of any framework.
            alias: a tensor over the same memory, or a part of it.

        Raises:
            ConversionError: one of them is no tensor with memory of its own.
        """
        first, second = _side(source, "the source"), _side(alias, "its alias")
        self._watched.append(_Watched(first, second, _digest(first)))


def guard() -> Guard:
    """Open a guard over the conversions of a block: ``with interop.guard(): convert(x, "torch", guard=True)``.

    Raises:
        AliasingError: at the end of the block (or at ``Guard.check``, or at the next guarded conversion), if memory that two
            tensors share was written to while it was open.
    """
    return Guard()


def open_guard() -> Guard:
    """The innermost open guard of this context.

    Raises:
        ConversionError: none is open.
    """
    found = _OPEN.get()
    if found is None:
        raise ConversionError(
            "convert(..., guard=True) watches until a guard closes; open one: with interop.guard(): ..."
        )
    return found


def _side(tensor: Any, role: str) -> _Side:
    owner = owner_of(type(tensor))
    if owner is None:
        raise ConversionError(f"{type(tensor).__name__} is not a tensor of a loaded framework")
    info = owner.describe(tensor)
    if info.refusal or info.unshareable:
        raise ConversionError(f"{role} cannot be watched: {info.refusal or info.unshareable}")
    return _Side(tensor, owner, info, role, _version_of(tensor))


def _version_of(tensor: Any) -> int | None:
    """How often torch wrote to a tensor or a view of it; inference tensors do not count."""
    try:
        version = tensor._version
    except (AttributeError, RuntimeError):
        return None
    return version if isinstance(version, int) else None


def _digest(side: _Side) -> int:
    """Of the bytes of the elements, in row-major order.

    A CRC never misses a change within 32 bits, and any other one once in four billion; a cryptographic hash would take
    two to five times as long.
    """
    array = np.ascontiguousarray(side.owner.to_array(side.tensor))
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)
