"""Which inner value of a candidate is the first beyond its noise, and what is told about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.parity.compare import OutputComparison, compare_output
from interop.parity.difference import Difference, Evidence, Layer
from interop.parity.figures import as_numpy, scale_of
from interop.parity.graph import PREFIX, Execution, Graph, inputs_of, segment_of, submodel
from interop.parity.inside import Inside, OnnxInside
from interop.parity.origin import origin_of
from interop.parity.sources import Source
from interop.parity.tolerance import Allowance

__all__ = ["Judged", "Subject", "describe", "first_of", "judge_all", "layers_of"]

Array = npt.NDArray[Any]

MARGIN = 1e-2
"""A value counts as the first one only if it is not a hundred times less beyond its noise than the worst one is."""
EVIDENCE_BYTES = 1 << 28
"""Larger operators get no reproduction: their weights would be held as long as the report is."""


@dataclass(frozen=True)
class Judged:
    """One value, computed from the reference's values."""

    position: int
    value: str
    reason: str
    excess: float
    figures: OutputComparison | None = None


def judge_all(inside: Inside, feeds: Mapping[str, Array], source: Source, free: Execution) -> list[Judged]:
    """Every value that differs in any bit from the reference's, in the order of the graph."""
    graph = inside.graph
    made = {name for node in graph.nodes for name in node.output if name}
    pinned = {name: values for name, values in source.own.items() if name in made}
    done = inside.run(feeds, pinned)
    judged = []
    for position, node in enumerate(graph.nodes):
        if position in done.errors and position in free.errors:
            judged.append(Judged(position, node.output[0], f"it raised {done.errors[position]}", math.inf))
        for name in node.output:
            if name in pinned and name in done.values:
                result = _judge(position, name, done.values[name], source)
                judged += [] if result is None else [result]
    return judged


def _judge(position: int, name: str, found: Array, source: Source) -> Judged | None:
    own = source.own[name]
    if own.dtype == found.dtype and own.shape == found.shape and own.tobytes() == found.tobytes():
        return None
    allowance, truth = source.allowance(name)
    figures = compare_output(name, own, found, allowance, truth)
    if figures.passed and not figures.max_abs:
        return None
    exact = dtype_of(own.dtype).kind not in ("float", "complex")
    if not figures.passed and exact and source.wavers(name, found):
        return None
    return Judged(position, name, figures.reason, _excess(figures, allowance), figures)


def _excess(figures: OutputComparison, allowance: Allowance | None) -> float:
    """How many times the allowed difference; infinity where something else than size differs."""
    if allowance is None or not allowance.atol:
        return math.inf
    sizes = [figures.max_abs / allowance.atol, figures.rms / (allowance.rms or math.inf)]
    if not figures.passed and max(sizes) <= 1:
        return math.inf
    return max(sizes)


def first_of(judged: list[Judged]) -> Judged | None:
    """The first value beyond its noise, or the one that comes nearest to that."""
    if not judged:
        return None
    worst = max(judged, key=lambda one: one.excess)
    if worst.excess <= 1:
        return worst
    limit = max(1.0, MARGIN * worst.excess)
    return next(one for one in judged if one.excess > limit or one is worst)


@dataclass(frozen=True)
class Subject:
    """What is described.

    Attributes:
        inside: the candidate.
        label: what it is called.
        case: the name of the inputs.
        tensors: the inputs.
    """

    inside: Inside
    label: str
    case: str
    tensors: Mapping[str, Any]


def describe(subject: Subject, judged: list[Judged], source: Source, free: Execution) -> Difference | None:
    """The first difference among judged values; None where there is none.

    Args:
        subject: the candidate and its inputs.
        judged: its values that differ, in order.
        source: where the reference's values are from.
        free: the candidate's own values.
    """
    first, graph = first_of(judged), subject.inside.graph
    if first is None:
        return None
    positions = segment_of(graph, first.value, source.own) or [first.position]
    suspects = [position for position in positions if not source.is_same(graph, graph.nodes[position])]
    chosen = suspects[0] if suspects and len(suspects) < len(positions) else first.position
    node, origin = graph.nodes[chosen], origin_of(graph.nodes[chosen])
    near = "; no value leaves its own noise there, this one comes nearest" if first.excess <= 1 else ""
    return Difference(
        subject.label,
        subject.case,
        first.value,
        _label(graph, chosen),
        node.op_type,
        origin.torch_operator,
        origin.module,
        origin.source,
        first.reason or (f"differs by {first.figures.max_abs:.3g}" if first.figures else ""),
        source.note + near,
        tuple(_label(graph, position) for position in positions),
        first.figures,
        tuple(layers_of(graph, judged, source, free)),
        _evidence(subject, first, positions, source),
    )


def _label(graph: Graph, position: int) -> str:
    node = graph.nodes[position]
    return str(node.name) or f"{node.op_type} #{position}"


def layers_of(graph: Graph, judged: list[Judged], source: Source, free: Execution) -> Iterator[Layer]:
    """The errors along the graph, of float values."""
    local = {one.value: one for one in judged}
    for position, node in enumerate(graph.nodes):
        origin = origin_of(node)
        for name in node.output:
            own, found = source.own.get(name), free.values.get(name)
            if own is None or found is None or dtype_of(own.dtype).kind != "float":
                continue
            alone = local[name].figures if name in local else None
            near = alone.max_abs / (scale_of(own) or 1.0) if alone is not None else 0.0
            far = _relative_error(own, found)
            yield Layer(name, _label(graph, position), node.op_type, origin.module, origin.source, far, near)


def _relative_error(own: Array, found: Array) -> float:
    """The largest difference relative to the scale; infinity for another shape or other NaN."""
    if own.shape != found.shape or not np.array_equal(np.isfinite(own), np.isfinite(found)):
        return math.inf
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(own.astype(np.float64) - found.astype(np.float64))
    return float(np.max(distance, initial=0.0, where=np.isfinite(distance))) / (scale_of(own) or 1.0)


def _evidence(subject: Subject, first: Judged, positions: list[int], source: Source) -> Evidence | None:
    """The judged nodes as a model of their own, if that is small enough to be kept."""
    if not isinstance(subject.inside, OnnxInside):
        return None
    graph = subject.inside.graph
    values = {**{name: as_numpy(value) for name, value in subject.tensors.items()}, **source.own}
    nodes = [graph.nodes[position] for position in positions]
    made = {name for node in nodes for name in node.output}
    missing = {name for node in nodes for name in inputs_of(node)} - {*values, *graph.weights, *graph.constants, *made}
    if missing or first.value not in source.own:
        return None
    model, feeds = submodel(graph, nodes, values, {first.value: None}, [PREFIX + first.value])
    if sum(array.nbytes for array in feeds.values()) > EVIDENCE_BYTES:
        return None
    allowed = first.figures.allowed if first.figures is not None else 0.0
    allowed = (
        min(allowed, first.figures.max_abs / 2) if first.figures is not None and first.figures.max_abs else allowed
    )
    return Evidence(model.SerializeToString(), feeds, source.own[first.value], allowed)
