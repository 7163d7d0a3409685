"""A parity report as text that other programs read: Markdown, JUnit XML, GitHub annotations."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from interop.parity.report import COLUMNS, NUMERIC, CaseResult, ParityReport

__all__ = ["to_github", "to_junit", "to_markdown"]

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~])")


def to_markdown(report: ParityReport) -> str:
    """A heading with the verdict, one table row an output, the reasons below."""
    mark = "passed" if report.passed else "FAILED"
    lines = [f"### Parity {mark}", "", _escape(report.summary.replace("\n", "; ")), ""]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|{'|'.join('---:' if c in NUMERIC else '---' for c in COLUMNS)}|"]
    for row in report.rows():
        cells = [_escape(row.get(column, "")) for column in COLUMNS]
        cells[-1] = cells[-1] if cells[-1] == "pass" else f"**{cells[-1]}**"
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- **{_escape(r.candidate)}** on {_escape(r.case)}: {_escape(r.reason)}" for r in report.failures]
    notes += [f"- skipped {_escape(case)}: {_escape(reason)}" for case, reason in report.skipped.items()]
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return "\n".join([*lines, "", *notes, "", f"Seed {report.seed}. {_escape(versions)}", ""])


def _escape(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def to_junit(report: ParityReport, suite: str) -> str:
    """A ``testsuite`` element; a crash of a candidate is an error, a difference a failure."""
    crashed = [result for result in report.failures if result.error]
    counts = {
        "tests": len(report.cases) + len(report.skipped) or 1,
        "failures": len(report.failures) - len(crashed),
        "errors": len(crashed) or int(not report.cases),
        "skipped": len(report.skipped),
    }
    root = ElementTree.Element("testsuite", {"name": suite} | {key: str(value) for key, value in counts.items()})
    for result in report.cases:
        _add_case(root, result)
    for case, reason in report.skipped.items():
        element = ElementTree.SubElement(
            root, "testcase", {"classname": _clean(report.reference), "name": _clean(case)}
        )
        ElementTree.SubElement(element, "skipped", {"message": _clean(reason)})
    if not report.cases:
        element = ElementTree.SubElement(root, "testcase", {"classname": _clean(report.reference), "name": "inputs"})
        ElementTree.SubElement(element, "error", {"message": _clean(report.summary)})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(root: ElementTree.Element, result: CaseResult) -> None:
    attributes = {"classname": _clean(result.candidate), "name": _clean(result.case)}
    element = ElementTree.SubElement(root, "testcase", attributes)
    if not result.passed:
        kind = "error" if result.error else "failure"
        found = ElementTree.SubElement(element, kind, {"message": _clean(result.reason), "type": "ParityError"})
        failed = [output for output in result.outputs.values() if not output.passed]
        found.text = _clean("\n".join(f"{output.name}: {output.reason}" for output in failed))


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("?", text)


def to_github(report: ParityReport) -> str:
    """``::error`` commands; a pass is one ``::notice``."""
    if report.passed:
        return f"::notice title=parity::{_command(report.summary)}\n"
    lines = [
        f"::error title={_property(f'parity {result.candidate}')}::{_command(f'{result.case}: {result.reason}')}"
        for result in report.failures
    ]
    return "\n".join(lines or [f"::error title=parity::{_command(report.summary)}"]) + "\n"


def _command(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _command(text).replace(":", "%3A").replace(",", "%2C")
