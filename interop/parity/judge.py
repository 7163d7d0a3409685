"""Run the reference and its candidates on one case after the other, and judge what comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from interop.errors import InputError
from interop.parity.compare import Comparison, compare_all, summarize
from interop.parity.inputs import Case
from interop.parity.noise import Noise, allowances_of, measure, wavering
from interop.parity.report import CaseResult
from interop.parity.saved import Recorder, SavedRun
from interop.parity.tolerance import Tolerance, resolve_tolerance
from interop.parity.witness import RuntimeWitness, StructureError, Witness, naming_of
from interop.signature import Signature

__all__ = ["Candidate", "End", "Expected", "Rules", "Rounds", "judge", "run_rounds"]


@dataclass(frozen=True)
class Rules:
    """How differences are judged."""

    atol: Tolerance
    rtol: Tolerance
    indices: Mapping[str, Any]
    seed: int
    recorder: Recorder | None = None


@dataclass(frozen=True)
class Candidate:
    """A model that is judged."""

    label: str
    witness: Witness
    model: Any = None


@dataclass(frozen=True)
class End:
    """A run whose inputs are kept: the first one of a candidate that failed, or its first one."""

    candidate: Candidate
    case: Case
    expected: Expected
    result: CaseResult


@dataclass
class Expected:
    """What the reference gives for one case under one naming.

    Attributes:
        naming: the signature whose names count.
        tensors: the inputs as the reference got them.
        outputs: the reference's.
        noise: its noise, once that was measured.
    """

    naming: Signature | None
    tensors: Mapping[str, Any]
    outputs: dict[str, Any]
    noise: Noise | None = field(default=None)


@dataclass(frozen=True)
class Rounds:
    """What running all cases gave.

    Attributes:
        results: one a candidate and case.
        skipped: ``{case: reason}`` of made inputs that the reference did not take.
        ends: one run of each candidate: its first one that failed, or its first one.
    """

    results: tuple[CaseResult, ...]
    skipped: dict[str, str]
    ends: tuple[End, ...]


def run_rounds(
    reference: Witness, judged: Sequence[Candidate], cases: Iterable[Case], rules: Rules, *, given: bool
) -> Rounds:
    """Judge every candidate on every case.

    Args:
        reference: the model that is right.
        judged: the candidates.
        cases: the inputs.
        rules: how differences are judged.
        given: whether the inputs are the caller's: then the reference has to take them.

    Raises:
        InputError: the reference fails on given inputs.
    """
    results: list[CaseResult] = []
    ends: dict[str, End] = {}
    skipped: dict[str, str] = {}
    for case in cases:
        known: list[Expected] = []
        for candidate in judged:
            try:
                expected = _expect(known, reference, candidate, case)
            except StructureError as error:
                results.append(CaseResult(candidate.label, case.name, False, str(error)))
                continue
            except Exception as error:  # whatever the reference raises, these inputs are none of its inputs
                if given:
                    raise InputError(f"the reference fails on inputs {case.name!r}: {_say(error)}") from error
                skipped[case.name] = f"the reference fails: {_say(error)}"
                break
            result = judge(candidate, case, expected, reference, rules)
            results.append(result)
            if candidate.label not in ends or (ends[candidate.label].result.passed and not result.passed):
                ends[candidate.label] = End(candidate, case, expected, result)
    return Rounds(tuple(results), skipped, tuple(ends.values()))


def _expect(known: list[Expected], reference: Witness, candidate: Candidate, case: Case) -> Expected:
    """The reference's outputs under the candidate's names; candidates with the same names share one run.

    Raises:
        StructureError: the candidate does not take these inputs.
    """
    if candidate.witness in case.misfits:
        raise StructureError(f"it does not take these inputs: {case.misfits[candidate.witness]}")
    naming, tensors = naming_of(reference, candidate.witness), case.tensors_of(candidate.witness)
    if naming is not None and naming.inputs and set(naming.input_names) != set(tensors):
        raise StructureError(f"it takes the inputs {list(naming.input_names)}, and these are {list(tensors)}")
    for expected in known:
        if isinstance(reference, RuntimeWitness) or (
            expected.naming == naming and set(expected.tensors) == set(tensors)
        ):
            return expected
    tensors = case.tensors_of(reference) if isinstance(reference, RuntimeWitness) else tensors
    expected = Expected(naming, tensors, reference.run(tensors, naming))
    known.append(expected)
    return expected


def judge(candidate: Candidate, case: Case, expected: Expected, reference: Witness, rules: Rules) -> CaseResult:
    """Run a candidate on a case and judge its outputs; what it raises is a failed result."""
    allowances = resolve_tolerance(rules.atol, rules.rtol, list(expected.outputs))
    try:
        outputs = candidate.witness.run(case.tensors_of(candidate.witness), expected.naming)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is a failed candidate, never a passed one
        if rules.recorder is not None:
            rules.recorder.add(SavedRun(candidate.label, case.name, case.tensors, expected.outputs, error=_say(error)))
        return CaseResult(candidate.label, case.name, False, f"it raised {_say(error)}", error=_say(error))
    noise: Noise | None = None
    truths: dict[str, Any] = {}
    if set(allowances) != set(expected.outputs):
        noise = expected.noise = expected.noise or measure(reference, expected.tensors, expected.naming, rules.seed)
        noisy, truths = allowances_of(noise, expected.outputs)
        truths = {name: truth for name, truth in truths.items() if name not in allowances}
        allowances = noisy | allowances
    if rules.recorder is not None:
        run = SavedRun(candidate.label, case.name, case.tensors, expected.outputs, outputs, truths, allowances)
        rules.recorder.add(run)
    comparison = compare_all(expected.outputs, outputs, allowances, rules.indices, truths)
    if noise is not None and not comparison.passed:
        comparison = _excuse_wavering(comparison, noise, expected.outputs, outputs)
    return CaseResult(candidate.label, case.name, comparison.passed, comparison.reason, dict(comparison.outputs))


def _excuse_wavering(
    comparison: Comparison, noise: Noise, reference: Mapping[str, Any], outputs: Mapping[str, Any]
) -> Comparison:
    """Pass discrete outputs that differ only where the reference's own rounding changes them the same way."""
    judged = dict(comparison.outputs)
    for name, output in comparison.outputs.items():
        if not output.passed and output.rule == "exact" and wavering(noise, name, reference[name], outputs[name]):
            note = f"{output.mismatches} of {output.size} values differ, where the reference itself wavers"
            judged[name] = replace(output, passed=True, reason="", rule="noise", note=note, mismatches=0)
    return summarize(judged, list(reference), list(outputs))


def _say(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
