"""docs/parity.md: what the check finds, and the histograms that its limits rest on."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

from benchmarks._histograms import ENDLESS, Spread, edge
from benchmarks.faults import VISIBLE
from interop.parity.noise import FACTOR, RMS_FACTOR

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURE = "images/parity_histograms.png"
PAGE = """\
# How far is too far?

*Written by `make bench-parity`.*

`interop.check` guesses no tolerance. The reference runs in float64, in its own precision, and twice more with every operand
moved by up to one ulp; the largest distance of those runs to the float64 answer is the *noise* of this model on this input.
A candidate passes while its own distance to the float64 answer is at most {factor:g} times the noise in the maximum and
{rms_factor:g} times in the root mean square (`interop/parity/noise.py` has the few details: a floor of one ulp of the
output's scale, and more room for outputs of few elements).

An ONNX file as the reference has no float64: its inputs move by an ulp instead. In a quantised file rounding becomes whole
steps, so its constants move too, and ONNX Runtime runs those versions as they are written, without its own rewrites
(`interop/parity/quantized.py`).

## What that separates

{rights:,} outputs of right exports of the example models, and {faults} planted faults that are visible: more than
{visible:g} times the noise of the model on some input. For a fault the furthest of its outputs counts.

![Histograms of right exports and faulty ones]({picture})

- By the distance over the output's scale, which is what a fixed tolerance judges,
  {relative_overlap} of the {faults} visible faults are nearer to the truth than the furthest right export.
- By the distance over what is allowed, {noise_overlap} of them are. The furthest right export reaches {furthest:.2f} of its
  limit.
- {endless} of the faults have no distance of their own (another dtype or shape, a NaN, an exception) and are not in the picture.

## Faults

{planted} faults of {kinds} kinds planted into the ONNX files of all example models, one at a time, seeded. *Below noise*: no
input of the suites shows them by more than {visible:g} times the noise.

| fault | planted | visible | found | at the exact node | below noise | of these found |
|---|---|---|---|---|---|---|
{table}

Found {detection:.2%} of the visible ones; located {exact:.2%} at the exact node.

## Right exports

Every example model in every format, at three shapes, with {seeds} seeds:

| format | checks | failed |
|---|---|---|
{formats}

{refused}
"""


def write_page(planted: list[Any], result: dict[str, Any], rights: Any, seeds: int) -> None:
    """Write the page and its picture from what ``benchmarks.parity`` measured."""
    faulty = Spread()
    for one in planted:
        if one.seen:
            faulty.add(one.spread.furthest())
    draw(rights.spread, faulty, DOCS / PICTURE)
    rows = [_row(kind, ones) for kind, ones in _by_kind(planted).items()]
    formats = [f"| {name} | {runs} | {rights.failed[name]} |" for name, runs in rights.runs.items()]
    refused = [f"- {line}" for line in rights.refused]
    text = PAGE.format(
        factor=FACTOR,
        rms_factor=RMS_FACTOR,
        visible=VISIBLE,
        rights=rights.spread.noise.total(),
        faults=result["visible"],
        picture=PICTURE,
        relative_overlap=_overlap(rights.spread.relative, faulty.relative),
        noise_overlap=_overlap(rights.spread.noise, faulty.noise),
        furthest=rights.spread.largest,
        endless=faulty.noise[ENDLESS],
        planted=result["planted"],
        kinds=result["kinds"],
        table="\n".join([*rows, _row("**all**", planted)]),
        detection=result["detection"],
        exact=result["exact"],
        seeds=seeds,
        formats="\n".join(formats),
        refused="\n".join(["Not exported:", "", *refused]) if refused else "Every format takes every model.",
    )
    (DOCS / "parity.md").write_text(text, encoding="utf-8")


def draw(right: Spread, faulty: Spread, path: Path) -> None:
    """Two panels, each with the right and the faulty outputs as shares of their own total."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 3.4), sharey=True, layout="constrained")
    titles = ("largest difference / scale of the output", "largest difference / allowed by interop.check")
    pairs = ((right.relative, faulty.relative), (right.noise, faulty.noise))
    for panel, title, (good, bad) in zip(panels, titles, pairs):
        _bars(panel, good, "#2f6db3", "right exports")
        _bars(panel, bad, "#d9662b", "visible faults")
        panel.set_xscale("log")
        panel.set_xlabel(title)
        panel.spines[["top", "right"]].set_visible(False)
    panels[1].axvline(1.0, color="black", linewidth=1)
    panels[0].set_ylabel("share")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _bars(panel: Any, bins: collections.Counter[int], color: str, label: str) -> None:
    """Bars of a fifth of a decade; what has no distance is left out."""
    wide: collections.Counter[int] = collections.Counter()
    for number, count in bins.items():
        if number != ENDLESS:
            wide[number - number % 2] += count
    edges = [edge(number) for number in wide]
    widths = [edge(number + 2) - edge(number) for number in wide]
    shares = [count / bins.total() for count in wide.values()]
    panel.bar(edges, shares, widths, align="edge", color=color, alpha=0.7, label=label)


def _overlap(right: collections.Counter[int], faulty: collections.Counter[int]) -> int:
    """Faults in or below the bin of the furthest right output."""
    furthest = max(right)
    return sum(count for number, count in faulty.items() if number <= furthest)


def _by_kind(planted: list[Any]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for one in sorted(planted, key=lambda one: one.kind):
        rows.setdefault(one.kind, []).append(one)
    return rows


def _row(kind: str, ones: list[Any]) -> str:
    seen = [one for one in ones if one.seen]
    unseen = [one for one in ones if not one.seen]
    counts = (
        len(ones),
        len(seen),
        sum(one.found for one in seen),
        sum(one.found and one.exact for one in seen),
        len(unseen),
        sum(one.found for one in unseen),
    )
    return f"| {kind} | {' | '.join(map(str, counts))} |"
