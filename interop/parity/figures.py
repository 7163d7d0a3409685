"""Measures of a difference between two arrays: magnitudes, ulp, cosine, signal-to-noise ratio."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.errors import ConversionError

__all__ = ["DECADES", "as_numpy", "magnitudes", "scale_of", "smallest_tolerances", "ulp_of", "widen"]

Array = npt.NDArray[Any]

DECADES = ("equal", *(f"1e{power}" for power in range(-12, 1)))
"""What ``OutputComparison.histogram`` counts: elements that are equal, then those whose difference, relative to the
output's scale, is below each of these and not below the one before; the last also holds all that is larger."""


def as_numpy(value: Any) -> Array:
    """A tensor of any framework as a NumPy array; bfloat16 and float8 come as ml_dtypes types."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        return np.asarray(value)
    if isinstance(value, (list, tuple)):
        raise ConversionError(
            f"an output is a tensor, got a {type(value).__name__}; give its items under their own names"
        )
    from interop.frameworks import convert

    return np.asarray(convert(value, "numpy"))


def widen(values: Array) -> Array:
    """Float64 or complex128: wide enough for the difference of two narrower floats."""
    dtype = dtype_of(values.dtype)
    if dtype.name == "complex32":
        raise ConversionError("complex32 has no NumPy arithmetic; cast the output to complex64")
    return values.astype(np.complex128 if dtype.kind == "complex" else np.float64)


def magnitudes(expected: Array, given: Array, finite: Array, dtype: str) -> dict[str, Any]:
    """The figures of ``OutputComparison`` that describe a difference.

    Args:
        expected: float64 or complex128, zero where not finite.
        given: the same.
        finite: bool mask of the elements that count.
        dtype: canonical dtype name that ulp are counted in.
    """
    distance, size = np.abs(expected - given), np.abs(expected)
    larger = np.maximum(size, np.abs(given))
    scale = float(size.max())
    differing = distance > 0
    count = int(np.count_nonzero(finite))
    unit = float(distance.max()) or 1.0  # squares of the plain differences may under- or overflow
    rms = unit * math.sqrt(float(np.sum(np.square(distance / unit))) / count) if math.isfinite(unit) else math.inf
    return {
        "max_abs": float(distance.max()),
        "mean_abs": float(distance.sum() / count),
        "rms": rms,
        "max_rel": float(np.where(differing, distance / larger, 0.0).max()),
        "max_ulp": float(np.where(differing, distance / ulp_of(larger, dtype), 0.0).max()),
        "scale": scale,
        "cosine": _cosine(expected, given),
        "snr_db": _snr(expected, rms, count),
        "histogram": _histogram(distance[finite], scale),
    }


def _histogram(distance: Array, scale: float) -> tuple[int, ...]:
    relative = distance[distance > 0] / (scale or 1.0)
    bounds = [10.0**power for power in range(-12, 0)]
    counts = np.bincount(np.searchsorted(bounds, relative, side="right"), minlength=len(bounds) + 1)
    return (distance.size - relative.size, *(int(count) for count in counts))


def smallest_tolerances(own: Array, given: Array) -> dict[str, Any]:
    """The explicit tolerances that would pass: those are measured from the reference's own output."""
    distance = np.abs(own - given)
    relative = np.where(distance > 0, distance / np.abs(own), 0.0).max()
    return {
        "smallest_atol": float(distance.max()),
        "smallest_rtol": float(np.nextafter(relative, math.inf)) if relative > 0 else 0.0,
    }


def _cosine(left: Array, right: Array) -> float:
    norms = [float(np.abs(side).max()) for side in (left, right)]
    if not all(norms):
        return 1.0 if not any(norms) else 0.0
    left, right = left.ravel() / norms[0], right.ravel() / norms[1]
    return float(np.real(np.vdot(left, right)) / (np.linalg.norm(left) * np.linalg.norm(right)))


def _snr(expected: Array, rms: float, count: int) -> float:
    if rms == 0:
        return math.inf
    scale = float(np.abs(expected).max())
    if scale == 0 or not math.isfinite(rms):
        return -math.inf
    signal = scale * math.sqrt(float(np.sum(np.square(np.abs(expected) / scale))) / count)
    return 20 * (math.log10(signal) - math.log10(rms))


def ulp_of(magnitude: Array, dtype: str) -> Array:
    """The unit in the last place of values of this size in a float dtype.

    Args:
        magnitude: absolute values, float64.
        dtype: canonical name of a float or complex dtype; integers have a unit of one.
    """
    entry = dtype_of({"complex64": "float32", "complex128": "float64"}.get(dtype, dtype))
    if not entry.is_floating:
        return np.ones_like(magnitude)
    import ml_dtypes

    info = ml_dtypes.finfo(entry.numpy)
    _, exponent = np.frexp(magnitude)
    lowest = max(int(info.minexp) - int(info.nmant), -1074)  # the subnormal step, also of zero
    exponent = np.where(magnitude > 0, exponent - 1 - int(info.nmant), lowest)
    with np.errstate(under="ignore"):
        return np.asarray(np.ldexp(1.0, np.maximum(exponent, lowest)))


def scale_of(values: Array) -> float:
    """The largest finite magnitude, 0.0 where there is none."""
    sizes = np.abs(widen(values))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
