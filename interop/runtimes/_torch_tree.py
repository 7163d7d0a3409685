"""Nested torch arguments and results as named, flat tensors, under the names that ``torch.export`` gives them.

Containers are taken apart by ``torch.utils._pytree``, so whatever ``torch.export`` knows is known here:
Transformers outputs and caches, registered dataclasses.
"""

from __future__ import annotations

import inspect
import re
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from interop.structure import Constant, Leaf, Node, Structure

__all__ = ["flat_names", "named_leaves", "parameter_names_of", "structure_of"]

_CONSTANTS = (type(None), bool, int, float, str)
_UNUSABLE = re.compile(r"[^a-zA-Z0-9]")


def flat_names(args: Sequence[Any], kwargs: Mapping[str, Any], parameter_names: Sequence[str]) -> list[str]:
    """Name every leaf of a call's arguments as ``torch.export`` names its placeholders.

    The name is the path from the parameter to the leaf, joined by ``_``, in lower case: ``past[0][1]`` is ``past_0_1``,
    ``batch["tokens"]`` is ``batch_tokens``; surplus positional arguments are ``rest_0``, ``rest_1``; a name that is
    taken gets the next free number.

    Args:
        args: positional arguments, nested as they like.
        kwargs: keyword arguments.
        parameter_names: the parameters of ``forward`` in order; one that collects the rest is written ``"*rest"``.

    Returns:
        One name a leaf (tensor or not), in the order of ``torch.utils._pytree.tree_leaves((args, kwargs))``.

    Example:
        >>> flat_names(({"y": t}, [(t, t)]), {"z": t}, ("d", "past"))
        ['d_y', 'past_0_0', 'past_0_1', 'z']
    """
    paths = [_join(path) for path, _ in _pytree.tree_flatten_with_path(_by_name(args, kwargs, parameter_names))[0]]
    return _unique(paths)


def _by_name(args: Sequence[Any], kwargs: Mapping[str, Any], parameter_names: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for position, value in enumerate(args):
        name = parameter_names[position] if position < len(parameter_names) else f"arg{position}"
        if name.startswith("*"):
            found[name[1:]] = tuple(args[position:])
            break
        found[name] = value
    return found | dict(kwargs)


def _join(path: Sequence[Any]) -> str:
    return "_".join(_part(key) for key in path).lower()


def _part(key: Any) -> str:
    for attribute in ("key", "idx", "name"):  # MappingKey, SequenceKey, GetAttrKey
        if hasattr(key, attribute):
            return _UNUSABLE.sub("_", str(getattr(key, attribute)))
    return _UNUSABLE.sub("_", str(key))


def _unique(names: Sequence[str]) -> list[str]:
    used: set[str] = set()
    highest: dict[str, int] = {}
    result = []
    for name in names:
        free = name if name not in used else f"{name}_{highest.get(name, 0) + 1}"
        if match := re.fullmatch(r"(.*)_(\d+)", free):
            highest[match[1]] = max(int(match[2]), highest.get(match[1], 0))
        used.add(free)
        result.append(free)
    return result


def parameter_names_of(module: torch.nn.Module) -> tuple[str, ...]:
    """The positional parameters of ``forward``; the one that collects the rest is written ``"*rest"``."""
    kinds = inspect.Parameter
    names = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is kinds.VAR_POSITIONAL:
            names.append("*" + parameter.name)
    return tuple(names)


def named_leaves(value: Any, prefix: str) -> list[tuple[str, Any]]:
    """The leaves of a result with names: the path joined by ``_``, after ``prefix`` where it starts with no key."""
    leaves = _pytree.tree_flatten_with_path(value)[0]
    names = []
    for path, _ in leaves:
        joined = _join(path)
        names.append(f"{prefix}_{joined}".rstrip("_") if not joined or joined[0].isdigit() else joined)
    return list(zip(_unique(names), (leaf for _, leaf in leaves)))


def structure_of(spec: Any, leaves: Iterator[Structure]) -> Structure:
    """A ``TreeSpec`` as a structure.

    Args:
        spec: what ``torch.utils._pytree.tree_flatten`` gives.
        leaves: a ``Leaf`` or ``Constant`` for each leaf, in order.
    """
    if spec.is_leaf():
        return next(leaves)
    children = tuple(structure_of(child, leaves) for child in spec.children())
    if spec.type is tuple or spec.type is list:
        return Node(spec.type.__name__, children)
    if spec.type is namedtuple:  # how torch registers all of them; the class is in the context
        return Node("object", children, spec.context._fields, _path_of(spec.context))
    keys = _keys(spec, len(children))
    if (
        isinstance(spec.type, type)
        and issubclass(spec.type, dict)
        and spec.type.__module__ in ("builtins", "collections")
    ):
        return Node("dict", children, keys)
    return Node("object", children, keys, _path_of(spec.type))


def _path_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _keys(spec: Any, count: int) -> tuple[Any, ...]:
    context = spec.context
    for candidate in (context, *(context if isinstance(context, (list, tuple)) else ())):
        if (
            isinstance(candidate, (list, tuple))
            and len(candidate) == count
            and all(isinstance(k, _CONSTANTS) for k in candidate)
        ):
            return tuple(candidate)
    return tuple(str(index) for index in range(count))


def leaf_or_constant(name: str, value: Any) -> Structure:
    """A ``Leaf`` for a tensor, a ``Constant`` for a plain value."""
    return Constant(value) if isinstance(value, _CONSTANTS) else Leaf(name)
