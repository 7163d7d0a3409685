"""How a program's flat inputs and outputs sit in the model's arguments and results."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters.onnx._tags import is_tagged, tagged_paths, tagged_structure
from interop.structure import Constant, Leaf, Node, Structure

__all__ = ["argument_structures", "output_names", "result_structure"]


def argument_structures(program: torch.export.ExportedProgram) -> tuple[Node, Node]:
    """Positional and keyword arguments, with the inputs' names at the leaves and other values as constants."""
    names = iter(program.graph_signature.user_inputs)
    leaves = (
        Leaf(item) if isinstance(item, str) else Constant(item) for item in _inputs(program.call_spec.in_spec, names)
    )
    args, kwargs = program.call_spec.in_spec.children()
    positional, keywords = _build(args, leaves), _build(kwargs, leaves)
    assert isinstance(positional, Node) and isinstance(keywords, Node)
    return positional, keywords


def _inputs(spec: pytree.TreeSpec, names: Iterator[Any]) -> Iterator[Any]:
    """The program's inputs in order; the tensors of a cache called after their place in it instead of by number."""
    if spec.is_leaf():
        yield next(names)
    elif is_tagged(spec.context):
        places = dict(tagged_paths(spec.context, ()))
        for number in range(len(spec.children())):
            yield "_".join([next(names).removesuffix(f"_{number}"), *map(str, places[number])])
    else:
        for child in spec.children():
            yield from _inputs(child, names)


def result_structure(program: torch.export.ExportedProgram, taken: Sequence[str]) -> Structure:
    """The model's results, with a name for each tensor made of its place: dict keys keep their names.

    Args:
        program: the program.
        taken: names that outputs may not have (the inputs').
    """
    spec = program.call_spec.out_spec
    paths = list(_paths(spec, ()))
    names: dict[str, None] = dict.fromkeys(taken)
    leaves: list[Structure] = []
    for path, output in zip(paths, _outputs(program)):
        if not isinstance(output, str):
            leaves.append(Constant(output))
            continue
        name = _unique(_join(path), names)
        names[name] = None
        leaves.append(Leaf(name))
    return _build(spec, iter(leaves))


def output_names(structure: Structure) -> list[str]:
    """The names of the tensors in a result, in order."""
    if isinstance(structure, Leaf):
        return [structure.name]
    if isinstance(structure, Constant):
        return []
    return [name for child in structure.children for name in output_names(child)]


def _outputs(program: torch.export.ExportedProgram) -> list[Any]:
    """The user's outputs: a name for a tensor or a symbolic size, the value for a constant."""
    return list(program.graph_signature.user_outputs)


def _build(spec: pytree.TreeSpec, leaves: Iterator[Structure]) -> Structure:
    if spec.is_leaf():
        return next(leaves)
    if is_tagged(spec.context):
        return tagged_structure(spec.context, [_build(child, leaves) for child in spec.children()]) or Node(
            "object", ()
        )
    children = tuple(_build(child, leaves) for child in spec.children())
    if spec.type in (dict, OrderedDict, defaultdict):
        return Node("dict", children, tuple(_keys(spec)))
    if spec.type in (tuple, list):
        return Node(spec.type.__name__, children)
    named = isinstance(spec.context, type) and issubclass(spec.context, tuple)  # a namedtuple's context is its class
    kind = spec.context if named else spec.type
    return Node("object", children, tuple(_keys(spec)), f"{kind.__module__}:{kind.__qualname__}")


def _keys(spec: pytree.TreeSpec) -> list[Any]:
    """The keys of a dict, or the field names of an object where its pytree context tells them."""
    context = spec.context
    count = len(spec.children())
    if spec.type is defaultdict:
        context = context[1]
    if isinstance(context, type) and hasattr(context, "_fields"):
        return list(context._fields)
    if hasattr(spec.type, "n_sequence_fields"):  # what torch.max and its kin give
        return list(spec.type.__match_args__)
    for part in (context, *(context if isinstance(context, (tuple, list)) else ())):
        if isinstance(part, (tuple, list)) and len(part) == count and all(isinstance(key, (str, int)) for key in part):
            return list(part)
    return list(range(count))


def _paths(spec: pytree.TreeSpec, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if spec.is_leaf():
        yield path
        return
    if is_tagged(spec.context):
        places = dict(tagged_paths(spec.context, path))
        yield from (places[number] for number in range(len(spec.children())))
        return
    keys = _keys(spec) if spec.type not in (tuple, list) else range(len(spec.children()))
    for key, child in zip(keys, spec.children()):
        yield from _paths(child, (*path, key))


def _join(path: tuple[Any, ...]) -> str:
    """``logits`` for a dict key, ``output_1`` for an item of a tuple, ``past_0_1`` for something nested."""
    if not path:
        return "output"
    words = [str(part) for part in path]
    return "_".join(words if isinstance(path[0], str) else ["output", *words])


def _unique(name: str, taken: dict[str, None]) -> str:
    if name not in taken:
        return name
    candidate, number = f"{name}_out", 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_out_{number}"
    return candidate
