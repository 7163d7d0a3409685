"""A parity report on its way out: terminal, files, and what GitHub reads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from interop.cli._common import CliError, require_folder, say, write_text

if TYPE_CHECKING:
    from interop.parity import ParityReport

__all__ = ["Destinations"]

STDOUT = Path("-")
SUMMARY = "GITHUB_STEP_SUMMARY"


@dataclass(frozen=True)
class Destinations:
    """Where a report goes; ``-`` is stdout, which then holds nothing else.

    Attributes:
        json: for ``ParityReport.to_json``.
        junit: for ``to_junit``.
        markdown: for ``to_markdown``.
        html: for ``to_html``.
        github: print annotations, and append Markdown to the job's summary.
    """

    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    github: bool = False

    def require(self) -> None:
        """Find out before the work whether the report can be written.

        Raises:
            CliError: a folder is missing, or two reports go to stdout.
        """
        paths = [path for path in (self.json, self.junit, self.markdown, self.html) if path is not None]
        for path in paths:
            require_folder(path)
        if paths.count(STDOUT) > 1:
            raise CliError("two reports cannot both go to stdout", "name a file for one of them")

    def write(self, report: ParityReport) -> None:
        """Write and show the report."""
        texts = {
            self.json: lambda: report.to_json(indent=2) + "\n",
            self.junit: report.to_junit,
            self.markdown: report.to_markdown,
            self.html: report.to_html,
        }
        for path, make in texts.items():
            if path is not None:
                write_text(path, make())
        taken = STDOUT in texts
        if not taken:
            say(report, *_explain(report))
        if self.github:
            typer.echo(report.to_github(), nl=False, err=taken)
            _append_summary(report.to_markdown())


def _explain(report: ParityReport) -> list[str]:
    """Where the difference begins and who stands alone, where the report knows and has not said it."""
    shown = str(report)
    found = {title: getattr(report, title.replace(" ", "_"), None) for title in ("first difference", "blame")}
    return [f"{title}: {value}" for title, value in found.items() if value and str(value) not in shown]


def _append_summary(text: str) -> None:
    """Append to the summary of a GitHub job; outside of one there is none."""
    path = os.environ.get(SUMMARY)
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")
    except OSError as error:
        raise CliError(f"cannot write {path}, which {SUMMARY} names: {error.strerror}", "leave --github out") from error
