"""The words of this room: what is known of a tensor, what a framework needs, what will happen, and who does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from interop.errors import ConversionError

__all__ = ["Explanation", "Framework", "Needs", "Outcome", "Shortcut", "TensorInfo", "Verdict", "lacks"]

Outcome = Literal["view", "copy", "refuse"]

Shortcut = Callable[[Any], Any]
"""Takes a tensor of the source's plain type; gives a view in the target, or None where that is not plainly right."""


class TensorInfo(NamedTuple):
    """What crossing needs to know of one tensor (a named tuple, since making one is on the path of every call).

    Attributes:
        framework: who owns it.
        dtype: canonical name (``interop.dtypes``), or the framework's own name for a type outside that table.
        shape: sizes.
        contiguous: row-major without gaps.
        strides: in elements; None where ``contiguous``, or where they are not whole elements.
        device: ``"cpu"``, ``"cuda:0"``, ...
        locked: why nobody may write to its memory; empty where writing is allowed.
        unshareable: why its memory does not hold its values as they stand, so that only a copy can cross.
        refusal: why it cannot cross at all, with what to do instead.
    """

    framework: str
    dtype: str
    shape: tuple[int, ...]
    contiguous: bool = True
    strides: tuple[int, ...] | None = None
    device: str = "cpu"
    locked: str = ""
    unshareable: str = ""
    refusal: str = ""

    @property
    def readonly(self) -> bool:
        """True where nobody may write to the memory."""
        return bool(self.locked)

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count


class Verdict(NamedTuple):
    """A decision and its reason in words that follow "because"."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """The memory that a framework can take as it is; anything else is copied first.

    Attributes:
        contiguous: only row-major memory without gaps.
        alignment: bytes that the address must be a multiple of.
        natural: dtypes whose address must be a multiple of their element's size.
        writable: it has no notion of read-only memory, so it would hand out a writable alias.
        forward: only strides >= 0.
        host: it can hold host memory at all.
    """

    contiguous: bool = False
    alignment: int = 1
    natural: frozenset[str] = frozenset()
    writable: bool = True
    forward: bool = False
    host: bool = True


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``convert`` does with a tensor.

    Attributes:
        source: framework that owns the tensor.
        target: framework asked for.
        outcome: ``"view"`` (same memory, or the tensor itself), ``"copy"`` or ``"refuse"``.
        reason: why.
        dtype: canonical dtype name.
        shape: sizes.
        error: what ``convert`` raises when the outcome is ``"refuse"``.
    """

    source: str
    target: str
    outcome: Outcome
    reason: str
    dtype: str
    shape: tuple[int, ...]
    error: type[ConversionError] | None = None

    @property
    def copies(self) -> bool:
        """True where the data is copied."""
        return self.outcome == "copy"

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"{self.source} -> {self.target} {self.dtype}[{sizes}]: {self.outcome}, {self.reason}"


class Framework(Protocol):
    """What the file of a framework provides; the host exchange is a NumPy array over the tensor's own memory."""

    NAME: str
    """Import name; also the key in the table."""
    NEEDS: Needs
    """The memory that it can take as it is."""
    PLAIN: type
    """The exact type that a shortcut takes."""

    def owns(self, kind: type) -> bool:
        """Whether instances of a class are this framework's tensors."""

    def describe(self, x: Any, /) -> TensorInfo:
        """What crossing needs to know; never raises for an odd tensor (``refusal`` says why)."""

    def address(self, x: Any, /) -> int:
        """Address of the first element of a host tensor."""

    def takes(self, dtype: str, /) -> Verdict:
        """Whether the framework can hold a dtype, and if its memory can be shared."""

    def reaches(self, device: str, /) -> bool:
        """Whether it can use memory of a device other than the host."""

    def to_array(self, x: Any, /) -> np.ndarray[Any, Any]:
        """A NumPy array over the tensor's memory that keeps it alive; a host copy where it is elsewhere."""

    def from_array(self, array: np.ndarray[Any, Any], /) -> Any:
        """A tensor over the array's memory that keeps it alive (the array meets ``NEEDS``)."""

    def to_capsule(self, x: Any, /) -> Any:
        """A legacy DLPack capsule of a tensor on a device, after its pending work is done."""

    def from_capsule(self, capsule: Any, /) -> Any:
        """A tensor over a legacy DLPack capsule."""

    def settle(self, x: Any, /) -> Any:
        """The plain tensor of a value of this framework: itself, or a variable's value."""

    def clone(self, x: Any, /) -> Any:
        """A copy in memory of its own."""

    def shortcut(self, target: Framework, /) -> Shortcut | None:
        """The quick way into another framework, if there is one."""


def lacks(framework: str, dtype: str, advice: str = "cast it to a type that both have") -> Verdict:
    """The refusal of a dtype."""
    return Verdict("refuse", f"{framework} has no {dtype}; {advice}")
