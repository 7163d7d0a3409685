"""Run a reference and its candidates on the same inputs and judge every output."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from interop.errors import InputError, InteropError
from interop.parity.blame import RELOADED, blame, blame_tensorflow, more_witnesses
from interop.parity.cases import Suite, given_cases, made_cases
from interop.parity.inputs import QUICK, Case
from interop.parity.judge import Candidate, End, Rules, judge, run_rounds
from interop.parity.noise import MODEL_ERRORS
from interop.parity.report import CaseResult, ParityReport
from interop.parity.saved import Recorder
from interop.parity.tolerance import Tolerance
from interop.parity.witness import ModuleWitness, RuntimeWitness, Witness, keep_rng, witness_of

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
    isolate: bool = False,
    timeout: float | None = None,
) -> ParityReport:
    """Decide whether candidates compute the same function as a reference.

    A difference is allowed as far as float arithmetic explains it (``interop.parity.noise``), unless ``atol`` or ``rtol``
    say otherwise. No argument is changed: models get copies, a module gets its modes back, the random state stays.

    Args:
        reference: what is right: an ``nn.Module``, or anything that ``interop.load`` takes.
        *candidates: what is judged, each anything that ``interop.load`` takes.
        inputs: one ``{name: tensor}``, tuple of positional arguments or tensor, or an iterable of such; by default the
            reference's ``example_inputs()`` and inputs made from the signature.
        names: labels of the candidates in the report.
        atol: allowed absolute difference, one number or ``{output name or wildcard: number}``.
        rtol: allowed difference relative to each reference value, likewise.
        indices: ``{index output: values output}``; see ``interop.parity.compare``.
        families: kinds of made inputs, out of ``interop.parity.inputs.FAMILIES``.
        sizes: sizes of the symbolic dims for made inputs, one dict a size; by default three.
        ranges: ``{input name or wildcard: (low, high)}`` of made integer inputs.
        seed: of made inputs and of the noise.
        save: a new folder for what ``interop.parity.replay`` judges again.
        witnesses: run a failed candidate by other ways too, to say who stands alone; True every candidate, False none.
        locate: find the first operator that differs (``interop.parity.locate``), or say why that is not possible.
        isolate: run each candidate in a process of its own, where a crash is a failed candidate.
        timeout: seconds for one run of an isolated candidate, 300 by default.

    Returns:
        The report; a difference, or an exception inside a candidate, is a failed result in it.

    Raises:
        InputError: no candidate, or none that can be isolated; no inputs, or such that the reference refuses.
        ModelFileError: a file is missing or is not a model.

    Example:
        >>> interop.check(model, "model.onnx", inputs=(torch.rand(2, 3),)).raise_for_failure()
    """
    if not candidates:
        raise InputError("check needs at least one candidate: check(reference, candidate, ...)")
    rules = Rules(atol, rtol, indices or {}, seed, None if save is None or isolate else Recorder(Path(save)))
    suite = Suite(families, sizes, ranges)
    if isolate or timeout is not None:
        more = {"names": names, "inputs": inputs, "save": save, "witnesses": witnesses, "locate": locate}
        return _check_isolated((reference, *candidates), more, rules, suite, isolate, timeout)
    return _check((reference, *candidates), inputs, names, rules, suite, (locate, witnesses))


def _check(
    models: Sequence[Any],
    inputs: Any,
    names: Sequence[str] | None,
    rules: Rules,
    suite: Suite,
    further: tuple[bool, bool | None],
) -> ParityReport:
    """A check in this process.

    Args:
        models: the reference and the candidates.
        inputs: see ``check``.
        names: see ``check``.
        rules: how differences are judged.
        suite: the inputs to make, where none are given.
        further: whether to locate, and whether to ask more witnesses.
    """
    (model, *candidates), (locate, witnesses) = models, further
    with keep_rng(rules.seed):
        reference = witness_of(model)
        judged = _label([witness_of(candidate) for candidate in candidates], candidates, names)
        others, given = [candidate.witness for candidate in judged], inputs is not None
        made = (
            given_cases(inputs, reference, others) if given else made_cases(model, reference, others, suite, rules.seed)
        )
        rounds = run_rounds(reference, judged, made, rules, given=given)
        label, labels = _label_reference(model, reference), tuple(candidate.label for candidate in judged)
        report = ParityReport(label, labels, rounds.results, rounds.skipped, rules.seed, dict(_installed()))
        if locate:
            report = _locate(report, model, reference, rounds.ends, rules.seed)
        if witnesses is not False:
            report = _ask_witnesses(report, reference, rounds.ends, rules, everyone=bool(witnesses))
    if rules.recorder is not None:
        rules.recorder.close(report)
    return report


def _check_isolated(
    models: Sequence[Any], options: Mapping[str, Any], rules: Rules, suite: Suite, isolate: bool, timeout: float | None
) -> ParityReport:
    from interop.parity.isolate import TIMEOUT_S, check_isolated

    if not isolate:
        raise InputError("timeout= ends a candidate that runs in a process of its own; give isolate=True with it")
    judging: dict[str, Any] = {"atol": rules.atol, "rtol": rules.rtol, "indices": rules.indices, "seed": rules.seed}
    making: dict[str, Any] = {"families": suite.families, "sizes": suite.sizes, "ranges": suite.ranges}
    seconds = TIMEOUT_S if timeout is None else timeout
    models = (models[0], *map(_file_of, models[1:]))
    return check_isolated(models[0], *models[1:], timeout=seconds, **judging, **making, **options)


_UNPAIRED = "its first difference is not known: its outputs are not the reference's, so that no values were compared"


def _file_of(candidate: Any) -> Any:
    """What a process of its own can load, or already did."""
    if isinstance(candidate, (str, os.PathLike)) or getattr(candidate, "name", "") == "isolated":
        return candidate
    path = getattr(candidate, "path", None)
    if isinstance(path, (str, os.PathLike)):
        return path
    raise InputError(
        f"isolate=True loads each candidate from a file; a {type(candidate).__name__} in memory has none. Save it first, or "
        "give a path, package.module:attribute or file.py:attribute"
    )


def _locate(report: ParityReport, model: Any, reference: Witness, ends: Sequence[End], seed: int) -> ParityReport:
    """Add the first difference of the first failed candidate that has one, or the first reason why there is none."""
    from interop.parity.locate import Search, explain

    untold = None
    for end in ends:
        if end.result.passed:
            continue
        candidate, compared = end.candidate, bool(end.result.outputs or end.result.error)
        if isinstance(candidate.witness, RuntimeWitness):
            candidate.witness.release()  # the search reads the weights from the file
        tensors, naming = end.case.tensors_of(candidate.witness), end.expected.naming
        search = Search(model, reference, None, naming, tensors, candidate.label, end.case.name, seed)
        search = replace(search, error=end.result.error)
        found = explain(search, candidate.model, candidate.witness) if compared else search.untold(_UNPAIRED)
        if found is not None and found.node:
            return replace(report, first_difference=found)
        untold = untold or found
    return replace(report, first_difference=untold)


def _ask_witnesses(
    report: ParityReport, reference: Witness, ends: Sequence[End], rules: Rules, *, everyone: bool
) -> ParityReport:
    """Judge failed candidates by other ways too, and say who stands alone."""
    results, sentence, quiet = list[CaseResult](), "", replace(rules, recorder=None)
    for end in ends:
        if end.result.passed and not everyone:
            continue
        judged: dict[str, CaseResult] = {}
        case = Case(end.case.name, dict(end.case.tensors_of(end.candidate.witness)))
        with contextlib.suppress(InteropError, *MODEL_ERRORS), more_witnesses(end.candidate.model) as found:
            asked = {name: Candidate(f"{end.candidate.label}: {name}", witness) for name, witness in found.items()}
            judged = {name: judge(one, case, end.expected, reference, quiet) for name, one in asked.items()}
        results += judged.values()
        verdicts = {name: result.passed for name, result in judged.items() if not result.error}
        if not end.result.passed and not sentence:
            sentence = _blame(end, verdicts, [other for other in ends if other is not end])
    return replace(report, witnesses=tuple(results), blame=sentence)


def _blame(end: End, verdicts: Mapping[str, bool], others: Sequence[End]) -> str:
    if end.candidate.witness.name != "tensorflow":
        return blame(end.candidate.label, verdicts)
    runs = [(other.candidate.witness.name, other.result.passed) for other in others]
    return blame_tensorflow(end.candidate.label, runs, verdicts.get(RELOADED))


def _label(witnesses: Sequence[Witness], models: Sequence[Any], names: Sequence[str] | None) -> list[Candidate]:
    if names is not None and len(names) != len(witnesses):
        raise InputError(f"{len(names)} names for {len(witnesses)} candidates")
    labels = list(names) if names is not None else [_label_of(model, w) for model, w in zip(models, witnesses)]
    unique = [label if labels.count(label) == 1 else f"{label} #{n + 1}" for n, label in enumerate(labels)]
    return [Candidate(*entry) for entry in zip(unique, witnesses, models)]


def _label_of(model: Any, witness: Witness) -> str:
    path = getattr(model, "path", model)
    return Path(path).name if isinstance(path, (str, os.PathLike)) else witness.name


def _label_reference(reference: Any, witness: Witness) -> str:
    if isinstance(witness, ModuleWitness) and not isinstance(reference, (str, os.PathLike)):
        return type(reference).__name__
    return _label_of(reference, witness)


@functools.cache
def _installed() -> Mapping[str, str]:
    """Reading the metadata of so many packages takes as long as checking a small model."""
    found = {}
    for package in ("numpy", "torch", "onnx", "onnxruntime", "tensorflow", "tensorflow-cpu", "jax", "ai-edge-litert"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
