"""How long a call takes, measured the same way for every runtime."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from interop.dtypes import DTYPES
from interop.signature import Signature, TensorSpec

__all__ = ["Benchmark", "measure", "sample_inputs"]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Times of one call, in seconds.

    Attributes:
        name: what was measured.
        median: the middle of all blocks.
        low: the tenth percentile, which other work on the machine disturbs least.
        high: the ninetieth percentile.
        calls: how many calls were timed.
    """

    name: str
    median: float
    low: float
    high: float
    calls: int

    def __str__(self) -> str:
        low, median, high = (_readable(seconds) for seconds in (self.low, self.median, self.high))
        return f"{self.name}: median {median} (10 % {low}, 90 % {high}; {self.calls} calls)"


def _readable(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def measure(name: str, call: Callable[[], Any], *, seconds: float, warmup: int) -> Benchmark:
    """Time a call in blocks that are long enough for the clock.

    Args:
        name: what is measured.
        call: without arguments.
        seconds: about how long to measure.
        warmup: calls before.
    """
    for _ in range(max(warmup, 1)):
        call()
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    block = max(1, int(min(seconds / 20, 1e-3) / once))
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(block):
            call()
        times.append((time.perf_counter() - start) / block)
    low, *_, high = statistics.quantiles(times, n=10)
    return Benchmark(name, statistics.median(times), low, high, block * len(times))


def sample_inputs(signature: Signature, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Make NumPy inputs that fit a signature: normal floats, zeros for the rest (a valid index everywhere).

    Args:
        signature: what the model takes.
        sizes: the sizes of symbols; 1 for those that are not named, and for unknown dims.
    """
    generator = np.random.default_rng(0)
    return {spec.name: _sample(spec, dict(sizes or {}), generator) for spec in signature.inputs}


def _sample(spec: TensorSpec, sizes: Mapping[str, int], generator: np.random.Generator) -> Any:
    shape = tuple(dim if isinstance(dim, int) else sizes.get(dim or "", 1) for dim in spec.shape or ())
    dtype = DTYPES[spec.dtype]
    if dtype.kind == "string":
        return np.full(shape, "", dtype=object)
    if dtype.kind in ("float", "complex"):
        return generator.standard_normal(shape).astype(dtype.numpy)
    return np.zeros(shape, dtype.numpy)
