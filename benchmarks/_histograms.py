"""How far outputs are from the truth, counted in bins of a tenth of a decade, so that many thousand runs stay small."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from interop.parity.compare import OutputComparison

BINS_PER_DECADE = 10
LOWEST = -9
"""Decade of the first bin, which counts all that is less, an equal output too."""
LIMIT = 0
"""The bin that begins at 1."""
ENDLESS = 10**6
"""The bin of what has no distance: another dtype, shape or name, a NaN, an exception."""


@dataclass
class Spread:
    """Two measures of the same outputs.

    Attributes:
        noise: largest difference over what ``interop.check`` allows there, so that 1 is its limit.
        relative: largest difference over the output's scale, which a fixed tolerance judges.
        largest: the largest difference over what is allowed, where that is a number.
    """

    noise: collections.Counter[int] = field(default_factory=collections.Counter)
    relative: collections.Counter[int] = field(default_factory=collections.Counter)
    largest: float = 0.0

    def extend(self, outputs: Iterable[OutputComparison]) -> None:
        for output in outputs:
            if output.rule != "noise":
                continue
            self.noise[_bin(output.max_abs, output.allowed, output)] += 1
            self.relative[_bin(output.max_abs, output.scale, output)] += 1
            if output.allowed:
                self.largest = max(self.largest, output.max_abs / output.allowed)

    def add(self, other: Spread) -> None:
        self.noise.update(other.noise)
        self.relative.update(other.relative)
        self.largest = max(self.largest, other.largest)

    def furthest(self) -> Spread:
        """The largest distance alone, which a fault is found by; one within what is allowed was found by something else."""
        seen = max((number for number in self.noise if number != ENDLESS), default=LIMIT - 1)
        if seen < LIMIT:
            return Spread(collections.Counter([ENDLESS]), collections.Counter([ENDLESS]))
        relative = max(number for number in self.relative if number != ENDLESS)
        return Spread(collections.Counter([seen]), collections.Counter([relative]))


def edge(number: int) -> float:
    """The lower edge of a bin."""
    return float(10 ** (number / BINS_PER_DECADE))


def _bin(difference: float, unit: float, output: OutputComparison) -> int:
    if output.shape != output.reference_shape or output.dtype != output.reference_dtype or "NaN" in output.reason:
        return ENDLESS
    if not difference:
        return LOWEST * BINS_PER_DECADE
    if not unit or not math.isfinite(difference / unit):
        return ENDLESS
    return max(LOWEST * BINS_PER_DECADE, math.floor(math.log10(difference / unit) * BINS_PER_DECADE))
