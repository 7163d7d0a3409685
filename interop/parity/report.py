"""What a check found: plain data, and the ways to show it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from interop.errors import ParityError
from interop.parity.compare import OutputComparison
from interop.parity.difference import Difference, Layer

__all__ = ["CaseResult", "ParityReport"]


@dataclass(frozen=True)
class CaseResult:
    """One candidate on one set of inputs.

    Attributes:
        candidate: the candidate's label.
        case: the name of the inputs.
        passed: the verdict.
        reason: why it failed, one line.
        outputs: the figures by output name; empty where the candidate raised.
        error: what the candidate raised, or empty.
    """

    candidate: str
    case: str
    passed: bool
    reason: str = ""
    outputs: dict[str, OutputComparison] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class ParityReport:
    """The verdict over all candidates and inputs, with every figure that it rests on.

    Attributes:
        reference: the reference's label.
        candidates: the candidates' labels.
        cases: one result a candidate and set of inputs.
        skipped: ``{case: reason}`` of made inputs that the reference itself did not take.
        seed: what made the inputs.
        versions: of the packages that took part.
        first_difference: the first operator of a failed candidate that differs, where it could be found.
        witnesses: results of the failed candidates by other ways, see ``interop.parity.blame``.
        blame: who stands alone, one sentence, or empty.
    """

    reference: str
    candidates: tuple[str, ...]
    cases: tuple[CaseResult, ...]
    skipped: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    first_difference: Difference | None = None
    witnesses: tuple[CaseResult, ...] = ()
    blame: str = ""

    @property
    def passed(self) -> bool:
        """True where every candidate was compared and nothing differed."""
        compared = {result.candidate for result in self.cases}
        return bool(self.cases) and compared >= set(self.candidates) and all(result.passed for result in self.cases)

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """The results that failed."""
        return tuple(result for result in self.cases if not result.passed)

    @property
    def outputs(self) -> dict[str, OutputComparison]:
        """Each output at its worst over all candidates and inputs."""
        worst: dict[str, OutputComparison] = {}
        for result in self.cases:
            for name, output in result.outputs.items():
                if name not in worst or _badness(output) > _badness(worst[name]):
                    worst[name] = output
        return worst

    @property
    def summary(self) -> str:
        """The verdict in one or two lines."""
        if self.passed:
            verb = "computes" if len(self.candidates) == 1 else "compute"
            return f"{' and '.join(self.candidates)} {verb} the same as {self.reference} on all {len(self.cases)} runs"
        if not self.failures:
            left = [name for name in self.candidates if name not in {result.candidate for result in self.cases}]
            return f"nothing was compared with {' and '.join(left)}, which is not a pass: no set of inputs ran"
        first = self.failures[0]
        where = f"{first.candidate} differs from {self.reference} on inputs {first.case!r}: {first.reason}"
        lines = [where, f"{len(self.failures)} of {len(self.cases)} runs failed"]
        lines += [str(self.first_difference)] if self.first_difference is not None else []
        return "\n".join([*lines, *([f"to blame: {self.blame}"] if self.blame else [])])

    def raise_for_failure(self) -> ParityReport:
        """Raise unless everything passed.

        Returns:
            This report.

        Raises:
            ParityError: with ``summary`` as its message and the report in ``.report``.
        """
        if not self.passed:
            raise ParityError(self.summary, self)
        return self

    def __str__(self) -> str:
        return "\n".join([*_text_table(list(self.rows())), *self.remarks()])

    def rows(self) -> Iterator[dict[str, str]]:
        """The report as text cells, one row an output of a run; a run without outputs has one row too."""
        for result in self.cases:
            for output in result.outputs.values():
                yield _row(result, output)
            if not result.outputs:
                yield {"candidate": result.candidate, "inputs": result.case, "verdict": "FAIL"}

    def remarks(self) -> list[str]:
        """What stands below the table: each failure's reason, the inputs that were skipped, the summary."""
        lines = [f"FAIL {result.candidate} on {result.case}: {result.reason}" for result in self.failures]
        lines += [f"skipped inputs {case}: {reason}" for case, reason in self.skipped.items()]
        return [*lines, self.summary]

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.table import Table
        from rich.text import Text

        rows = list(self.rows())
        columns = _fitting_columns(rows, options.max_width)
        table = Table(box=None, pad_edge=False)
        for column in columns:
            table.add_column(column, justify="right" if column in NUMERIC else "left", no_wrap=True)
        for row in rows:
            cells = [Text(row.get(column, "")) for column in columns]
            cells[-1].stylize("green" if row["verdict"] == "pass" else "bold red")
            table.add_row(*cells)
        yield table
        for line in self.remarks():
            yield Text(line, style="green" if self.passed else "yellow" if line.startswith("skipped") else "red")

    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON; numbers that JSON lacks are the strings ``"inf"``, ``"-inf"`` and ``"nan"``."""
        found = self.first_difference
        plain = replace(self, first_difference=found.without_evidence()) if found is not None else self
        data = {"passed": self.passed, "summary": self.summary} | asdict(plain)
        return json.dumps(_plain(data), indent=indent, allow_nan=False)

    def to_markdown(self) -> str:
        """The report for a CI job summary or an issue."""
        from interop.parity import writers

        return writers.to_markdown(self)

    def to_junit(self, suite: str = "interop.parity") -> str:
        """JUnit XML with one test case a candidate and set of inputs.

        Args:
            suite: the name of the test suite.
        """
        from interop.parity import writers

        return writers.to_junit(self, suite)

    def to_github(self) -> str:
        """GitHub workflow commands, one a failed run: printed inside a job they become annotations."""
        from interop.parity import writers

        return writers.to_github(self)

    def to_html(self) -> str:
        """One self-contained page: verdict, error against allowance, histograms, every figure."""
        from interop.parity import html

        return html.to_html(self)

    def _repr_html_(self) -> str:
        from interop.parity import html

        return html.to_fragment(self)

    @classmethod
    def from_json(cls, text: str) -> ParityReport:
        """The inverse of ``to_json``."""
        data = json.loads(text)
        return cls(
            data["reference"],
            tuple(data["candidates"]),
            tuple(_case_from(item) for item in data["cases"]),
            data["skipped"],
            data["seed"],
            data["versions"],
            _difference_from(data.get("first_difference")),
            tuple(_case_from(item) for item in data.get("witnesses", ())),
            data.get("blame", ""),
        )


COLUMNS = ("candidate", "inputs", "output", "dtype", "shape", "max abs", "max rel", "ulp", "allowed", "rule", "verdict")
NUMERIC = frozenset({"max abs", "max rel", "ulp", "allowed"})
DISPENSABLE = ("max rel", "ulp", "rule", "dtype", "shape")


def _badness(output: OutputComparison) -> tuple[bool, float]:
    excess = output.max_abs / output.allowed if output.allowed else output.max_abs
    return not output.passed, math.inf if math.isnan(excess) else excess


def _row(result: CaseResult, output: OutputComparison) -> dict[str, str]:
    exact = output.rule == "exact"
    return {
        "candidate": result.candidate,
        "inputs": result.case,
        "output": output.name,
        "dtype": output.dtype,
        "shape": "x".join(map(str, output.shape)) or "scalar",
        "max abs": f"{output.max_abs:.2e}",
        "max rel": f"{output.max_rel:.2e}",
        "ulp": "" if exact else f"{output.max_ulp:.3g}",
        "allowed": "0" if exact else f"{output.allowed:.2e}",
        "rule": output.rule,
        "verdict": "pass" if output.passed else "FAIL",
    }


def _widths(rows: list[dict[str, str]]) -> dict[str, int]:
    return {column: max(len(column), *(len(row.get(column, "")) for row in rows), 0) for column in COLUMNS}


def _text_table(rows: list[dict[str, str]]) -> list[str]:
    """Aligned columns under a rule."""
    widths = _widths(rows)
    lines = []
    for row in [{column: column for column in COLUMNS}, *rows]:
        cells = [
            (str.rjust if column in NUMERIC else str.ljust)(row.get(column, ""), widths[column]) for column in COLUMNS
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths.values()))
    return lines


def _fitting_columns(rows: list[dict[str, str]], width: int) -> list[str]:
    """All columns, or as many of the important ones as a narrow terminal shows on one line."""
    widths, columns = _widths(rows), list(COLUMNS)
    for column in DISPENSABLE:
        if sum(widths[name] + 2 for name in columns) - 2 <= width:
            break
        columns.remove(column)
    return columns


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _case_from(data: dict[str, Any]) -> CaseResult:
    outputs = {name: _output_from(item) for name, item in data["outputs"].items()}
    return replace(CaseResult(**{**data, "outputs": {}}), outputs=outputs)


_TUPLES = ("histogram", "shape", "reference_shape", "worst_index", "worst_values")
_TEXTS = ("name", "reason", "rule", "note", "dtype", "reference_dtype")


def _difference_from(data: dict[str, Any] | None) -> Difference | None:
    if data is None:
        return None
    figures = None if data["figures"] is None else _output_from(data["figures"])
    layers = tuple(
        Layer(**{**item, **{key: float(item[key]) for key in ("error", "local")}}) for item in data["layers"]
    )
    return Difference(**{**data, "figures": figures, "layers": layers, "nodes": tuple(data["nodes"])})


def _output_from(data: dict[str, Any]) -> OutputComparison:
    values: dict[str, Any] = {
        key: tuple(value) if key in _TUPLES else float(value) if isinstance(value, str) and key not in _TEXTS else value
        for key, value in data.items()
    }
    return OutputComparison(**values)
