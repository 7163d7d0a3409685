"""Are two sets of outputs the same? Numbers only: nothing here runs a model, and nothing raises on a difference.

The order of the verdict, per output: dtype, shape, NaN positions, infinity positions with their sign, values. Before
that, over all outputs: count and names. Integers, bools and strings have to be equal. Floats are compared in float64:
an element passes while ``|reference - candidate| <= atol + rtol * |reference|``.

Where no tolerance is given, ``rtol`` comes from ``RELATIVE_TOLERANCE`` (by dtype) and ``atol`` is ``rtol`` times the
output's own scale, its largest finite ``|reference|``. An element near zero of a large-scaled output is thus judged
against the scale that the arithmetic worked at, and an output that is tiny as a whole is still judged tightly. Where
only one of ``atol`` and ``rtol`` is given, the other is zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.parity.figures import as_numpy, magnitudes, smallest_tolerances, widen
from interop.parity.tolerance import Allowance, Tolerance, default_allowance, resolve_tolerance

__all__ = ["Comparison", "OutputComparison", "compare", "compare_all", "compare_output", "summarize"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """All figures of one output.

    Figures of magnitude cover the elements that are finite on both sides. "Reference" means its float64 answer where
    the rule is ``"noise"`` and there is one, and its own output otherwise and always in ``smallest_atol`` and
    ``smallest_rtol``.

    Attributes:
        name: the output's name.
        passed: the verdict.
        reason: why it failed, one line; empty where it passed.
        rule: ``"exact"``, ``"tolerance"``, ``"noise"`` or ``"indices"``: what the values were judged by.
        note: how the allowance was found.
        dtype: canonical dtype of the candidate's output, with the expected one in ``reference_dtype``.
        reference_dtype: canonical dtype of the reference's output.
        shape: shape of the candidate's output.
        reference_shape: shape of the reference's output.
        max_abs: largest ``|reference - candidate|``.
        mean_abs: mean of it.
        rms: root mean square of it.
        max_rel: largest difference relative to the larger of the two values, so 2 at most.
        max_ulp: largest difference in units in the last place of the larger of the two values.
        scale: largest finite ``|reference|``.
        cosine: cosine similarity, 1.0 where both are zero.
        snr_db: signal-to-noise ratio in decibels, infinity where equal.
        worst_index: where the difference is furthest beyond what is allowed, or the first element that differs.
        worst_values: reference and candidate there, as text.
        mismatches: elements beyond what is allowed.
        size: elements compared.
        allowed: the absolute difference allowed at the worst element.
        smallest_atol: the smallest ``atol`` that would pass with ``rtol=0``.
        smallest_rtol: the smallest ``rtol`` that would pass with ``atol=0``; infinity where a zero is missed.
        histogram: elements by the size of their difference, see ``interop.parity.figures.DECADES``; empty for equality.
    """

    name: str
    passed: bool
    reason: str = ""
    rule: str = "exact"
    note: str = ""
    dtype: str = ""
    reference_dtype: str = ""
    shape: tuple[int, ...] = ()
    reference_shape: tuple[int, ...] = ()
    max_abs: float = 0.0
    mean_abs: float = 0.0
    rms: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    scale: float = 0.0
    cosine: float = 1.0
    snr_db: float = math.inf
    worst_index: tuple[int, ...] = ()
    worst_values: tuple[str, str] = ("", "")
    mismatches: int = 0
    size: int = 0
    allowed: float = 0.0
    smallest_atol: float = 0.0
    smallest_rtol: float = 0.0
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The outputs of one run of a candidate against those of the reference.

    Attributes:
        passed: True if every output passed and the names are the same on both sides.
        reason: why not, one line.
        outputs: the figures by name, for every name that both sides have.
    """

    passed: bool
    reason: str
    outputs: dict[str, OutputComparison] = field(default_factory=dict)


def compare(
    reference: Mapping[str, Any],
    candidate: Mapping[str, Any],
    *,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    indices: Mapping[str, Any] | None = None,
) -> Comparison:
    """Compare outputs that are already computed.

    Args:
        reference: ``{output name: tensor}`` of any framework; the expected values.
        candidate: the same of the other model.
        atol: allowed absolute difference, for all outputs or ``{name or wildcard: value}``.
        rtol: allowed difference relative to each reference value; see the module for the defaults.
        indices: ``{index output: values output}``: outputs such as argmax or top-k positions, judged by the values that
            they select, so that ties may fall either way (``interop.parity.indices``).

    Returns:
        The figures; a difference never raises.

    Raises:
        InputError: a tolerance or an index pairing names no output.

    Example:
        >>> compare({"y": np.ones(2)}, {"y": np.ones(2)}).passed
        True
    """
    reference = {name: as_numpy(value) for name, value in reference.items()}
    candidate = {name: as_numpy(value) for name, value in candidate.items()}
    allowances = resolve_tolerance(atol, rtol, list(reference))
    return compare_all(reference, candidate, allowances, indices or {})


def compare_all(
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    allowances: Mapping[str, Allowance],
    indices: Mapping[str, Any],
    truths: Mapping[str, Array] | None = None,
) -> Comparison:
    """``compare`` for NumPy arrays with the allowance of every output already known.

    Args:
        reference: the expected outputs; dtypes, shapes, and NaN and infinity positions are theirs.
        candidate: the outputs to judge.
        allowances: what each output may be off by; the dtype's default where one is missing.
        indices: see ``compare``.
        truths: values to measure the distance from, where they are better known than ``reference`` (float64).
    """
    from interop.parity.indices import compare_indices

    outputs = {}
    for name in (name for name in reference if name in candidate):
        truth = (truths or {}).get(name)
        result = compare_output(name, reference[name], candidate[name], allowances.get(name), truth)
        if name in indices and not result.passed:
            result = compare_indices(result, reference, candidate, indices[name], allowances)
        outputs[name] = result
    return summarize(outputs, list(reference), list(candidate))


def summarize(outputs: dict[str, OutputComparison], expected: list[str], given: list[str]) -> Comparison:
    """The verdict over judged outputs and the names on both sides."""
    reason = _name_difference(expected, given)
    failed = [result for result in outputs.values() if not result.passed]
    if not reason and failed:
        reason = f"output {failed[0].name!r}: {failed[0].reason}"
    return Comparison(not reason, reason, outputs)


def _name_difference(expected: list[str], given: list[str]) -> str:
    missing = [name for name in expected if name not in given]
    extra = [name for name in given if name not in expected]
    if not missing and not extra:
        return "" if expected else "there are no outputs to compare"
    count = "" if len(expected) == len(given) else f"{len(given)} outputs instead of {len(expected)}: "
    parts = [f"missing {missing}"] if missing else []
    parts += [f"unexpected {extra}"] if extra else []
    return f"{count}output names differ: {', '.join(parts)}"


def compare_output(
    name: str, reference: Array, candidate: Array, allowance: Allowance | None = None, truth: Array | None = None
) -> OutputComparison:
    """Judge one output; see ``compare_all`` for the arguments."""
    expected, given = dtype_of(reference.dtype), dtype_of(candidate.dtype)
    result = OutputComparison(
        name,
        True,
        dtype=given.name,
        reference_dtype=expected.name,
        shape=candidate.shape,
        reference_shape=reference.shape,
        size=candidate.size,
    )
    if reference.shape == candidate.shape:
        result = _compare_values(result, reference, candidate, allowance, truth)
    else:
        result = replace(result, passed=False, reason=f"shape {candidate.shape} instead of {reference.shape}")
    if expected.name != given.name:
        values = "the values agree" if result.passed else result.reason
        result = replace(result, passed=False, reason=f"dtype {given.name} instead of {expected.name} ({values})")
    return result


def _compare_values(
    result: OutputComparison, reference: Array, candidate: Array, allowance: Allowance | None, truth: Array | None
) -> OutputComparison:
    kinds = {dtype_of(reference.dtype).kind, dtype_of(candidate.dtype).kind}
    if kinds & {"string"} or not kinds & {"float", "complex"}:
        return _compare_exact(result, reference, candidate)
    allowance = allowance or default_allowance(reference)
    wide_reference, wide_candidate = widen(reference), widen(candidate)
    wide_truth = wide_reference if truth is None else widen(truth)
    figured = _with_figures(result, wide_reference, wide_truth, wide_candidate, allowance)
    return _check_masks(figured, wide_reference, wide_candidate) or figured


def _check_masks(result: OutputComparison, reference: Array, candidate: Array) -> OutputComparison | None:
    """The result where NaN or infinity stand in different places, else None."""
    parts = [(np.real(reference), np.real(candidate))]
    if np.iscomplexobj(reference) or np.iscomplexobj(candidate):
        parts.append((np.imag(reference), np.imag(candidate)))
    for what, mask in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
        expected = np.logical_or.reduce([mask(left) for left, _ in parts])
        differs = np.logical_or.reduce([mask(left) != mask(right) for left, right in parts])
        count = int(np.count_nonzero(differs))
        if count:
            index = _first(differs)
            side = "reference" if expected[index] else "candidate"
            reason = f"{what} on one side only at {count} of {differs.size} elements, first in the {side} at {index}"
            return _fail_at(result, reason, count, index, reference, candidate)
    return None


def _fail_at(
    result: OutputComparison, reason: str, count: int, index: tuple[int, ...], reference: Array, candidate: Array
) -> OutputComparison:
    values = (str(reference[index]), str(candidate[index]))
    return replace(result, passed=False, reason=reason, mismatches=count, worst_index=index, worst_values=values)


def _first(mask: Array) -> tuple[int, ...]:
    return _position(int(np.argmax(mask)), mask.shape)


def _position(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.unravel_index(flat, shape))


def _compare_exact(result: OutputComparison, reference: Array, candidate: Array) -> OutputComparison:
    differs = np.asarray(_unequal(reference, candidate), bool)
    result = replace(result, rule="exact")
    count = int(np.count_nonzero(differs))
    if not count:
        return result
    distance = _integer_distance(reference, candidate)
    index = _first(differs) if distance is None else _position(int(np.argmax(distance)), distance.shape)
    shown = f"{reference[index]!s} became {candidate[index]!s}"
    reason = f"{count} of {differs.size} values differ, such as {shown} at {index}"
    result = _fail_at(result, reason, count, index, reference, candidate)
    if distance is None:
        return replace(result, max_abs=math.nan, smallest_atol=math.inf, smallest_rtol=math.inf, snr_db=-math.inf)
    wide = widen(reference)
    figured = _with_figures(result, wide, wide, widen(candidate), Allowance(0.0))
    return replace(result, **{name: getattr(figured, name) for name in _EXACT_FIGURES}, max_abs=float(distance.max()))


_EXACT_FIGURES = ("mean_abs", "rms", "max_rel", "scale", "cosine", "snr_db", "smallest_atol", "smallest_rtol")


def _unequal(reference: Array, candidate: Array) -> Any:
    """Elementwise ``!=`` that no promotion can blur (NumPy compares int64 with uint64 exactly, other pairs too)."""
    left, right = _plain(reference), _plain(candidate)
    if left.dtype == object or right.dtype == object:
        left, right = left.astype(object), right.astype(object)
    return left != right


def _plain(values: Array) -> Array:
    dtype = dtype_of(values.dtype)
    if dtype.kind == "string":  # some runtimes give bytes, some text
        texts = [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in values.ravel()]
        return np.array([*texts, None], dtype=object)[:-1].reshape(values.shape)
    return values.astype(np.int64) if dtype.extension and dtype.kind in ("int", "uint") else values


def _integer_distance(reference: Array, candidate: Array) -> Array | None:
    """``|reference - candidate|`` of integers as uint64, where 2**62 and -2**62 are 2**63 apart; None for strings."""
    left, right = _plain(reference), _plain(candidate)
    if left.dtype.kind not in "biu" or right.dtype.kind not in "biu":
        return None
    low, high = (
        left.astype(np.uint64),
        right.astype(np.uint64),
    )  # two's complement: the difference is right modulo 2**64
    return np.where(left > right, low - high, high - low)


def _with_figures(
    result: OutputComparison, reference: Array, truth: Array, candidate: Array, allowance: Allowance
) -> OutputComparison:
    """Fill in the figures and the verdict over the elements that are finite everywhere."""
    finite = np.isfinite(reference) & np.isfinite(candidate) & np.isfinite(truth)
    result = replace(result, rule=allowance.rule, note=allowance.note)
    if not finite.any():
        return replace(result, allowed=allowance.atol)
    own, expected, given = (np.where(finite, side, 0) for side in (reference, truth, candidate))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        distance, size = np.abs(expected - given), np.abs(expected)
        allowed = allowance.atol + allowance.rtol * size
        figures = magnitudes(expected, given, finite, result.reference_dtype) | smallest_tolerances(own, given)
    index = _worst(distance, allowed)
    figured = replace(
        result,
        allowed=float(allowed[index]),
        worst_index=index,
        worst_values=(str(expected[index]), str(given[index])),
        mismatches=int(np.count_nonzero((distance > allowed) & finite)),
        **figures,
    )
    return _judge(figured, allowance)


def _judge(result: OutputComparison, allowance: Allowance) -> OutputComparison:
    if result.mismatches:
        left, right = result.worst_values
        off = f"{left} became {right} at {result.worst_index}, {result.allowed:.3g} allowed"
        reason = f"{result.mismatches} of {result.size} values differ by up to {result.max_abs:.3g}, such as {off}"
        return replace(result, passed=False, reason=reason)
    if allowance.rms is not None and result.rms > allowance.rms:
        reason = f"the differences are {result.rms:.3g} in root mean square, {allowance.rms:.3g} allowed"
        return replace(result, passed=False, reason=reason, mismatches=result.size)
    return result


def _worst(distance: Array, allowed: Array) -> tuple[int, ...]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = np.where(distance > 0, distance / allowed, 0.0)
    return _position(int(np.argmax(np.nan_to_num(excess, nan=0.0, posinf=np.inf))), distance.shape)
