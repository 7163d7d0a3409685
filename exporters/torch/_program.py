"""The lowered module as an ``ExportedProgram`` whose dims are symbolic where the signature's are."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from exporters._graph.dynamic_time import dynamic_time
from exporters.errors import TranslationError
from exporters.torch._tree import identifiers
from exporters.torch._values import torch_dtype
from interop import Signature, TensorSpec
from interop.structure import Constant, Node, Structure, fill, names_of

__all__ = ["export_program", "flat_names"]

# Sizes of the example's symbols: no two share one, and none is 0 or 1, which torch.export takes for special. Small ones
# fit short tables of positions, large ones are more than one element still after a network has halved them a few times.
_SIZES = ((3, 5, 7, 11, 13, 17, 19, 23), (24, 40, 56, 72, 88, 104), (64, 96, 128, 160, 192, 224))


def export_program(module: fx.GraphModule, signature: Signature) -> torch.export.ExportedProgram:
    """Capture a module with ``torch.export``.

    Args:
        module: the module.
        signature: its inputs; their symbols are dims of the program.

    Raises:
        TranslationError: an operator's result depends on values in a way that torch.export cannot follow, a symbol would
            become a number, or an input is a string, a sequence or an optional, which a program does not take.
    """
    for spec in signature.inputs:
        if spec.kind != "tensor" or spec.dtype == "string" or spec.shape is None:
            raise TranslationError(
                f"a .pt2 file takes tensors of a known rank only, and {spec} is none; keep the module"
            )
    errors: list[Exception] = []
    for attempt in _attempts(signature):
        try:
            return _exported(module, signature, attempt)
        except _FAILURES as error:
            errors.append(error)
    raise TranslationError(
        f"torch.export cannot capture the module, so there is no .pt2 file of it; the module itself works: {_said(errors)}"
    ) from errors[0]


def _exported(module: fx.GraphModule, signature: Signature, attempt: _Attempt) -> torch.export.ExportedProgram:
    args, kwargs = _arranged(signature, {spec.name: _example(spec, attempt.sizes) for spec in signature.inputs})
    shapes, named = _arranged(
        signature, {spec.name: _shape(spec, attempt.dims) for spec in signature.inputs}, constants=False
    )
    settings: Any = torch.fx.experimental._config
    patched = settings.patch(backed_size_oblivious=attempt.oblivious)
    with patched, dynamic_time(), torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The tensor attributes .*_flat_weights")  # how nn.LSTM keeps its weights
        program = torch.export.export(module, args, kwargs, dynamic_shapes=_by_name(signature, shapes, named))
    _require_dynamic(program, signature)
    _name_outputs(program, signature)
    return program


def _name_outputs(program: torch.export.ExportedProgram, signature: Signature) -> None:
    """Call the outputs what the signature calls them; one that is an input, or another output too, keeps its name."""
    kind = torch.export.graph_signature.OutputKind.USER_OUTPUT
    names = flat_names(signature)["outputs"]
    nodes = {node.name: node for node in program.graph.nodes}
    if "output" in nodes and nodes["output"].op == "output":
        _rename(nodes.pop("output"), "results")
    specs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is kind]
    found = [arg.name for arg in specs if not isinstance(arg, torch.export.graph_signature.ConstantArgument)]
    for old, wanted in zip(found, identifiers(names, "output"), strict=True):
        if nodes[old].op == "placeholder" or found.count(old) > 1 or wanted in nodes:
            continue
        _rename(nodes[old], wanted)
        nodes[wanted] = nodes.pop(old)
        program.graph_signature.replace_all_uses(old, wanted)
    program.graph_module.recompile()


def _rename(node: fx.Node, name: str) -> None:
    """Take a name that no other node has; fx's own way avoids those that were ever taken, and Python's built-in ones."""
    node.name = name
    node.graph._graph_namespace._rename_object(node, name)


def _require_dynamic(program: torch.export.ExportedProgram, signature: Signature) -> None:
    """Raise where a symbol became a number."""
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    constant = torch.export.graph_signature.ConstantArgument
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is kind]
    names = [arg.name for arg in specs if not isinstance(arg, constant)]
    found = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    for spec, name in zip(_in_order(signature), names, strict=True):
        for dim, size in zip(spec.shape or (), found[name].shape):
            if isinstance(dim, str) and str(size).isdigit():  # a SymInt too, where its value is settled
                raise ValueError(f"dim {dim} of {spec.name} would be fixed to the example's size {size}")


def flat_names(signature: Signature) -> dict[str, list[str]]:
    """The names of inputs and outputs in the order in which a program takes and gives the tensors."""
    outputs = signature.output_names if signature.results is None else names_of(signature.results)
    return {"inputs": [spec.name for spec in _in_order(signature)], "outputs": list(outputs)}


def _in_order(signature: Signature) -> list[TensorSpec]:
    """The inputs in the order of the module's arguments."""
    if signature.arguments is None:
        return list(signature.inputs)
    specs = {spec.name: spec for spec in signature.inputs}
    return [specs[name] for name in (*names_of(signature.arguments), *names_of(signature.keywords))]


# torch.export fails with whatever its tracer or an operator raises.
_FAILURES = (
    RuntimeError,
    ValueError,
    TypeError,
    NotImplementedError,
    AssertionError,
    KeyError,
    IndexError,
    AttributeError,
)


def _said(errors: list[Exception]) -> str:
    """What the first attempt failed of."""
    text = str(errors[0]).strip()
    return text.splitlines()[0][:300] if text else type(errors[0]).__name__


@dataclass(frozen=True)
class _Attempt:
    """One way to ask torch.export.

    Attributes:
        sizes: the example's size of each symbol.
        dims: the ``Dim`` of each symbol; torch.export relates those that are not there.
        oblivious: treat no size of 1 in a way of its own, which some operators need and others do not stand.
    """

    sizes: Mapping[str, int]
    dims: Mapping[str, Any]
    oblivious: bool


def _attempts(signature: Signature) -> Iterator[_Attempt]:
    """What to try: first all symbols free, then as torch.export relates and bounds them."""
    symbols = [symbol for symbol in signature.symbols if symbol.isidentifier()]
    small, middle, large = (dict(zip(symbols, itertools.cycle(sizes))) for sizes in _SIZES)
    named = {symbol: torch.export.Dim(symbol, min=1) for symbol in symbols}
    if named:
        yield from (_Attempt(sizes, named, oblivious) for sizes in (small, large) for oblivious in (False, True))
    yield from (_Attempt(sizes, {}, oblivious) for oblivious in (True, False) for sizes in (large, middle, small))


def _example(spec: TensorSpec, sizes: Mapping[str, int]) -> torch.Tensor:
    dims = [dim if isinstance(dim, int) else sizes.get(str(dim), 4) for dim in spec.shape or ()]
    return torch.zeros(dims, dtype=torch_dtype(spec.dtype))


def _shape(spec: TensorSpec, dims: Mapping[str, Any]) -> dict[int, Any]:
    return {
        axis: dims.get(str(dim), torch.export.Dim.AUTO)
        for axis, dim in enumerate(spec.shape or ())
        if not isinstance(dim, int)
    }


def _arranged(
    signature: Signature, leaves: Mapping[str, Any], *, constants: bool = True
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Values by name in the places of the arguments; None stands for what is fixed unless ``constants`` are wanted."""
    if signature.arguments is None:
        return tuple(leaves[name] for name in signature.input_names), {}
    both = (signature.arguments, signature.keywords)
    args, kwargs = (fill(part if constants else _emptied(part), leaves) for part in both)
    return args, kwargs


def _emptied(structure: Structure) -> Structure:
    if isinstance(structure, Node):
        return replace(structure, children=tuple(map(_emptied, structure.children)))
    return Constant(None) if isinstance(structure, Constant) else structure


def _by_name(signature: Signature, shapes: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """torch.export's form: a tuple where all arguments are positional, else ``{parameter: shapes}``."""
    if not named:
        return shapes
    names = signature.parameter_names
    return dict(zip(names, shapes)) | dict(named)
