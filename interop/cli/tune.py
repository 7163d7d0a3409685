"""``interop tune``: which way to export and run a model is the quickest, and what it costs in exactness."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from interop.cli._common import CliError, read_arrays, say, working, write_text
from interop.cli._spec import MODEL, TRUST
from interop.cli.export import is_torch_model, place_arguments
from interop.errors import InteropError
from interop.specs import resolve

if TYPE_CHECKING:
    from rich.table import Table

    from interop.integrations.ray_tune import Choice, Trial, TuneReport, Variant

__all__ = ["tune"]

Arrays = dict[str, np.ndarray[Any, Any]]


def tune(
    model: MODEL,
    opset: Annotated[list[int] | None, typer.Option("--opset", min=1, help="ONNX operator sets to try.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option("--precision", help="float32, float16, int8; all three if not given.")
    ] = None,
    threads: Annotated[
        list[int] | None,
        typer.Option("--threads", min=1, help="Threads within one operator; 1 and all cores if not given."),
    ] = None,
    optimisation: Annotated[
        list[str] | None, typer.Option("--optimisation", help="none, basic, extended, all; all if not given.")
    ] = None,
    provider: Annotated[
        list[str] | None, typer.Option("--provider", help="Execution providers; the CPU if not given.")
    ] = None,
    inputs: Annotated[Path | None, typer.Option("--inputs", help="An .npz file with the inputs of the call.")] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="Try so many of all, chosen at random.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="How long to measure each.")] = 0.5,
    address: Annotated[
        str | None, typer.Option("--address", help="Of a Ray cluster; else one is started here.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every trial, not only those that none beats.")
    ] = False,
    json: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file; - is stdout.")] = None,
    trust: TRUST = False,
) -> None:
    """Measure ways to export and run a model with Ray Tune, and show those that no other beats in time and exactness."""
    from interop.integrations.ray_tune import choices, search

    space: dict[str, Sequence[Any]] = {
        "opset": opset or [None],
        "precision": precision or ["float32", "float16", "int8"],
        "threads": threads or sorted({1, os.cpu_count() or 1}),
        "optimisation": optimisation or ["all"],
        "provider": provider or ["CPUExecutionProvider"],
    }
    todo = choices(space, samples)
    with working(f"exporting {model}", hush=True):
        subject = _Subject(resolve(model, trust=trust).value, None if inputs is None else read_arrays(inputs))
        variants, feed, expected = subject.prepare(todo)
    with working(f"{len(todo)} trials of {model}", hush=True):
        report = search(todo, variants, feed, expected, seconds=seconds, address=address)
    if json is not None:
        write_text(json, report.to_json(indent=2) + "\n")
    if json != Path("-"):
        say(_table(report, everything=everything), *_remarks(report))


class _Subject:
    """The model that is tuned, one call of it, and its own answer."""

    def __init__(self, model: Any, arrays: Mapping[str, np.ndarray[Any, Any]] | None) -> None:
        self._model, self._arrays = model, arrays
        self._is_torch = is_torch_model(model)
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}

    def prepare(self, todo: Sequence[Choice]) -> tuple[list[Variant], Arrays, Arrays]:
        """The files for the choices, the inputs by name, and the outputs by name."""
        if self._is_torch:
            self._find_example()
        base = self._export(None, "float32")
        feed, expected = self._reference(base)
        keys = dict.fromkeys((choice.opset, choice.precision) for choice in todo)
        return [self._variant(*key, base) for key in keys], feed, expected

    def _find_example(self) -> None:
        from exporters._example_inputs import find_example_inputs

        if self._arrays is not None:
            self._args, kwargs = place_arguments(self._model, self._arrays)
            self._kwargs = kwargs or {}
        else:
            self._args, self._kwargs = find_example_inputs(self._model, None, None, "onnx")

    def _export(self, opset: int | None, precision: str) -> Any:
        from exporters import export_model

        options = {"opset": opset, "precision": precision}
        if not self._is_torch:
            return export_model(self._model, "onnx", inputs=self._arrays, options=options)
        return export_model(self._model, "onnx", inputs=self._args, kwargs=self._kwargs, options=options)

    def _variant(self, opset: int | None, precision: str, base: Any) -> Variant:
        from interop.integrations.ray_tune import Variant

        try:
            exported = base if (opset, precision) == (None, "float32") else self._export(opset, precision)
            return Variant(opset, precision, _content(exported))
        except InteropError as error:
            return Variant(opset, precision, problem=" ".join(str(error).split())[:300])

    def _reference(self, base: Any) -> tuple[Arrays, Arrays]:
        import interop
        from interop.structure import pick

        if not self._is_torch:
            feed = self._arrays or _made_inputs(base.signature)
            return dict(feed), self._opened().run(feed)
        answer = interop.load(self._model)(*self._args, **self._kwargs)
        bound, results = base.signature.bind(self._args, self._kwargs), base.signature.results
        named = {base.signature.output_names[0]: answer} if results is None else pick(results, answer, "the result")
        return interop.convert(bound, "numpy"), interop.convert(named, "numpy")

    def _opened(self) -> Any:
        """The runtime whose names are those of the export."""
        import interop
        from exporters._sources import is_tensorflow, open_tensorflow

        if is_tensorflow(self._model):
            return open_tensorflow(self._model, self._arrays, None)
        return interop.load(self._model)


def _content(exported: Any) -> bytes | str:
    """The file's bytes; they travel with the trials, so that no disk needs to be shared."""
    with tempfile.TemporaryDirectory(prefix="interop-tune-") as folder:
        path = exported.save(Path(folder) / "model.onnx")
        if len(list(Path(folder).iterdir())) > 1:
            raise CliError(
                "the model is larger than 1 GiB", "tune a smaller one of its kind; large files do not travel"
            )
        return bytes(path.read_bytes())


def _made_inputs(signature: Any) -> Arrays:
    from interop.parity.inputs import base_symbols, default_sizes, make_case

    return dict(make_case(signature, "normal", default_sizes(base_symbols(signature))[0]).tensors)


def _table(report: TuneReport, *, everything: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("opset", "precision", "threads", "optimisation", "provider"):
        table.add_column(column, no_wrap=True)
    for column in ("latency", "difference", "same function"):
        table.add_column(column, justify="right", no_wrap=True)
    if everything:
        table.add_column("")
    front = report.pareto
    shown = sorted(report.trials, key=lambda trial: trial.latency) if everything else front
    for trial in shown:
        table.add_row(*_cells(trial), *(["best" if trial in front else trial.problem] if everything else []))
    return table


def _cells(trial: Trial) -> Iterator[str]:
    choice = trial.choice
    yield "default" if choice.opset is None else str(choice.opset)
    yield choice.precision
    yield str(choice.threads)
    yield choice.optimisation
    yield choice.provider.removesuffix("ExecutionProvider")
    yield f"{trial.latency * 1e3:.3g} ms" if math.isfinite(trial.latency) else "-"
    yield f"{trial.measured:.1e}" if math.isfinite(trial.measured) else "-"
    yield "failed" if trial.problem else "yes" if trial.error == 0 else "no"


def _remarks(report: TuneReport) -> Iterator[str]:
    failed = {f"{trial.choice.precision}: {trial.problem}" for trial in report.trials if trial.problem}
    yield ""
    yield f"{len(report.pareto)} of {len(report.trials)} trials that no other beats in latency and difference"
    yield from (f"failed: {text}" for text in sorted(failed))
