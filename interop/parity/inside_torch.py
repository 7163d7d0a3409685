"""The inner values of a torch candidate, next to those of the torch module that is its reference.

Both become programs of operators, of which those of the same kind, in the same module and in the same order are the same.
Where one of them cannot be captured, the outputs of the submodules that both have are compared instead, through hooks.
"""

from __future__ import annotations

import contextlib
import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from interop.extras import require
from interop.frameworks import convert
from interop.parity.captured import Inside as Values
from interop.parity.captured import module_of, quietly, run_program
from interop.parity.figures import as_numpy
from interop.parity.graph import Execution, Graph
from interop.parity.noise import MODEL_ERRORS, SAMPLES
from interop.parity.origin import Origin, PlainNode, line_of
from interop.parity.sources import Captured, Source
from interop.parity.variants import Float64, Jitter, Variant
from interop.parity.witness import ModuleWitness, Witness, evaluating, keep_rng

if TYPE_CHECKING:
    from interop.parity.locate import Search

__all__ = ["open_torch"]

Array = npt.NDArray[Any]

OPERATORS = "each operator was fed with the values of the reference's own program"
MODULES = "each submodule was fed with the reference's values; which operator inside it differs cannot be seen"
UNEXPLAINED = "run operator by operator, nothing differs"


def open_torch(search: Search, witness: Witness) -> Any:
    """A torch candidate next to its reference, or one sentence that says why there is nothing to compare.

    Args:
        search: what to look for.
        witness: the candidate.
    """
    reference = search.reference
    if not isinstance(reference, ModuleWitness) or not isinstance(witness, ModuleWitness):
        return "the inner values of a torch candidate can only be compared with those of a torch reference"
    torch = require("torch", "to look into a module")
    if any(isinstance(one.module, torch.jit.ScriptModule) for one in (reference, witness)):
        return "TorchScript runs a module as one block; compare the nn.Module that it was made from to see inside"
    with keep_rng(search.seed), quietly(), torch.no_grad():
        return (
            _open_programs(search, reference, witness) or _open_modules(search, reference, witness) or _NOTHING_COMMON
        )


_NOTHING_COMMON = (
    "the candidate and the reference have no operators or submodules in common that could be compared one by one"
)


# ------------------------------------------------------------------------------------------------------------ programs


@dataclass(frozen=True)
class ProgramInside:
    """A captured program, whose values have its nodes' names."""

    graph: Graph
    source: Source | None
    module: Any
    inputs: tuple[Any, ...]
    unexplained: str = UNEXPLAINED
    format: str = ""

    def run(self, feeds: Mapping[str, Array], pinned: Mapping[str, Array] | None = None) -> Execution:
        """See ``interop.parity.inside.Inside``; the inputs are already those of the search."""
        torch = require("torch", "to run a module")
        done, pins = Execution(), pinned or {}
        positions = {node.name: position for position, node in enumerate(self.graph.nodes)}

        class Judging(torch.fx.Interpreter):  # type: ignore[misc, name-defined] # untyped in torch
            def run_node(self, node: Any) -> Any:
                try:
                    result = super().run_node(node)
                except MODEL_ERRORS as error:
                    if node.name not in positions or node.name not in pins:
                        raise
                    done.errors[positions[node.name]] = " ".join(str(error).split())[:300]
                    return convert(pins[node.name], "torch", copy=True)
                if node.name in positions and torch.is_tensor(result):
                    done.values[node.name] = as_numpy(result.detach().cpu()).copy()
                return convert(pins[node.name], "torch", copy=True) if node.name in pins else result

        prepared = [value.clone() if torch.is_tensor(value) else value for value in self.inputs]
        with (
            keep_rng(0),
            torch.no_grad(),
            contextlib.suppress(*MODEL_ERRORS),
        ):  # what comes after an error has no values
            Judging(self.module).run(*prepared, enable_io_processing=False)
        return done


def _open_programs(search: Search, reference: ModuleWitness, candidate: ModuleWitness) -> ProgramInside | None:
    theirs, ours = _program(reference, search), _program(candidate, search)
    if theirs is None or ours is None:
        return None
    names = _matched(theirs[0], ours[0])
    if not names:
        return None
    with evaluating(theirs[0]), require("torch", "to run a module").no_grad():
        values = run_program(theirs[0], list(theirs[1]), names, search.seed)
    if values is None:
        return None
    nodes = tuple(_plain(node) for node in ours[0].graph.nodes if _computes(node))
    graph = Graph(nodes, (), _outputs(ours[0]), {}, {}, None)
    return ProgramInside(graph, Captured(values, OPERATORS), *ours)


def _program(witness: ModuleWitness, search: Search) -> tuple[Any, tuple[Any, ...]] | None:
    """A module as a program, and what its placeholders take; None where it cannot be captured."""
    torch = require("torch", "to capture a module")
    args, kwargs = witness.arguments(witness.prepare(search.tensors), search.naming)
    module = witness.module
    if not isinstance(module, torch.fx.GraphModule):
        try:
            with evaluating(module):
                module = torch.export.export(module, tuple(args), dict(kwargs), strict=False).module()
        except Exception:  # noqa: BLE001 - capturing runs the user's code, which raises anything; there is another way to look
            return None
    leaves = tuple(torch.utils._pytree.tree_leaves((tuple(args), dict(kwargs))))
    takes = sum(node.op == "placeholder" for node in module.graph.nodes)
    return (module, leaves) if takes == len(leaves) else None


def _computes(node: Any) -> bool:
    return node.op in ("call_function", "call_method", "call_module") and not str(node.target).startswith("_guards")


def _matched(reference: Any, candidate: Any) -> dict[str, str]:
    """``{node of the reference: node of the candidate}``: the first of a kind in a module is the first of that kind."""
    theirs, ours = (_by_kind(module.graph.nodes) for module in (reference, candidate))
    found = {
        one: other
        for kind, names in theirs.items()
        if len(ours.get(kind, ())) == len(names)
        for one, other in zip(names, ours[kind])
    }
    return found | dict(zip(_outputs(reference), _outputs(candidate))) if found else {}


def _by_kind(nodes: Any) -> dict[tuple[str, str], list[str]]:
    found = defaultdict(list)
    for node in filter(_computes, nodes):
        found[str(node.target), module_of(node)].append(node.name)
    return found


def _outputs(module: Any) -> tuple[str, ...]:
    """The nodes that make the outputs, in order; empty where one of them is an input or a constant."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    made = [leaf for leaf in require("torch", "").utils._pytree.tree_leaves(output.args) if hasattr(leaf, "op")]
    return tuple(node.name for node in made) if all(map(_computes, made)) else ()


def _plain(node: Any) -> PlainNode:
    operator = str(node.target)
    origin = Origin(
        module_of(node), operator, line_of(node.meta.get("stack_trace") or node.stack_trace or ""), node.name
    )
    return PlainNode(node.name, operator, tuple(one.name for one in node.all_input_nodes), (node.name,), origin)


# ------------------------------------------------------------------------------------------------------------- modules


@dataclass(frozen=True)
class ModulesInside:
    """A module whose submodules' outputs are its values."""

    graph: Graph
    source: Source | None
    witness: ModuleWitness
    search: Any
    unexplained: str = UNEXPLAINED
    format: str = ""

    def run(self, feeds: Mapping[str, Array], pinned: Mapping[str, Array] | None = None) -> Execution:
        """See ``interop.parity.inside.Inside``; the inputs are already those of the search."""
        pins = {name: convert(values, "torch", copy=True) for name, values in (pinned or {}).items()}
        found = _run_modules(self.witness, self.search, pins)
        done = Execution()
        done.values.update({name: as_numpy(value) for name, value in found.items()})
        return done


def _open_modules(search: Search, reference: ModuleWitness, candidate: ModuleWitness) -> ModulesInside | None:
    try:
        theirs, ours = _run_modules(reference, search, {}), _run_modules(candidate, search, {})
        common = {name: value for name, value in theirs.items() if name in ours}
        if not common:
            return None
        variants: list[Variant] = [Float64(), *(Jitter(search.seed + number) for number in range(SAMPLES + 1))]
        truths, *samples = (_run_modules(reference, search, common, variant) for variant in variants)
    except MODEL_ERRORS:
        return None
    plain = [{name: as_numpy(run[name]) for name in common if name in run} for run in (common, truths, *samples)]
    nodes = tuple(_module_node(name, candidate.module) for name in ours)
    source = Captured(Values(plain[0], plain[1], tuple(plain[2:])), MODULES)
    return ModulesInside(Graph(nodes, (), (), {}, {}, None), source, candidate, search)


def _module_node(value: str, root: Any) -> PlainNode:
    path = value.split("#")[0].split("[")[0]
    path = "" if path == _ROOT else path
    kind = type(root.get_submodule(path))
    return PlainNode(path or _ROOT, kind.__name__, (), (value,), Origin(path, "", _line_of_class(kind)))


def _line_of_class(kind: type) -> str:
    try:
        return f"{Path(inspect.getfile(kind)).name}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return ""


_ROOT = "(root)"


def _run_modules(
    witness: ModuleWitness, search: Search, pins: Mapping[str, Any], variant: Variant | None = None
) -> dict[str, Any]:
    """Run a module; note the output of each submodule, and hand the pinned one on in its place."""
    torch = require("torch", "to run a module")
    paths = {id(part): path or _ROOT for path, part in witness.module.named_modules()}
    counts: dict[str, int] = defaultdict(int)
    found: dict[str, Any] = {}

    def note(name: str, leaf: Any) -> Any:
        if not torch.is_tensor(leaf):
            return leaf
        found[name] = leaf.detach().cpu().clone()
        if name not in pins:
            return leaf
        pin = pins[name].to(leaf.device).clone()
        return pin if variant is None else variant.prepare(pin)

    def hook(module: Any, args: Any, output: Any) -> Any:
        path = paths.get(id(module))
        if path is None:
            return None
        counts[path] += 1
        name = path if counts[path] == 1 else f"{path}#{counts[path]}"
        leaves, tree = torch.utils._pytree.tree_flatten(output)
        names = [name] if len(leaves) == 1 else [f"{name}[{number}]" for number in range(len(leaves))]
        return torch.utils._pytree.tree_unflatten(list(map(note, names, leaves)), tree)

    with _hooked(torch, hook):
        witness.run(search.tensors, search.naming, variant)
    return found


@contextlib.contextmanager
def _hooked(torch: Any, hook: Any) -> Iterator[None]:
    """A hook on every module of the process: the candidate's own hooks stay as they are."""
    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
