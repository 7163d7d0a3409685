"""How far an output may be off: the defaults by dtype, and what a caller asks for by name or wildcard."""

from __future__ import annotations

import difflib
import fnmatch
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.errors import InputError
from interop.parity.figures import scale_of, ulp_of

__all__ = ["RELATIVE_TOLERANCE", "Allowance", "Tolerance", "default_allowance", "resolve_tolerance"]

Array = npt.NDArray[Any]
Tolerance = float | Mapping[str, float] | None
"""One number for every output, or one a name or wildcard pattern, or None for the default."""

RELATIVE_TOLERANCE: dict[str, float] = {
    "float64": 1e-11,
    "float32": 2e-5,
    "float16": 1e-2,
    "bfloat16": 6e-2,
    "complex128": 1e-11,
    "complex64": 2e-5,
    "complex32": 1e-2,
}
"""Default ``rtol``, of each value and of the output's scale; other (8-bit and smaller) floats get one ulp.

Correct float32 exports of deep networks differ by 1e-6 to 1e-5 of the output's scale.
"""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How far one output may be off: ``|reference - candidate| <= atol + rtol * |reference|``.

    Attributes:
        atol: absolute part.
        rtol: part relative to each reference value.
        rms: largest allowed root mean square of the difference, or None where it is not judged.
        rule: ``"tolerance"`` or ``"noise"``: where the numbers come from.
        note: how they were found, for the report.
    """

    atol: float
    rtol: float = 0.0
    rms: float | None = None
    rule: str = "tolerance"
    note: str = ""


def default_allowance(reference: Array) -> Allowance:
    """The allowance by dtype and scale that judges where nothing better is known."""
    dtype = dtype_of(reference.dtype)
    rtol = RELATIVE_TOLERANCE.get(dtype.name) or float(ulp_of(np.ones(()), dtype.name))
    return Allowance(rtol * scale_of(reference), rtol, note=f"{dtype.name} default: {rtol:g} of value and of scale")


def resolve_tolerance(atol: Tolerance, rtol: Tolerance, names: list[str]) -> dict[str, Allowance]:
    """The allowances that a caller asked for; outputs that nobody spoke of are missing.

    Raises:
        InputError: a tolerance is negative or not a number, or a pattern fits no output.
    """
    absolute, relative = _by_name(atol, names, "atol"), _by_name(rtol, names, "rtol")
    found = {}
    for name in names:
        if name in absolute or name in relative:
            found[name] = Allowance(absolute.get(name, 0.0), relative.get(name, 0.0), note="given by the caller")
    return found


def _by_name(tolerance: Tolerance, names: list[str], what: str) -> dict[str, float]:
    """The value for each output: the exact name first, else the first pattern that fits."""
    if tolerance is None:
        return {}
    patterns = tolerance if isinstance(tolerance, Mapping) else {"*": tolerance}
    for pattern, value in patterns.items():
        if not isinstance(value, numbers.Real) or not value >= 0:
            raise InputError(f"{what} of {pattern!r} must be a number that is not negative, got {value!r}")
        if isinstance(tolerance, Mapping) and not any(_fits(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"{what} names {pattern!r}, which fits none of the outputs {names}{hint}")
    found = {}
    for name in names:
        fitting = [pattern for pattern in patterns if _fits(name, pattern)]
        if fitting:
            found[name] = float(patterns[name if name in patterns else fitting[0]])
    return found


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)
