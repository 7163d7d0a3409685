"""A parity report as one self-contained HTML page: no script, no request, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from interop.parity.compare import OutputComparison
from interop.parity.figures import DECADES
from interop.parity.html_layers import STYLE, to_section
from interop.parity.report import COLUMNS, NUMERIC, ParityReport

__all__ = ["to_fragment", "to_html"]

_STYLE = """
.parity { --ink: #1c2024; --soft: #6b7280; --line: #e2e5e9; --pass: #157f3d; --fail: #c2271b; --bar: #5b7ec9;
  color: var(--ink); font: 14px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1rem; }
.parity h1 { font-size: 1.35rem; margin: 0 0 .25rem; } .parity h2 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
.parity .pass { color: var(--pass); } .parity .fail { color: var(--fail); font-weight: 600; }
.parity .soft { color: var(--soft); } .parity .wide { overflow-x: auto; }
.parity table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.parity th, .parity td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
.parity th { color: var(--soft); font-weight: 500; } .parity .number { text-align: right; }
.parity .cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(21rem, 1fr)); gap: 1rem; }
.parity .card { border: 1px solid var(--line); border-radius: 6px; padding: .75rem; overflow-wrap: anywhere; }
.parity dl { display: grid; grid-template-columns: auto 1fr; gap: 0 .75rem; margin: .5rem 0 0; }
.parity dt { color: var(--soft); } .parity dd { margin: 0; }
.parity svg { display: block; width: 100%; height: auto; margin-top: .5rem; } .parity text { fill: var(--soft);
  font: 10px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .parity { --ink: #e6e8eb; --soft: #9aa3ad; --line: #363c43; --pass: #5cc984;
  --fail: #ff8379; --bar: #8aa8ec; } body.page { background: #16191d; } }
"""


def to_html(report: ParityReport) -> str:
    """The whole page."""
    title = f"Parity {'passed' if report.passed else 'failed'}: {report.reference}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title></head>\n<body class="page">{to_fragment(report)}</body></html>\n'
    )


def to_fragment(report: ParityReport) -> str:
    """The page's content, as a notebook shows it."""
    state = "pass" if report.passed else "fail"
    word = "Same function" if report.passed else "Not the same function"
    parts = [
        f"<style>{_STYLE}{STYLE}</style>",
        '<div class="parity">',
        f'<h1 class="{state}">{word}</h1>',
        f"<p>{escape(report.summary).replace(chr(10), '<br>')}</p>",
        "<h2>Outputs, each at its worst</h2>",
        f'<div class="cards">{"".join(_card(output) for output in report.outputs.values())}</div>',
        "<h2>All runs</h2>",
        f'<div class="wide">{_table(report)}</div>',
        *_reasons(report),
        to_section(report.first_difference) if report.first_difference is not None else "",
        *_witnesses(report),
        f'<p class="soft">Reference {escape(report.reference)}, seed {report.seed}. {escape(_versions(report))}</p>',
        "</div>",
    ]
    return "\n".join(parts)


def _versions(report: ParityReport) -> str:
    return ", ".join(f"{name} {version}" for name, version in report.versions.items())


def _reasons(report: ParityReport) -> Iterator[str]:
    if report.failures:
        items = (f"<b>{escape(r.candidate)}</b> on {escape(r.case)}: {escape(r.reason)}" for r in report.failures)
        yield f"<h2>Why</h2><ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
    if report.skipped:
        items = (f"{escape(case)}: {escape(reason)}" for case, reason in report.skipped.items())
        yield f"<h2>Skipped inputs</h2><ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _witnesses(report: ParityReport) -> Iterator[str]:
    """The same candidate by other ways."""
    if not report.witnesses:
        return
    verdicts = (("pass", "agrees") if result.passed else ("fail", result.reason) for result in report.witnesses)
    rows = [
        f'<li>{escape(result.candidate)}: <span class="{state}">{escape(text)}</span></li>'
        for result, (state, text) in zip(report.witnesses, verdicts)
    ]
    yield f"<h2>Witnesses</h2><p><b>{escape(report.blame)}</b></p><ul>{''.join(rows)}</ul>"


def _table(report: ParityReport) -> str:
    head = "".join(f"<th{_class(column)}>{column}</th>" for column in COLUMNS)
    rows = []
    for row in report.rows():
        cells = [f"<td{_class(column)}>{escape(row.get(column, ''))}</td>" for column in COLUMNS[:-1]]
        state = "pass" if row["verdict"] == "pass" else "fail"
        rows.append(f'<tr>{"".join(cells)}<td class="{state}">{escape(row["verdict"])}</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _class(column: str) -> str:
    return ' class="number"' if column in NUMERIC else ""


def _card(output: OutputComparison) -> str:
    state = "pass" if output.passed else "fail"
    shape = " x ".join(map(str, output.shape)) or "scalar"
    figures = {
        "difference": f"{output.max_abs:.3g} at most, {output.rms:.3g} rms",
        "allowed": f"{output.allowed:.3g} by {output.rule}",
        "relative": f"{output.max_rel:.3g}, {output.max_ulp:.3g} ulp",
        "cosine, SNR": f"{output.cosine:.9g}, {output.snr_db:.1f} dB",
        "worst at": f"{output.worst_index}: {output.worst_values[0]} became {output.worst_values[1]}",
        "would pass": f"atol={output.smallest_atol:.3g} or rtol={output.smallest_rtol:.3g}",
    }
    listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in figures.items())
    note = f'<div class="soft">{escape(output.note)}</div>' if output.note else ""
    reason = f'<div class="fail">{escape(output.reason)}</div>' if output.reason else ""
    name = f'<b>{escape(output.name)}</b> <span class="soft">{escape(output.dtype)} {shape}</span>'
    verdict = f'<span class="{state}">{"pass" if output.passed else "FAIL"}</span>'
    return f'<div class="card">{name} {verdict}{reason}{_histogram(output)}<dl>{listed}</dl>{note}</div>'


def _histogram(output: OutputComparison) -> str:
    """Bars of the element counts by decade, on a logarithmic height, with the allowance as a line."""
    if not output.histogram:
        return ""
    width, height = 20, 60
    top = math.log1p(max(output.histogram)) or 1.0
    bars = []
    for position, count in enumerate(output.histogram):
        tall = height * math.log1p(count) / top
        box = f'x="{position * width + 2}" y="{height - tall:.1f}" width="{width - 4}" height="{tall:.1f}"'
        bars.append(f'<rect {box} fill="var(--bar)"><title>{DECADES[position]}: {count}</title></rect>')
    labels = "".join(
        f'<text x="{position * width + (width / 2 if position else 0)}" y="{height + 12}" '
        f'text-anchor="{"middle" if position else "start"}">{label}</text>'
        for position, label in enumerate(DECADES)
        if position % 3 == 0
    )
    total = len(DECADES) * width
    name = escape(f"elements of {output.name} by difference relative to the output's scale", quote=True)
    line = _allowed_line(output, width, height)
    return (
        f'<svg viewBox="0 0 {total} {height + 16}" role="img" aria-label="{name}">{"".join(bars)}{line}{labels}</svg>'
    )


def _allowed_line(output: OutputComparison, width: int, height: int) -> str:
    """Where the allowance lies between the decades: position p + 14 for a relative size of 10**p."""
    if output.allowed <= 0 or not math.isfinite(output.allowed):
        return ""
    power = math.log10(output.allowed / (output.scale or 1.0))
    place = min(max(power + len(DECADES), 1.0), float(len(DECADES))) * width
    return f'<line x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{height}" stroke="var(--fail)"><title>allowed</title></line>'
