"""Run a reference and its candidates on the same inputs and judge every output."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from interop.errors import InputError, InteropError
from interop.parity.blame import RELOADED, blame, blame_tensorflow, more_witnesses
from interop.parity.cases import Suite, given_cases, made_cases
from interop.parity.compare import Comparison, compare_all, summarize
from interop.parity.inputs import QUICK, Case
from interop.parity.noise import MODEL_ERRORS, Noise, allowances_of, measure, wavering
from interop.parity.report import CaseResult, ParityReport
from interop.parity.saved import Recorder, SavedRun
from interop.parity.tolerance import Tolerance, resolve_tolerance
from interop.parity.witness import (
    ModuleWitness,
    RuntimeWitness,
    StructureError,
    Witness,
    keep_rng,
    naming_of,
    witness_of,
)
from interop.signature import Signature

__all__ = ["check"]


def check(
    reference: Any,
    *candidates: Any,
    inputs: Any = None,
    names: Sequence[str] | None = None,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    indices: Mapping[str, Any] | None = None,
    families: Sequence[str] = QUICK,
    sizes: Sequence[Mapping[str, int]] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    seed: int = 0,
    save: str | os.PathLike[str] | None = None,
    witnesses: bool | None = None,
    locate: bool = True,
) -> ParityReport:
    """Decide whether candidates compute the same function as a reference.

    A difference is allowed as far as float arithmetic explains it, measured on the reference itself
    (``interop.parity.noise``), unless ``atol`` or ``rtol`` say otherwise. No argument is changed: models get copies of
    the inputs, a module runs in evaluation mode and gets its modes back, and the random state stays.

    Args:
        reference: what is right: an ``nn.Module``, or anything that ``interop.load`` takes.
        *candidates: what is judged, each anything that ``interop.load`` takes.
        inputs: one ``{name: tensor}``, one tuple of positional arguments, one tensor, or an iterable of such. Without
            it the reference's ``example_inputs()`` are used, where it has them, and inputs made from the signature.
        names: labels of the candidates in the report.
        atol: allowed absolute difference, one number or ``{output name or wildcard: number}``.
        rtol: allowed difference relative to each reference value, likewise.
        indices: ``{index output: values output}``; see ``interop.parity.compare``.
        families: kinds of made inputs, out of ``interop.parity.inputs.FAMILIES``.
        sizes: sizes of the symbolic dims for made inputs, one dict a size; by default three.
        ranges: ``{input name or wildcard: (low, high)}`` of made integer inputs.
        seed: of made inputs and of the noise.
        save: a new folder for inputs, outputs and allowances, which ``interop.parity.replay`` judges again.
        witnesses: run a candidate that fails by other ways too (other optimisation, other runtimes), to say who stands
            alone. True does so for every candidate on the first inputs, even if it passes; False never.
        locate: find the first operator that differs (``interop.parity.locate``), where a candidate fails on values.

    Returns:
        The report. A difference, or an exception inside a candidate, is a failed result in it.

    Raises:
        InputError: no candidate; or no inputs given and none can be made; or the reference refuses the given inputs.
        ModelFileError: a file is missing or is not a model.

    Example:
        >>> interop.check(model, "model.onnx", inputs=(torch.rand(2, 3),)).raise_for_failure()
    """
    if not candidates:
        raise InputError("check needs at least one candidate: check(reference, candidate, ...)")
    with keep_rng(seed):
        witness = witness_of(reference)
        judged = _label([witness_of(candidate) for candidate in candidates], candidates, names)
        recorder = None if save is None else Recorder(Path(save))
        rules = _Rules(atol, rtol, indices or {}, seed, recorder)
        others, given = [candidate.witness for candidate in judged], inputs is not None
        suite = Suite(families, sizes, ranges)
        cases = given_cases(inputs, witness, others) if given else made_cases(reference, witness, others, suite, seed)
        report, ends = _run(_label_reference(reference, witness), witness, judged, cases, rules, given)
        if locate:
            report = _locate(report, reference, witness, ends, seed)
        if witnesses is not False:
            report = _ask_witnesses(report, witness, ends, rules, everyone=bool(witnesses))
    if recorder is not None:
        recorder.close(report)
    return report


@dataclass(frozen=True)
class _Rules:
    """How differences are judged."""

    atol: Tolerance
    rtol: Tolerance
    indices: Mapping[str, Any]
    seed: int
    recorder: Recorder | None = None


@dataclass(frozen=True)
class _Candidate:
    label: str
    witness: Witness
    model: Any = None


@dataclass(frozen=True)
class _End:
    """A run whose inputs are kept: the first one of a candidate that failed, or its first one."""

    candidate: _Candidate
    case: Case
    expected: _Expected
    result: CaseResult


@dataclass
class _Expected:
    """What the reference gives for one case under one naming."""

    naming: Signature | None
    outputs: dict[str, Any]
    noise: Noise | None = field(default=None)


def _run(
    label: str, reference: Witness, judged: Sequence[_Candidate], cases: Iterable[Case], rules: _Rules, given: bool
) -> tuple[ParityReport, list[_End]]:
    results: list[CaseResult] = []
    ends: dict[str, _End] = {}
    skipped: dict[str, str] = {}
    for case in cases:
        expected: list[_Expected] = []
        for candidate in judged:
            try:
                found = _expect(expected, reference, candidate, case)
            except StructureError as error:
                results.append(CaseResult(candidate.label, case.name, False, str(error)))
                continue
            except Exception as error:  # whatever the reference raises, these inputs are none of its inputs
                if given:
                    raise InputError(f"the reference fails on inputs {case.name!r}: {_say(error)}") from error
                skipped[case.name] = f"the reference fails: {_say(error)}"
                break
            results.append(_judge(candidate, case, found, reference, rules))
            if candidate.label not in ends or (ends[candidate.label].result.passed and not results[-1].passed):
                ends[candidate.label] = _End(candidate, case, found, results[-1])
    labels = tuple(candidate.label for candidate in judged)
    report = ParityReport(label, labels, tuple(results), skipped, rules.seed, _versions())
    return report, list(ends.values())


def _locate(report: ParityReport, model: Any, reference: Witness, ends: Sequence[_End], seed: int) -> ParityReport:
    """Add the first difference of the first failed candidate whose inner values can be seen."""
    from interop.parity.graph import open_graph
    from interop.parity.isolate import Isolated
    from interop.parity.locate import Search, find_difference

    for end in ends:
        # What crashed, or was to stay in a process of its own, is not opened in this one.
        if end.result.passed or end.result.error or isinstance(end.candidate.model, Isolated):
            continue
        graph = open_graph(end.candidate.model)
        if graph is None:
            continue
        search = Search(
            model, reference, graph, end.expected.naming, end.case.tensors, end.candidate.label, end.case.name, seed
        )
        with contextlib.suppress(InteropError, *MODEL_ERRORS):  # a verdict is not lost because its cause is not found
            found = find_difference(search)
            if found is not None:
                return replace(report, first_difference=found)
    return report


def _ask_witnesses(
    report: ParityReport, reference: Witness, ends: Sequence[_End], rules: _Rules, *, everyone: bool
) -> ParityReport:
    """Judge failed candidates by other ways too, and say who stands alone."""
    results, sentence, quiet = list[CaseResult](), "", replace(rules, recorder=None)
    for end in ends:
        if end.result.passed and not everyone:
            continue
        judged: dict[str, CaseResult] = {}
        with contextlib.suppress(InteropError, *MODEL_ERRORS), more_witnesses(end.candidate.model) as found:
            asked = {name: _Candidate(f"{end.candidate.label}: {name}", witness) for name, witness in found.items()}
            judged = {name: _judge(one, end.case, end.expected, reference, quiet) for name, one in asked.items()}
        results += judged.values()
        verdicts = {name: result.passed for name, result in judged.items() if not result.error}
        if not end.result.passed and not sentence:
            sentence = _blame(end, verdicts, [other for other in ends if other is not end])
    return replace(report, witnesses=tuple(results), blame=sentence)


def _blame(end: _End, verdicts: Mapping[str, bool], others: Sequence[_End]) -> str:
    if end.candidate.witness.name != "tensorflow":
        return blame(end.candidate.label, verdicts)
    runs = [(other.candidate.witness.name, other.result.passed) for other in others]
    return blame_tensorflow(end.candidate.label, runs, verdicts.get(RELOADED))


def _expect(known: list[_Expected], reference: Witness, candidate: _Candidate, case: Case) -> _Expected:
    """The reference's outputs under the candidate's names; candidates with the same names share one run."""
    naming = naming_of(reference, candidate.witness)
    for expected in known:
        if isinstance(reference, RuntimeWitness) or expected.naming == naming:
            return expected
    expected = _Expected(naming, reference.run(case.tensors, naming))
    known.append(expected)
    return expected


def _judge(candidate: _Candidate, case: Case, expected: _Expected, reference: Witness, rules: _Rules) -> CaseResult:
    allowances = resolve_tolerance(rules.atol, rules.rtol, list(expected.outputs))
    try:
        outputs = candidate.witness.run(case.tensors, expected.naming)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is a failed candidate, never a passed one
        if rules.recorder is not None:
            rules.recorder.add(SavedRun(candidate.label, case.name, case.tensors, expected.outputs, error=_say(error)))
        return CaseResult(candidate.label, case.name, False, f"it raised {_say(error)}", error=_say(error))
    noise: Noise | None = None
    truths: dict[str, Any] = {}
    if set(allowances) != set(expected.outputs):
        noise = expected.noise = expected.noise or measure(reference, case.tensors, expected.naming, rules.seed)
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


def _label(witnesses: Sequence[Witness], models: Sequence[Any], names: Sequence[str] | None) -> list[_Candidate]:
    if names is not None and len(names) != len(witnesses):
        raise InputError(f"{len(names)} names for {len(witnesses)} candidates")
    labels = list(names) if names is not None else [_label_of(model, w) for model, w in zip(models, witnesses)]
    unique = [label if labels.count(label) == 1 else f"{label} #{n + 1}" for n, label in enumerate(labels)]
    return [_Candidate(*entry) for entry in zip(unique, witnesses, models)]


def _label_of(model: Any, witness: Witness) -> str:
    path = getattr(model, "path", model)
    return Path(path).name if isinstance(path, (str, os.PathLike)) else witness.name


def _label_reference(reference: Any, witness: Witness) -> str:
    if isinstance(witness, ModuleWitness) and not isinstance(reference, (str, os.PathLike)):
        return type(reference).__name__
    return _label_of(reference, witness)


def _versions() -> dict[str, str]:
    found = {}
    for package in ("numpy", "torch", "onnx", "onnxruntime", "tensorflow", "tensorflow-cpu", "jax", "ai-edge-litert"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
