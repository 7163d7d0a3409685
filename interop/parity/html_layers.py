"""The part of the HTML page that shows where a candidate goes wrong: the error along the graph, and by module."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from interop.parity.difference import Difference, Layer

__all__ = ["STYLE", "to_section"]

STYLE = """
.parity .plot text { font-size: 11px; } .parity details { margin-left: 1.1rem; } .parity details.root { margin-left: 0; }
.parity summary { cursor: pointer; } .parity .leaf { margin-left: 2.2rem; } .parity .chip { display: inline-block;
  width: .7rem; height: .7rem; border-radius: 2px; margin-right: .4rem; vertical-align: -1px; }
.parity .first { outline: 2px solid var(--fail); outline-offset: 2px; border-radius: 2px; }
.parity code { font: 12px ui-monospace, monospace; }
"""

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 240, 52, 34
LOWEST, HIGHEST = -9, 1
"""Powers of ten of the relative error that the plot covers; smaller errors lie on its floor."""


def to_section(difference: Difference) -> str:
    """What was found, the plot and the tree."""
    parts = ["<h2>First difference</h2>", f"<p>{escape(str(difference))}</p>"]
    parts += [f"<dl>{''.join(_facts(difference))}</dl>"]
    if difference.layers:
        parts += [
            "<h2>Error along the graph</h2>",
            "<p class=\"soft\">Largest difference relative to each value's scale. Line: in the candidate's own run, where errors "
            "are handed on. Dots: each node fed with the reference's values. The ring marks the first difference.</p>",
            f'<div class="wide">{_plot(difference)}</div>',
            "<h2>Modules</h2>",
            _tree(difference),
        ]
    return "\n".join(parts)


def _facts(difference: Difference) -> Iterator[str]:
    facts = {
        "ONNX node": difference.node and f"{difference.operator} {difference.node}",
        "value": difference.value,
        "torch operator": difference.torch_operator,
        "module": difference.module,
        "source": difference.source,
        "inputs": difference.case,
        "judged together": ", ".join(difference.nodes) if len(difference.nodes) > 1 else "",
        "how": difference.note,
    }
    for name, text in facts.items():
        if text:
            yield f"<dt>{name}</dt><dd><code>{escape(text)}</code></dd>"


def _height(error: float) -> float:
    """The y coordinate of a relative error."""
    power = HIGHEST if math.isinf(error) else math.log10(error) if error > 0 else LOWEST
    share = (min(max(power, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return round(8 + (1 - share) * (HEIGHT - BOTTOM - 8), 1)


def _plot(difference: Difference) -> str:
    layers = difference.layers
    step = (WIDTH - LEFT - 12) / max(len(layers) - 1, 1)
    places = [round(LEFT + position * step, 1) for position in range(len(layers))]
    line = " ".join(f"{x},{_height(layer.error)}" for x, layer in zip(places, layers))
    dots = "".join(_dot(x, layer, layer.value == difference.value) for x, layer in zip(places, layers))
    name = escape(f"relative error of {len(layers)} values along the graph", quote=True)
    box = f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">'
    curve = f'<polyline points="{line}" fill="none" stroke="var(--bar)" stroke-width="1.5"/>'
    return f"{box}{_grid()}{curve}{dots}{_marks(difference, places)}</svg>"


def _grid() -> str:
    rows = []
    for power in range(LOWEST, HIGHEST + 1, 2):
        y = _height(10.0**power)
        rows.append(f'<line x1="{LEFT}" x2="{WIDTH - 12}" y1="{y}" y2="{y}" stroke="var(--line)"/>')
        rows.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">1e{power}</text>')
    rows.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">first node</text>')
    rows.append(f'<text x="{WIDTH - 12}" y="{HEIGHT - 6}" text-anchor="end">outputs</text>')
    return "".join(rows)


def _dot(x: float, layer: Layer, first: bool) -> str:
    title = f"{layer.operator} {layer.node}, {layer.module or 'root'}, {layer.source}: {layer.error:.2g}, alone {layer.local:.2g}"
    colour = "var(--fail)" if first else "var(--soft)"
    return (
        f'<circle cx="{x}" cy="{_height(layer.local)}" r="2.5" fill="{colour}"><title>{escape(title)}</title></circle>'
    )


def _marks(difference: Difference, places: list[float]) -> str:
    """A ring around the first difference, with its name beside it."""
    for x, layer in zip(places, difference.layers):
        if layer.value == difference.value:
            y = _height(layer.local)
            side = "end" if x > WIDTH / 2 else "start"
            label = escape(f"{layer.operator} {layer.node}")
            ring = f'<circle cx="{x}" cy="{y}" r="7" fill="none" stroke="var(--fail)" stroke-width="2"/>'
            return (
                f'{ring}<text x="{x + (-12 if side == "end" else 12)}" y="{y - 10}" text-anchor="{side}">{label}</text>'
            )
    return ""


Tree = dict[str, "Tree"]


def _tree(difference: Difference) -> str:
    """Modules inside modules, each coloured by the largest error of what it computes itself or inside."""
    root: Tree = {}
    for layer in difference.layers:
        place = root
        for part in _path(layer.module):
            place = place.setdefault(part, {})
    return _branch("", "model", root, difference)


def _path(module: str) -> list[str]:
    """``blocks.0.norm`` lies in ``blocks.0``, which lies in ``blocks``."""
    parts = module.split(".") if module else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _branch(module: str, title: str, inner: Tree, difference: Difference) -> str:
    layers = [layer for layer in difference.layers if _is_inside(layer.module, module)]
    worst = max((layer.local for layer in layers), default=0.0)
    own = [layer for layer in layers if layer.module == module]
    here = any(layer.value == difference.value for layer in layers)
    sources = sorted({layer.source for layer in own if layer.source})
    label = f'{_chip(worst)}<b>{escape(title)}</b> <span class="soft">{escape(", ".join(sources))}</span> {worst:.2g}'
    children = "".join(_branch(name, name.rsplit(".", 1)[-1], below, difference) for name, below in inner.items())
    leaves = "".join(_leaf(layer, layer.value == difference.value) for layer in own)
    opened = " open" if here or not module else ""
    return f'<details class="{"root" if not module else "part"}"{opened}><summary>{label}</summary>{leaves}{children}</details>'


def _is_inside(module: str, outer: str) -> bool:
    return not outer or module == outer or module.startswith(f"{outer}.")


def _leaf(layer: Layer, first: bool) -> str:
    mark = ' class="first"' if first else ""
    text = f"{escape(layer.operator)} <code>{escape(layer.node)}</code>"
    source = f'<span class="soft">{escape(layer.source)}</span>'
    return f'<div class="leaf"><span{mark}>{_chip(layer.local)}{text}</span> {source} {layer.local:.2g}</div>'


def _chip(error: float) -> str:
    """Green at 1e-8 of the scale and below, red at 1e-2 and above."""
    power = 0.0 if math.isinf(error) else math.log10(error) if error > 0 else -9.0
    share = min(max((power + 8) / 6, 0.0), 1.0)
    return f'<span class="chip" style="background:hsl({round(130 * (1 - share))} 60% 45%)"></span>'
