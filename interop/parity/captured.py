"""What a torch module computes inside: every value of its captured program, named as torch.onnx names it.

The program runs operator by operator, in its own precision, in float64, and with every operand moved by an ulp. In the
last two, every value that the ONNX graph also has is put back to the reference's own before it is used: what they differ
by is the noise of the few operators between two such values, not of the whole model up to there.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from interop.extras import require
from interop.parity.figures import as_numpy
from interop.parity.graph import Graph
from interop.parity.noise import SAMPLES
from interop.parity.origin import origin_of
from interop.parity.variants import Float64, Jitter, Variant, is_large
from interop.parity.witness import ModuleWitness, evaluating, keep_rng
from interop.signature import Signature

__all__ = ["Inside", "look_inside", "module_of", "quietly", "run_program"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Inside:
    """The reference's values under the names of an ONNX graph.

    Attributes:
        own: in the reference's own precision.
        truths: in float64, from the nearest own values.
        samples: with moved operands, likewise.
    """

    own: Mapping[str, Array]
    truths: Mapping[str, Array]
    samples: tuple[Mapping[str, Array], ...]


def look_inside(
    witness: ModuleWitness, tensors: Mapping[str, Any], naming: Signature | None, graph: Graph, seed: int = 0
) -> Inside | None:
    """Capture a module and compute the values that an ONNX export of it also has.

    Args:
        witness: the reference.
        tensors: the inputs.
        naming: the signature that they are named by.
        graph: the ONNX graph, whose nodes say from which torch operators they come.
        seed: of the moved operands.

    Returns:
        None where torch.export cannot capture the module, or the graph does not say where its nodes come from.
    """
    torch = require("torch", "to capture a module")
    args, kwargs = witness.arguments(witness.prepare(tensors), naming)
    with keep_rng(seed), evaluating(witness.module), torch.no_grad(), quietly():
        for shapes in (_dynamic_shapes(witness.module, args, kwargs, tensors, naming), None):
            program = _capture(witness.module, tuple(args), dict(kwargs), shapes)
            names = {} if program is None else _match(program, graph)
            if names and program is not None:
                inputs = _placeholders(program, args, kwargs)
                return None if inputs is None else run_program(program.graph_module, inputs, names, seed)
            if shapes is None:
                break
    return None


def _capture(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> Any:
    """The program as torch.onnx decomposes it, or None."""
    torch = require("torch", "to capture a module")
    if args and isinstance(args[-1], dict) and not kwargs:
        args = (*args, {})  # torch.onnx takes a dict that stands last for the keyword arguments
    try:
        exported = torch.onnx.export(
            module, args, kwargs=kwargs, dynamic_shapes=shapes, dynamo=True, optimize=False, verbose=False
        )
    except Exception:  # noqa: BLE001 - capturing runs the user's code, which raises anything; there is another way to look
        return None
    return exported.exported_program


def _dynamic_shapes(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Any, naming: Signature | None
) -> Any:
    """The dims that the candidate has symbols for; the operators of a program are numbered by them."""
    torch = require("torch", "to capture a module")
    from torch.utils import _pytree as pytree

    symbols = {
        spec.name: [axis for axis, dim in enumerate(spec.shape or ()) if isinstance(dim, str)]
        for spec in (naming.inputs if naming is not None else ())
    }
    if not any(symbols.values()):
        return None
    leaves = [leaf for leaf in pytree.tree_leaves((tuple(args), dict(kwargs))) if torch.is_tensor(leaf)]
    shapes = torch.export.ShapesCollection()  # which knows how torch wants dims nested
    for axes, leaf in zip([symbols.get(name, []) for name in tensors], leaves):
        shapes[leaf] = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
    return shapes.dynamic_shapes(module, tuple(args), dict(kwargs))


def _match(program: Any, graph: Graph) -> dict[str, str]:
    """``{name in the program: name of the same value in the ONNX graph}``."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "call_function"}
    by_name = _exact_names(nodes, graph) or _ordinal_names(nodes, graph)
    outputs = [getattr(spec.arg, "name", None) for spec in program.graph_signature.output_specs]
    if len(outputs) == len(graph.outputs):
        by_name = {name: value for name, value in by_name.items() if value not in graph.outputs}
        by_name |= {str(name): value for name, value in zip(outputs, graph.outputs) if name in nodes}
    return by_name


def _origins(graph: Graph) -> dict[str, tuple[str, str]]:
    """``{fx node: (torch operator, module)}`` in the order of the graph."""
    found: dict[str, tuple[str, str]] = {}
    for node in graph.nodes:
        origin = origin_of(node)
        if origin.fx_node and origin.torch_operator:
            found.setdefault(origin.fx_node, (origin.torch_operator, origin.module))
    return found


def _exact_names(nodes: Mapping[str, Any], graph: Graph) -> dict[str, str]:
    """Same names, where every operator that the graph names is there and the same."""
    for name, (operator, _) in _origins(graph).items():
        if operator.startswith("aten.sym_size"):
            continue
        if name not in nodes or str(nodes[name].target) != operator:
            return {}
    values = {name for node in graph.nodes for name in node.output}
    return {name: name for name in nodes if name in values}


def _ordinal_names(nodes: Mapping[str, Any], graph: Graph) -> dict[str, str]:
    """The first linear of a module is the first linear of that module, where both sides have equally many."""
    ours, theirs = defaultdict(list), defaultdict(list)
    for name, node in nodes.items():
        ours[str(node.target), module_of(node)].append(name)
    for name, key in _origins(graph).items():
        theirs[key].append(name)
    values = {name for node in graph.nodes for name in node.output}
    found: dict[str, str] = {}
    for key, names in theirs.items():
        if len(ours.get(key, ())) == len(names):
            found |= {own: name for own, name in zip(ours[key], names) if name in values}
    return found


def module_of(node: Any) -> str:
    """Dotted path of the module that a node of a captured program comes from."""
    stack = node.meta.get("nn_module_stack") or {}
    return str(next(reversed(stack.values()))[0]) if stack else ""


def _placeholders(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """What the program's placeholders take: weights, constants and the leaves of the arguments."""
    from torch.utils import _pytree as pytree

    leaves = iter(pytree.tree_leaves((tuple(args), dict(kwargs))))
    state = {**program.constants, **program.state_dict}
    found = []
    for spec in program.graph_signature.input_specs:
        value = next(leaves, None) if spec.kind.name == "USER_INPUT" else state.get(spec.target)
        found.append(value)
    return None if next(leaves, None) is not None else found


def run_program(module: Any, inputs: list[Any], names: Mapping[str, str], seed: int) -> Inside | None:
    """Run a captured program in its own precision, in float64 and with moved operands.

    Args:
        module: the ``fx.GraphModule``.
        inputs: what its placeholders take.
        names: ``{node: name of its value}`` of the values to keep.
        seed: of the moved operands.

    Returns:
        None where it does not run in another precision.
    """
    torch = require("torch", "to run a captured program")
    try:
        with torch.compiler.set_stance("force_eager"):
            own = _run(module, inputs, names)
            pins = {name: own[name] for name in names if name in own}
            truths = _run(module, inputs, names, pins, Float64())
            samples = [_run(module, inputs, names, pins, Jitter(seed + number)) for number in range(SAMPLES + 1)]
    except Exception:  # noqa: BLE001 - the user's operators raise anything in another precision
        return None
    plain = [{names[name]: as_numpy(value.cpu()) for name, value in run.items()} for run in (own, truths, *samples)]
    return Inside(plain[0], plain[1], tuple(plain[2:]))


def _run(
    module: Any,
    inputs: list[Any],
    names: Mapping[str, str],
    pins: Mapping[str, Any] | None = None,
    variant: Variant | None = None,
) -> dict[str, Any]:
    """Run the program, note the named values, and go on with the pinned ones."""
    torch = require("torch", "to run a captured program")
    found: dict[str, Any] = {}

    class Noting(torch.fx.Interpreter):  # type: ignore[misc, name-defined] # untyped in torch
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if node.name in names and torch.is_tensor(result):
                found[node.name] = result.detach().clone()
                if pins is not None and variant is not None:
                    return variant.prepare(pins[node.name].clone())
            return result

    prepared = [value.clone() if torch.is_tensor(value) and not is_large(value) else value for value in inputs]
    with contextlib.ExitStack() as stack:
        stack.enter_context(keep_rng(0))
        if variant is not None:
            prepared = [value if is_large(value) else variant.prepare(value) for value in prepared]
            stack.enter_context(variant.active())
        Noting(module).run(*prepared, enable_io_processing=False)
    return found


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """torch.export and torch.onnx warn, log and print about what the caller did not ask for."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
