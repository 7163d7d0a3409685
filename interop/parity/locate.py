"""Which operator of an ONNX candidate is the first that computes something else?

Every node of the candidate is fed with the reference's values, so that no error is handed on, and its result is compared
with the reference's. Where the reference has no value inside a group of nodes, the group is judged as a whole. The
reference's values come from

- another ONNX model with the same value names: the original of a changed file, or a fresh export of the module;
- else from the torch module, captured and run operator by operator (``interop.parity.captured``).

A value may be off by the noise of the nodes that it is judged over, measured by moving what enters them by an ulp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.errors import InputError, InteropError
from interop.extras import loaded
from interop.parity.captured import look_inside
from interop.parity.cases import given_cases
from interop.parity.compare import OutputComparison, compare_all, compare_output
from interop.parity.difference import Difference, Evidence, Layer
from interop.parity.figures import as_numpy, scale_of
from interop.parity.graph import (
    PREFIX,
    Execution,
    Graph,
    execute,
    inputs_of,
    open_graph,
    origin_of,
    segment_of,
    submodel,
)
from interop.parity.noise import allowances_of, measure
from interop.parity.sources import Captured, Source, Twin
from interop.parity.tolerance import Allowance
from interop.parity.witness import ModuleWitness, Witness, keep_rng, naming_of, witness_of
from interop.signature import Signature

__all__ = ["Search", "find_difference", "locate"]

Array = npt.NDArray[Any]

MARGIN = 1e-2
"""A value counts as the first one only if it is not a hundred times less beyond its noise than the worst one is."""
EVIDENCE_BYTES = 1 << 28
"""Larger operators get no reproduction: their weights would be held as long as the report is."""


def locate(
    reference: Any,
    candidate: Any,
    inputs: Any,
    *,
    twin: Any = None,
    seed: int = 0,
) -> Difference | None:
    """Find the first operator of an ONNX candidate that computes something else than the reference.

    Args:
        reference: an ``nn.Module`` or an ONNX model with the candidate's value names.
        candidate: an ONNX file, an ONNX model in memory, or an exported model.
        inputs: one ``{input name: tensor}``, one tuple of positional arguments, or one tensor.
        twin: a right ONNX export of the reference, which has values inside torch operators too. Without it, one is made
            if ``exporters`` was imported.
        seed: of the noise.

    Returns:
        The difference, or None: no value differs beyond its noise, or the candidate's values cannot be seen.

    Raises:
        InputError: the inputs do not fit the reference.
        ModelFileError: a file is damaged.

    Example:
        >>> print(locate(model, "model.onnx", (torch.rand(2, 3),)))
    """
    with keep_rng(seed):
        graph = open_graph(candidate)
        if graph is None:
            return None
        witness, other = witness_of(reference), witness_of(candidate)
        case = next(iter(given_cases(inputs, witness, [other])), None)
        if case is None:
            raise InputError("locate needs one set of inputs")
        naming = naming_of(witness, other)
        search = Search(reference, witness, graph, naming, case.tensors, other.name, case.name, seed, twin)
        try:
            failed = not _agrees(search, other.run(case.tensors, naming))
        except InteropError:
            failed = True
        return find_difference(replace(search, failed=failed))


@dataclass(frozen=True)
class Search:
    """What to look for and where.

    Attributes:
        model: the reference as the caller gave it.
        reference: the same, ready to run.
        graph: the candidate.
        naming: the names of inputs and outputs.
        tensors: the inputs.
        label: the candidate's label.
        case: the name of the inputs.
        seed: of the noise.
        twin: a right export of the reference, if the caller has one.
        failed: the candidate's outputs are known to differ, so that something has to be found.
    """

    model: Any
    reference: Witness
    graph: Graph
    naming: Signature | None
    tensors: Mapping[str, Any]
    label: str
    case: str
    seed: int = 0
    twin: Any = None
    failed: bool = True


def find_difference(search: Search) -> Difference | None:
    """See ``locate``."""
    feeds = {
        name: np.ascontiguousarray(as_numpy(search.tensors[name]))
        for name in search.graph.inputs
        if name in search.tensors
    }
    if len(feeds) < len(search.graph.inputs):
        return None
    free = execute(search.graph, feeds)
    found: list[Difference] = []
    near: list[Difference] = []
    for source in _sources(search, feeds):
        judged = _judge_all(search.graph, feeds, source, free)
        first = _first(judged)
        if first is not None:
            (found if first.excess > 1 else near).append(_describe(search, first, judged, source, free))
        if (found and len(found[-1].nodes) == 1) or ((found or near) and isinstance(source, Twin)):
            break  # no other source could say more
    if found:
        return min(found, key=lambda one: len(one.nodes))
    if not search.failed:
        return None
    if _agrees(search, free.values):
        reason = "with ONNX Runtime's graph optimisations off, nothing differs: one of them makes the difference"
        return Difference(search.label, search.case, "", "", "", reason=reason)
    return near[-1] if near else None


def _agrees(search: Search, values: Mapping[str, Any]) -> bool:
    """True where these outputs are the reference's, within its noise."""
    outputs = {name: values[name] for name in search.graph.outputs if name in values}
    if len(outputs) < len(search.graph.outputs):
        return False
    expected = search.reference.run(search.tensors, search.naming)
    noise = measure(search.reference, search.tensors, search.naming, search.seed)
    allowances, truths = allowances_of(noise, expected)
    return compare_all(expected, outputs, allowances, {}, truths).passed


def _sources(search: Search, feeds: Mapping[str, Array]) -> Iterator[Source]:
    """The sources that there are; later ones are dearer, or see more."""
    given = search.twin
    if given is None and not isinstance(search.reference, ModuleWitness):
        given = search.model
    if isinstance(search.reference, ModuleWitness) and given is None:
        inside = look_inside(search.reference, search.tensors, search.naming, search.graph, search.seed)
        if inside is not None:
            yield Captured(inside)
        given = _fresh_export(search)
    twin = None if given is None else open_graph(given)
    if twin is not None and set(twin.inputs) <= set(feeds):
        yield Twin(twin, feeds, search.seed)
    if isinstance(search.reference, ModuleWitness) and search.twin is not None:
        inside = look_inside(search.reference, search.tensors, search.naming, search.graph, search.seed)
        if inside is not None:
            yield Captured(inside)


def _fresh_export(search: Search) -> Any:
    """A new export of the reference, where the exporters were imported; None where there is none."""
    exporters = loaded("exporters")
    if exporters is None or not hasattr(exporters, "export_model") or not isinstance(search.reference, ModuleWitness):
        return None
    args, kwargs = search.reference.arguments(search.reference.prepare(search.tensors), search.naming)
    try:
        return exporters.export_model(search.model, "onnx", inputs=tuple(args), kwargs=dict(kwargs), verify=False)
    except InteropError:
        return None


@dataclass(frozen=True)
class _Judged:
    """One value, computed from the reference's values."""

    position: int
    value: str
    reason: str
    excess: float
    figures: OutputComparison | None = None


def _judge_all(graph: Graph, feeds: Mapping[str, Array], source: Source, free: Execution) -> list[_Judged]:
    """Every value that differs in any bit from the reference's, in the order of the graph."""
    made = {name for node in graph.nodes for name in node.output if name}
    pinned = {name: values for name, values in source.own.items() if name in made}
    done = execute(graph, feeds, pinned)
    judged = []
    for position, node in enumerate(graph.nodes):
        if position in done.errors and position in free.errors:
            judged.append(_Judged(position, node.output[0], f"it raised {done.errors[position]}", math.inf))
        for name in node.output:
            if name in pinned and name in done.values:
                result = _judge(position, name, done.values[name], source)
                judged += [] if result is None else [result]
    return judged


def _judge(position: int, name: str, found: Array, source: Source) -> _Judged | None:
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
    return _Judged(position, name, figures.reason, _excess(figures, allowance), figures)


def _excess(figures: OutputComparison, allowance: Allowance | None) -> float:
    """How many times the allowed difference; infinity where something else than size differs."""
    if allowance is None or not allowance.atol:
        return math.inf
    sizes = [figures.max_abs / allowance.atol, figures.rms / (allowance.rms or math.inf)]
    if not figures.passed and max(sizes) <= 1:
        return math.inf
    return max(sizes)


def _first(judged: list[_Judged]) -> _Judged | None:
    """The first value beyond its noise, or the one that comes nearest to that."""
    if not judged:
        return None
    worst = max(judged, key=lambda one: one.excess)
    if worst.excess <= 1:
        return worst
    limit = max(1.0, MARGIN * worst.excess)
    return next(one for one in judged if one.excess > limit or one is worst)


def _describe(search: Search, first: _Judged, judged: list[_Judged], source: Source, free: Execution) -> Difference:
    graph = search.graph
    positions = segment_of(graph, first.value, source.own) or [first.position]
    suspects = [position for position in positions if not source.is_same(graph, graph.nodes[position])]
    chosen = suspects[0] if suspects and len(suspects) < len(positions) else first.position
    node, origin = graph.nodes[chosen], origin_of(graph.nodes[chosen])
    note = source.note
    if first.excess <= 1:
        note += "; no value leaves its own noise there, this one comes nearest"
    return Difference(
        search.label,
        search.case,
        first.value,
        _label(graph, chosen),
        node.op_type,
        origin.torch_operator,
        origin.module,
        origin.source,
        first.reason or f"differs by {first.figures.max_abs:.3g}" if first.figures else first.reason,
        note,
        tuple(_label(graph, position) for position in positions),
        first.figures,
        tuple(_layers(graph, judged, source, free)),
        _evidence(search, first, positions, source),
    )


def _label(graph: Graph, position: int) -> str:
    node = graph.nodes[position]
    return str(node.name) or f"{node.op_type} #{position}"


def _layers(graph: Graph, judged: list[_Judged], source: Source, free: Execution) -> Iterator[Layer]:
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


def _evidence(search: Search, first: _Judged, positions: list[int], source: Source) -> Evidence | None:
    """The judged nodes as a model of their own, if that is small enough to be kept."""
    graph = search.graph
    values = {**{name: as_numpy(value) for name, value in search.tensors.items()}, **source.own}
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
