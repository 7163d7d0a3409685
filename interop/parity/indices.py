"""Index outputs (argmax, top-k, argsort), judged by the values that they select: a tie may fall either way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.errors import InputError
from interop.parity.compare import OutputComparison
from interop.parity.tolerance import Allowance, default_allowance

__all__ = ["compare_indices"]

Array = npt.NDArray[Any]


def compare_indices(
    result: OutputComparison,
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    pairing: str | tuple[str, int],
    allowances: Mapping[str, Allowance],
) -> OutputComparison:
    """Judge an index output that is not equal to the reference's.

    Args:
        result: what the plain comparison said.
        reference: all outputs of the reference.
        candidate: all outputs of the candidate.
        pairing: the output with the values. A name: values of the indices' own shape are the selected ones (top-k,
            along the last axis), of another shape the ones to select from along their last axis. A pair
            ``(name, axis)``: always the ones to select from, along that axis.
        allowances: of all outputs; two values closer than this are a tie.

    Returns:
        The result with the verdict, ``rule`` ``"indices"``.

    Raises:
        InputError: the pairing names no output, or the shapes do not fit each other.
    """
    name, axis = (pairing, None) if isinstance(pairing, str) else pairing
    if name not in reference:
        raise InputError(f"indices pairs {result.name!r} with {name!r}; the outputs are {list(reference)}")
    left, right = reference[result.name], candidate[result.name]
    if left.dtype != right.dtype or left.shape != right.shape:
        return result
    values = reference[name].astype(np.float64)
    allowance = allowances.get(name) or default_allowance(reference[name])
    if axis is None and values.shape == left.shape:
        wrong = _wrong_selected(values, left, right, allowance)
    else:
        wrong = _wrong_source(values, left, right, -1 if axis is None else axis, allowance)
    count = int(np.count_nonzero(wrong))
    if not count:
        note = f"{result.mismatches} of {result.size} indices differ and select tied values of {name!r}"
        return replace(result, passed=True, reason="", rule="indices", note=note, mismatches=0)
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    shown = f"{left[where]} became {right[where]} at {where}"
    reason = f"{count} of {result.size} indices select other values of {name!r}, such as {shown}"
    return replace(result, reason=reason, rule="indices", mismatches=count, worst_index=where)


def _tied(left: Array, right: Array, allowance: Allowance) -> Array:
    with np.errstate(invalid="ignore"):  # infinities: equal ones are tied, the difference of others is not small
        close = np.abs(left - right) <= allowance.atol + allowance.rtol * np.where(np.isfinite(left), np.abs(left), 0)
    tied: Array = close | (left == right) | (np.isnan(left) & np.isnan(right))
    return tied


def _wrong_source(values: Array, left: Array, right: Array, axis: int, allowance: Allowance) -> Array:
    """Where two index arrays select different values along an axis of their source."""
    if values.ndim == left.ndim + 1:
        left, right = np.expand_dims(left, axis), np.expand_dims(right, axis)
        return np.squeeze(_wrong_source(values, left, right, axis, allowance), axis)
    if values.ndim != left.ndim:
        raise InputError(f"indices of shape {left.shape} cannot select along axis {axis} of values {values.shape}")
    outside = (right < 0) | (right >= values.shape[axis])
    picked = np.take_along_axis(values, np.where(outside, 0, right), axis)
    wrong: Array = outside | ~_tied(np.take_along_axis(values, left, axis), picked, allowance)
    return wrong


def _wrong_selected(values: Array, left: Array, right: Array, allowance: Allowance) -> Array:
    """Where the candidate's order of already selected values cannot come from ties alone.

    Along the last axis, positions with tied values form groups. Inside a group the indices may stand in any order. The
    last group may also hold others, since a tie with values that were not selected cannot be seen.
    """
    wrong = np.zeros(left.shape, bool)
    for row in np.ndindex(left.shape[:-1]):
        breaks = np.flatnonzero(~_tied(values[row][:-1], values[row][1:], allowance)) + 1
        groups = np.split(np.arange(left.shape[-1]), breaks)
        for position, group in enumerate(groups):
            chosen, expected = right[row][group], left[row][group]
            if position < len(groups) - 1:
                wrong[(*row, group)] = (chosen != expected) & ~np.isin(chosen, expected)
        unique = len(np.unique(right[row])) == len(right[row]) and bool((right[row] >= 0).all())
        wrong[row] |= (right[row] != left[row]) & (not unique)
    return wrong
