"""Which operator of a candidate is the first that computes something else?

Every node of the candidate is fed with the reference's values, so that no error is handed on, and its result is compared
with the reference's. Where the reference has no value inside a group of nodes, the group is judged as a whole. The
reference's values come from

- another ONNX model with the same value names: the original of a changed file, or a fresh export of the module;
- else from the torch module, captured and run operator by operator (``interop.parity.captured``);
- for a torch candidate, from the reference's own program or submodules (``interop.parity.inside_torch``).

A value may be off by the noise of the nodes that it is judged over, measured by moving what enters them by an ulp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.errors import InputError, InteropError
from interop.extras import loaded
from interop.parity.captured import look_inside
from interop.parity.cases import given_cases
from interop.parity.compare import compare_all
from interop.parity.difference import Difference, Layer
from interop.parity.figures import as_numpy
from interop.parity.graph import Graph, open_graph
from interop.parity.inside import Closed, Inside, OnnxInside, open_inside
from interop.parity.inside_torch import open_torch
from interop.parity.judged import Subject, describe, first_of, judge_all, layers_of
from interop.parity.noise import MODEL_ERRORS, allowances_of, measure
from interop.parity.sources import Captured, Source, Twin
from interop.parity.witness import ModuleWitness, Witness, keep_rng, naming_of, witness_of
from interop.signature import Signature

__all__ = ["Search", "explain", "find_difference", "layer_errors", "locate"]

Array = npt.NDArray[Any]


def locate(
    reference: Any,
    candidate: Any,
    inputs: Any,
    *,
    twin: Any = None,
    seed: int = 0,
) -> Difference | None:
    """Find the first operator of a candidate that computes something else than the reference.

    Args:
        reference: an ``nn.Module`` or an ONNX model with the candidate's value names.
        candidate: an ONNX or TensorFlow model, as a file or exported and in memory, or a torch module or program.
        inputs: one ``{input name: tensor}``, one tuple of positional arguments, or one tensor.
        twin: a right ONNX export of the reference, which has values inside torch operators too. Without it, one is made
            if ``exporters`` was imported.
        seed: of the noise.

    Returns:
        The difference, or None where no value differs beyond its noise. A candidate that differs, but whose values cannot
        be seen, gives a difference without a node, whose ``reason`` says why.

    Raises:
        InputError: the inputs do not fit the reference.
        ModelFileError: a file is damaged.

    Example:
        >>> print(locate(model, "model.onnx", (torch.rand(2, 3),)))
    """
    with keep_rng(seed):
        witness, other = witness_of(reference), witness_of(candidate)
        case = next(iter(given_cases(inputs, witness, [other])), None)
        if case is None:
            raise InputError("locate needs one set of inputs")
        tensors, naming = case.tensors_of(other), naming_of(witness, other)
        search = Search(reference, witness, None, naming, tensors, other.name, case.name, seed, twin)
        search = replace(search, failed=_fails(search, other))
        if other.name == "onnxruntime":  # whose session holds the weights once or twice, and is not needed any more
            other = Closed(other)
            del case
        return explain(search, candidate, other)


def layer_errors(reference: Any, candidate: Any, inputs: Any, *, seed: int = 0) -> tuple[Layer, ...]:
    """The error of every value along a candidate's graph, whether or not the candidate differs.

    Args:
        reference: as for ``locate``, as are the candidate, the inputs and the seed.
        candidate: what is measured.
        inputs: one set.
        seed: of the noise.

    Raises:
        InputError: the inputs do not fit, or no inner values can be compared; the message says why.
        ModelFileError: a file is damaged.
    """
    with keep_rng(seed):
        witness, other = witness_of(reference), witness_of(candidate)
        case = next(iter(given_cases(inputs, witness, [other])), None)
        if case is None:
            raise InputError("layer_errors needs one set of inputs")
        tensors, naming = case.tensors_of(other), naming_of(witness, other)
        search = Search(reference, witness, None, naming, tensors, other.name, case.name, seed)
        inside = open_inside(candidate, other) or open_torch(search, other)
        if isinstance(inside, str):
            raise InputError(f"the layers of this candidate cannot be compared: {inside}")
        search = replace(search, inside=inside)
        feeds = _feeds(search, inside)
        free = inside.run(feeds)
        for source in _sources(search, feeds):
            return tuple(layers_of(inside.graph, judge_all(inside, feeds, source, free), source, free))
        raise InputError(f"the layers of this candidate cannot be compared: {_NO_SOURCE.partition(': ')[2]}")


def _feeds(search: Search, inside: Inside) -> dict[str, Array]:
    tensors = search.tensors
    return {name: np.ascontiguousarray(as_numpy(tensors[name])) for name in inside.graph.inputs if name in tensors}


@dataclass(frozen=True)
class Search:
    """What to look for and where.

    Attributes:
        model: the reference as the caller gave it.
        reference: the same, ready to run.
        graph: the candidate's nodes, where it is an ONNX model; None until it was opened.
        naming: the names of inputs and outputs.
        tensors: the inputs.
        label: the candidate's label.
        case: the name of the inputs.
        seed: of the noise.
        twin: a right export of the reference, if the caller has one.
        failed: the candidate's outputs are known to differ, so that something has to be found.
        inside: the candidate, opened.
        error: what it raised, or empty.
    """

    model: Any
    reference: Witness
    graph: Graph | None
    naming: Signature | None
    tensors: Mapping[str, Any]
    label: str
    case: str
    seed: int = 0
    twin: Any = None
    failed: bool = True
    inside: Inside | None = None
    error: str = ""

    def opened(self) -> Inside:
        """The candidate."""
        if self.inside is not None:
            return self.inside
        assert self.graph is not None
        return OnnxInside(self.graph)

    def untold(self, reason: str) -> Difference | None:
        """A difference without a place, if there has to be one."""
        return Difference(self.label, self.case, "", "", "", reason=reason) if self.failed else None


def explain(search: Search, candidate: Any, witness: Witness) -> Difference | None:
    """The first difference of a candidate that is yet to be opened.

    Args:
        search: what to look for.
        candidate: the candidate as the caller gave it.
        witness: the same, ready to run.

    Returns:
        A difference; one without a node, whose ``reason`` says why nothing was found, if the candidate is known to fail;
        else None.
    """
    try:
        inside = open_inside(candidate, witness)
        if inside is None:
            inside = open_torch(search, witness)
        if isinstance(inside, str):
            return search.untold(f"its first difference is not known: {inside}")
        found = find_difference(replace(search, inside=inside))
    except (InteropError, *MODEL_ERRORS) as error:  # a verdict is not lost because its cause is not found
        return search.untold(
            f"its first difference is not known: looking for it raised {type(error).__name__}: {error}"
        )
    return found or search.untold(_ITS_SIGNATURE if search.error else _NOTHING)


def find_difference(search: Search) -> Difference | None:
    """The first difference of an opened candidate; see ``locate``."""
    inside = search.opened()
    feeds = _feeds(search, inside)
    if len(feeds) < len(inside.graph.inputs):
        return search.untold("its first difference is not known: the inputs are not those of its graph")
    free = inside.run(feeds)
    subject = Subject(inside, search.label, search.case, search.tensors)
    found: list[Difference] = []
    near: list[Difference] = []
    sources = 0
    for source in _sources(search, feeds):
        sources += 1
        judged = judge_all(inside, feeds, source, free)
        first, place = first_of(judged), describe(subject, judged, source, free)
        if first is not None and place is not None:
            (found if first.excess > 1 else near).append(place)
        if (found and len(found[-1].nodes) == 1) or ((found or near) and isinstance(source, Twin)):
            break  # no other source could say more
    if found:
        return min(found, key=lambda one: len(one.nodes))
    if not search.failed:
        return None
    if not sources:
        return search.untold(_NO_SOURCE)
    if _agrees(search, free.values):
        return search.untold(_ITS_SIGNATURE if search.error else inside.unexplained)
    return near[-1] if near else None


_NO_SOURCE = (
    "its first difference is not known: the reference has no inner values to compare with; torch.export does not capture "
    "it, or does not name its operators as the candidate does; and exporters, which could make a right export, is not imported"
)


_NOTHING = "no inner value that it has in common with the reference differs beyond its noise"
_ITS_SIGNATURE = "no node raises or differs: what refuses these inputs is its signature, or how it was exported"


def _fails(search: Search, witness: Witness) -> bool:
    try:
        found = witness.run(search.tensors, search.naming)
    except (InteropError, *MODEL_ERRORS):
        return True
    return not _agrees(search, found, tuple(found))


def _agrees(search: Search, values: Mapping[str, Any], names: tuple[str, ...] = ()) -> bool:
    """True where these outputs are the reference's, within its noise."""
    names = names or search.opened().graph.outputs
    outputs = {name: values[name] for name in names if name in values}
    if len(outputs) < len(names):
        return False
    expected = search.reference.run(search.tensors, search.naming)
    noise = measure(search.reference, search.tensors, search.naming, search.seed)
    allowances, truths = allowances_of(noise, expected)
    return compare_all(expected, outputs, allowances, {}, truths).passed


def _sources(search: Search, feeds: Mapping[str, Array]) -> Iterator[Source]:
    """The sources that there are; later ones are dearer, or see more."""
    inside, given = search.opened(), search.twin
    if inside.source is not None:
        yield inside.source
        return
    if given is None and not isinstance(search.reference, ModuleWitness):
        given = search.model
    if isinstance(search.reference, ModuleWitness) and given is None:
        yield from _captured(search)
        given = _fresh_export(search)
    twin = None if given is None else open_graph(given)
    if twin is not None and set(twin.inputs) <= set(feeds):
        yield Twin(twin, feeds, search.seed)
    if search.twin is not None:
        yield from _captured(search)


def _captured(search: Search) -> Iterator[Source]:
    if not isinstance(search.reference, ModuleWitness):
        return
    inside = look_inside(search.reference, search.tensors, search.naming, search.opened().graph, search.seed)
    if inside is not None:
        yield Captured(inside)


def _fresh_export(search: Search) -> Any:
    """A new export of the reference, where the exporters were imported; None where there is none."""
    exporters = loaded("exporters")
    if exporters is None or not hasattr(exporters, "export_model") or not isinstance(search.reference, ModuleWitness):
        return None
    args, kwargs = search.reference.arguments(search.reference.prepare(search.tensors), search.naming)
    wanted = search.opened().format
    try:
        exported = exporters.export_model(search.model, wanted, inputs=tuple(args), kwargs=dict(kwargs), verify=False)
    except InteropError:
        return None
    return exported if wanted == "onnx" else exported.artifact.module.onnx_model
