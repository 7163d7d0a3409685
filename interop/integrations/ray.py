"""Many checks, of models or of shards of data, spread over a Ray cluster and merged into one report.

Source: https://docs.ray.io/en/latest/ray-core/tasks.html
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from interop.errors import InputError, InteropError
from interop.extras import loaded, require
from interop.parity.report import CaseResult, ParityReport

__all__ = ["Job", "check_many", "cluster", "merge_reports"]

TRIES = 2
STORE_BYTES = 300 * 2**20  # of a cluster that is started here; what does not fit is spilled to disk
_LOCAL_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # nobody else reaches a cluster on this machine that lives for one check
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True)
class Job:
    """One check.

    Attributes:
        reference: what is right: a path, ``package.module:attribute`` or ``file.py:attribute``, or anything that
            ``interop.check`` takes and that Ray can send.
        candidates: what is judged, likewise.
        name: what its runs are called by in the report; may be empty.
        options: of ``interop.check``; a shard of data is ``{"inputs": batch}``.
    """

    reference: Any
    candidates: tuple[Any, ...]
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def check_many(
    jobs: Iterable[Job | Sequence[Any]],
    *,
    address: str | None = None,
    cpus: int | None = None,
    timeout: float | None = None,
    trust: bool = False,
    **options: Any,
) -> ParityReport:
    """Spread checks over a Ray cluster.

    A job whose worker dies is tried once more, then it is a failed result; so is a job that raises. Jobs are taken as
    workers become free, so an iterator that reads shards from disk holds few at a time. On a cluster of several
    machines the packages are installed on each, and paths are those of a shared disk.

    Args:
        jobs: ``Job``, or ``(reference, candidate, ...)``, called ``"job 1"`` and so on.
        address: of a running cluster, such as ``"auto"`` or ``"ray://host:10001"``; None starts one on this machine and
            ends it again. A Ray that this process is connected to already is used as it is.
        cpus: of a cluster that is started here; all where None.
        timeout: seconds for one run of a candidate, each in a process of its own (``interop.parity.isolate``), which
            takes paths and ``place:attribute`` only. None: candidates run in the worker, without a limit.
        trust: also read torch files with pickles or compiled code in them, which can run anything.
        **options: of ``interop.check``, for every job that does not say otherwise.

    Returns:
        One report of all runs (see ``merge_reports``).

    Raises:
        MissingExtraError: Ray is not installed.
        InputError: no job, or something that is none.

    Example:
        >>> shards = ({"x": batch} for batch in batches)
        >>> jobs = [Job("net.py:build", ("net.onnx",), f"shard {n}", {"inputs": shard}) for n, shard in enumerate(shards)]
        >>> check_many(jobs).raise_for_failure()
    """
    ray = require("ray", "to spread checks over a cluster")
    todo = (_job_of(job, number, options, isolated=timeout is not None) for number, job in enumerate(jobs, 1))
    here = (str(Path.cwd()), [path for path in sys.path if path])
    with cluster(ray, address, cpus):
        remote = ray.remote(max_retries=0)(_work)  # tries are counted here: Ray's own do not count all kinds of death

        def submit(job: Job) -> Any:
            return remote.remote(job, *here, timeout, trust)

        outcomes = sorted(_gather(ray, todo, submit), key=lambda outcome: outcome[0])
    if not outcomes:
        raise InputError(
            "check_many needs at least one job: Job(reference, (candidate, ...)) or (reference, candidate)"
        )
    return merge_reports([(name, report) for _, name, report in outcomes])


def merge_reports(reports: Iterable[tuple[str, ParityReport]]) -> ParityReport:
    """One report of many, which passes only where every one of them does.

    Args:
        reports: ``(name, report)``; the name goes before the name of each run's inputs.

    Returns:
        The report; seed and versions are the first one's, the first difference is the first that one of them has.
    """
    found = list(reports)
    cases: list[CaseResult] = []
    skipped: dict[str, str] = {}
    for name, report in found:
        start = f"{name}: " if name else ""
        cases += [replace(case, case=start + case.case) for case in report.cases]
        if not report.passed and not report.failures:  # it compared nothing: lost in the crowd if it were not a failure
            cases += [CaseResult(label, start + "inputs", False, report.summary) for label in report.candidates]
        skipped |= {start + case: reason for case, reason in report.skipped.items()}
    references = list(dict.fromkeys(report.reference for _, report in found))
    return ParityReport(
        references[0] if len(references) == 1 else f"{len(references)} references",
        tuple(dict.fromkeys(label for _, report in found for label in report.candidates)),
        tuple(cases),
        skipped,
        found[0][1].seed,
        found[0][1].versions,
        next((report.first_difference for _, report in found if report.first_difference is not None), None),
        tuple(replace(case, case=f"{name}: {case.case}") for name, report in found for case in report.witnesses),
        next((report.blame for _, report in found if report.blame), ""),
    )


def _job_of(job: Any, number: int, options: Mapping[str, Any], *, isolated: bool) -> Job:
    if isinstance(job, (tuple, list)) and len(job) > 1:
        job = Job(job[0], tuple(job[1:]), f"job {number}")
    if not isinstance(job, Job) or not job.candidates:
        raise InputError(f"job {number} is a Job or (reference, candidate, ...), got {type(job).__name__}: {job!r:.80}")
    for candidate in job.candidates if isolated else ():
        if not isinstance(candidate, (str, os.PathLike)):
            kind = type(candidate).__name__
            raise InputError(f"job {number}: with timeout= a candidate is a path or place:attribute, got a {kind}")
    return replace(job, options={**options, **job.options})


@contextlib.contextmanager
def cluster(ray: Any, address: str | None, cpus: int | None) -> Iterator[None]:
    """Connect, or start a cluster; afterwards it is as before."""
    if ray.is_initialized():
        yield
        return
    known = {name: os.environ.get(name) for name in _LOCAL_ENVIRONMENT}
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            for name, value in _LOCAL_ENVIRONMENT.items():
                os.environ.setdefault(name, value)
            _look_anew_for_tokens()
            ray.init("local", num_cpus=cpus, object_store_memory=STORE_BYTES, include_dashboard=False, **quiet)
        else:
            _look_anew_for_tokens()
            ray.init(address, **quiet)
        yield
    finally:
        ray.shutdown()
        for name, before in known.items():
            if before is None:
                os.environ.pop(name, None)
        _look_anew_for_tokens()


def _look_anew_for_tokens() -> None:
    """Let Ray read RAY_AUTH_MODE and the token again: it remembers those of the last cluster of this process."""
    raylet: Any = loaded("ray._raylet")
    with contextlib.suppress(AttributeError):  # a Ray without tokens
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def _gather(ray: Any, todo: Iterator[Job], submit: Any) -> Iterator[tuple[int, str, ParityReport]]:
    """Keep the workers busy; yield ``(number, name, report)`` as jobs end."""
    window = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    running: dict[Any, tuple[int, Job, list[str]]] = {}
    numbered = enumerate(todo)
    while True:
        while len(running) < window and (following := next(numbered, None)) is not None:
            running[submit(following[1])] = (*following, [])
        if not running:
            return
        (done, *_), _ = ray.wait(list(running), num_returns=1)
        number, job, deaths = running.pop(done)
        try:
            report = _report_of(job, json.loads(ray.get(done)))
        except ray.exceptions.RayTaskError as error:  # the job did not arrive: a class that workers cannot import
            report = _failed(job, f"the job cannot run on a worker: {_last_line(error)}")
        except ray.exceptions.RayError as error:
            deaths.append(f"its worker died: {type(error).__name__}: {_first_line(error)}")
            if len(deaths) < TRIES:
                running[submit(job)] = (number, job, deaths)
                continue
            report = _failed(job, f"{deaths[-1]} (tried {TRIES} times)")
        else:
            report = replace(report, skipped=report.skipped | {f"try {n}": why for n, why in enumerate(deaths, 1)})
        yield number, job.name, report


def _report_of(job: Job, answer: Mapping[str, Any]) -> ParityReport:
    return _failed(job, answer["error"]) if "error" in answer else ParityReport.from_json(answer["report"])


def _failed(job: Job, reason: str) -> ParityReport:
    labels = _labels(job) or [type(candidate).__name__ for candidate in job.candidates]
    cases = tuple(CaseResult(label, "run", False, reason, error=reason) for label in labels)
    reference = _label(job.reference) or type(job.reference).__name__
    return ParityReport(reference, tuple(labels), cases)


def _labels(job: Job) -> list[str] | None:
    """Labels of the candidates, where words give them."""
    if job.options.get("names"):
        return list(job.options["names"])
    labels = [_label(candidate) for candidate in job.candidates]
    return labels if all(labels) else None


def _label(model: Any) -> str:
    return Path(model).name if isinstance(model, (str, os.PathLike)) else ""


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[-1][:300]


# ------------------------------------------------------------------------------------------------------ in the worker


def _work(job: Job, folder: str, paths: Sequence[str], timeout: float | None, trust: bool) -> str:
    """Run a job where the one that asked would: same folder, same modules. Gives JSON: errors need not be sendable."""
    sys.path.extend(path for path in paths if path not in sys.path)
    try:
        with contextlib.chdir(folder) if Path(folder).is_dir() else contextlib.nullcontext():
            report = _check(job, timeout, trust)
    except Exception as error:  # noqa: BLE001 - whatever a job raises is a failed job among many
        step = getattr(error, "step", "")
        text = " ".join(f"{error}; {step}".split() if step else str(error).split())
        return json.dumps({"error": text if isinstance(error, InteropError) else f"{type(error).__name__}: {text}"})
    return json.dumps({"report": report.to_json()})


def _check(job: Job, timeout: float | None, trust: bool) -> ParityReport:
    from interop.parity import check
    from interop.parity.isolate import check_isolated

    options = {"names": _labels(job), **job.options}
    reference = _open(job.reference, trust)
    if timeout is not None:
        return check_isolated(reference, *job.candidates, timeout=timeout, trust=trust, **options)
    return check(reference, *(_open(candidate, trust) for candidate in job.candidates), **options)


def _open(model: Any, trust: bool) -> Any:
    if not isinstance(model, (str, os.PathLike)):
        return model
    from interop.runtimes import load
    from interop.specs import resolve

    value = resolve(os.fspath(model), trust=trust).value
    return load(value) if isinstance(value, Path) else value
