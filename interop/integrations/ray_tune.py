"""Ways to export and run a model, measured by Ray Tune: how long a call takes, and how far its answers are from the model's.

Trials run one after the other, so that none slows another. They need ONNX Runtime only: the files are made before.

Source: https://docs.ray.io/en/latest/tune/index.html
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from interop.errors import InputError, InteropError
from interop.extras import require
from interop.integrations.ray import cluster
from interop.parity.compare import Comparison, compare

__all__ = ["LEVELS", "Choice", "Trial", "TuneReport", "Variant", "choices", "search"]

Array = np.ndarray[Any, Any]

LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Graph optimisation of ONNX Runtime, by what a user calls it."""

_QUIET_ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_AUTO_INIT": "1",
}


@dataclass(frozen=True)
class Variant:
    """A model exported in one way.

    Attributes:
        opset: the operator set of the file; None is the exporter's own choice.
        precision: ``"float32"``, ``"float16"`` or ``"int8"``.
        model: the bytes of the file, or its path where it has data beside it (on a disk that every machine sees).
        problem: why there is no file; trials of it fail with these words.
    """

    opset: int | None
    precision: str
    model: bytes | str = b""
    problem: str = ""


@dataclass(frozen=True)
class Choice:
    """One way to export and run a model.

    Attributes:
        opset: see ``Variant``.
        precision: see ``Variant``.
        threads: within one operator; 0 is ONNX Runtime's own choice.
        optimisation: a name out of ``LEVELS``.
        provider: of execution, such as ``"CPUExecutionProvider"``.
    """

    opset: int | None = None
    precision: str = "float32"
    threads: int = 0
    optimisation: str = "all"
    provider: str = "CPUExecutionProvider"


@dataclass(frozen=True)
class Trial:
    """What came of a choice.

    Attributes:
        choice: what was tried.
        latency: median seconds of one call; infinity where it failed.
        error: largest difference from the model's answers, relative to the scale of the output; 0 where the comparison allows
            the difference, so that float noise decides nothing.
        measured: the same without that zero.
        problem: why it failed, or empty.
    """

    choice: Choice
    latency: float = math.inf
    error: float = math.inf
    measured: float = math.inf
    problem: str = ""

    def beats(self, other: Trial) -> bool:
        """True where this is at least as good in both and better in one."""
        mine, theirs = (self.latency, self.error), (other.latency, other.error)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs))


@dataclass(frozen=True)
class TuneReport:
    """All trials.

    Attributes:
        trials: in the order of the choices.
    """

    trials: tuple[Trial, ...] = field(default=())

    @property
    def pareto(self) -> tuple[Trial, ...]:
        """The trials that no other beats in latency and error, the quickest first; failed ones are not among them."""
        good = [trial for trial in self.trials if not trial.problem]
        front = [trial for trial in good if not any(other.beats(trial) for other in good)]
        return tuple(sorted(front, key=lambda trial: (trial.latency, trial.error)))

    def to_json(self, indent: int | None = None) -> str:
        """All figures; infinities, which JSON lacks, are null."""
        front = {trial.choice for trial in self.pareto}
        rows = [{**asdict(trial), "pareto": trial.choice in front} for trial in self.trials]
        for row in rows:
            row |= {key: None for key in ("latency", "error", "measured") if not math.isfinite(row[key])}
        return json.dumps({"trials": rows}, indent=indent, allow_nan=False)


def choices(space: Mapping[str, Sequence[Any]], samples: int | None = None, seed: int = 0) -> list[Choice]:
    """The grid of a search space, or a random sample of it.

    Args:
        space: ``{field of Choice: values}``; a field that is not named keeps its default.
        samples: how many, without repetition; None, or more than there are, is all.
        seed: of the sample.

    Raises:
        InputError: an unknown field or level, a field without values, or no samples.

    Example:
        >>> len(choices({"precision": ["float32", "int8"], "threads": [1, 2, 4]}))
        6
    """
    known = list(Choice.__dataclass_fields__)
    if unknown := sorted(set(space) - set(known)):
        raise InputError(f"a search space has {known}, got {unknown}")
    if empty := [name for name, values in space.items() if not values]:
        raise InputError(f"nothing to choose from for {empty}; give values, or leave it out for the default")
    if wrong := sorted(set(space.get("optimisation", ())) - set(LEVELS)):
        raise InputError(f"optimisation is one of {list(LEVELS)}, got {wrong}")
    if samples is not None and samples < 1:
        raise InputError(f"samples is at least 1, got {samples}")
    grid = [Choice(**dict(zip(space, values))) for values in itertools.product(*space.values())]
    grid = list(dict.fromkeys(grid))
    if samples is None or samples >= len(grid):
        return grid
    picked = set(random.Random(seed).sample(range(len(grid)), samples))
    return [choice for position, choice in enumerate(grid) if position in picked]


def search(
    todo: Sequence[Choice],
    variants: Sequence[Variant],
    inputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    *,
    seconds: float = 0.5,
    address: str | None = None,
    cpus: int | None = None,
) -> TuneReport:
    """Measure choices.

    Args:
        todo: the choices, see ``choices``.
        variants: a file for each opset and precision among them.
        inputs: of one call, by input name.
        expected: the model's own answers to them, by output name.
        seconds: about how long to measure each.
        address: of a Ray cluster, such as ``"auto"``; None starts one on this machine and ends it again.
        cpus: of a cluster that is started here, and of each trial; all where None.

    Raises:
        InputError: nothing to do, or a choice without its file.
        MissingExtraError: Ray Tune is not installed.
    """
    made = {(variant.opset, variant.precision): variant for variant in variants}
    missing = sorted({f"{choice.opset} {choice.precision}" for choice in todo if _key(choice) not in made})
    if missing or not todo:
        raise InputError(f"search needs choices, and a Variant for each opset and precision; missing: {missing}")
    good = [choice for choice in todo if not made[_key(choice)].problem]
    measured = (
        dict(zip(good, _tune(good, made, (dict(inputs), dict(expected), seconds), address, cpus))) if good else {}
    )
    return TuneReport(
        tuple(measured.get(choice) or Trial(choice, problem=made[_key(choice)].problem) for choice in todo)
    )


def _key(choice: Choice) -> tuple[int | None, str]:
    return choice.opset, choice.precision


def _tune(
    todo: Sequence[Choice], made: Mapping[Any, Variant], call: tuple[Any, ...], address: str | None, cpus: int | None
) -> Iterator[Trial]:
    """Trials in the order of the choices."""
    ray, tune = require("ray", "to tune a model"), require("ray.tune", "to tune a model")
    with cluster(ray, address, cpus), tempfile.TemporaryDirectory(prefix="interop-tune-") as folder, _quiet():
        slots = cpus or max(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"])
        work = tune.with_parameters(_work, made=dict(made), call=call)
        tuner = tune.Tuner(
            tune.with_resources(work, {"cpu": slots}),  # a whole machine
            param_space={
                "position": tune.grid_search(list(range(len(todo)))),
                "choices": [asdict(each) for each in todo],
            },
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        found = {result.config["position"]: result for result in tuner.fit()}
        yield from [_trial(choice, found.get(position)) for position, choice in enumerate(todo)]


def _trial(choice: Choice, result: Any) -> Trial:
    if result is None or result.error is not None or "problem" not in result.metrics:
        lines = str(getattr(result, "error", None) or "the trial ended without a result").strip().splitlines()
        return Trial(choice, problem=lines[-1][:300])
    metrics = result.metrics
    return Trial(choice, metrics["latency"], metrics["error"], metrics["measured"], metrics["problem"])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Tune's own notes and files beside them, which nobody reads of a search that lives for minutes."""
    before = {name: os.environ.get(name) for name in _QUIET_ENVIRONMENT}
    os.environ.update(_QUIET_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# ------------------------------------------------------------------------------------------------------ in the trial


def _work(config: Mapping[str, Any], made: Mapping[Any, Variant], call: tuple[Any, ...]) -> None:
    """One trial, in a process of its own."""
    tune = require("ray.tune", "to tune a model")
    choice = Choice(**config["choices"][config["position"]])
    trial = measure_choice(choice, made[_key(choice)], *call)
    tune.report({name: getattr(trial, name) for name in ("latency", "error", "measured", "problem")})


def measure_choice(
    choice: Choice, variant: Variant, inputs: Mapping[str, Array], expected: Mapping[str, Array], seconds: float
) -> Trial:
    """Open, run, compare, time; see ``search``."""
    from interop.runtimes.onnxruntime import OnnxRuntime

    try:
        runtime = OnnxRuntime.open(variant.model, providers=[choice.provider], session_options=_session_options(choice))
        found = compare(expected, runtime.run(dict(inputs)))
    except InteropError as error:
        return Trial(choice, problem=" ".join(str(error).split())[:300])
    off = distance(found)
    took = runtime.benchmark(inputs, seconds=seconds)
    return Trial(choice, took.median, 0.0 if found.passed else off, off)


def distance(found: Comparison) -> float:
    """How far outputs are, relative to their own scale; infinity where shape, dtype, NaN or names differ."""
    if not found.outputs or {"missing", "unexpected"} & set(found.reason.split()):
        return math.inf
    worst = 0.0
    for output in found.outputs.values():
        off = output.max_abs / output.scale if output.scale > 0 else output.max_abs
        worst = max(worst, off if output.passed or off > 0 else math.inf)
    return float(worst)


def _session_options(choice: Choice) -> Any:
    """Those of ``interop.load``, at the chosen level."""
    from interop.runtimes.onnxruntime import _session_options as defaults

    ort = require("onnxruntime", "to run an ONNX model")
    options = defaults(None, choice.threads or None)
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[choice.optimisation])
    return options
