"""The shape of a model's arguments and results: nested containers whose leaves are named tensors.

A runtime works on a flat ``{name: tensor}``; a model takes and gives dicts, lists, tuples and objects of its own. A
structure is the plain data that leads from one to the other, small enough to travel inside a model file as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from interop.errors import InputError

__all__ = ["Constant", "Leaf", "Node", "Structure", "names_of", "structure_from_json", "structure_to_json"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor, known by its name in the model."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is no tensor (None, a bool, a number, a string) and was fixed by the export."""

    value: Any


@dataclass(frozen=True, slots=True)
class Node:
    """A container.

    Attributes:
        kind: ``"tuple"``, ``"list"``, ``"dict"`` or ``"object"``; ``"class"`` for a class itself, which holds nothing;
            ``"length"`` for a number of an object that counts the rows (axis -2) of its tensor of the name in ``keys``.
        children: the items in order.
        keys: the dict's keys, or the field names of an object; empty for sequences.
        type_name: ``module:qualname`` of an object's class; it is rebuilt as a dict where that class is not at hand.
    """

    kind: str
    children: tuple[Structure, ...]
    keys: tuple[Any, ...] = ()
    type_name: str = ""


Structure = Leaf | Constant | Node


def names_of(structure: Structure) -> Iterator[str]:
    """The leaf names of a structure, in order."""
    if isinstance(structure, Leaf):
        yield structure.name
    elif isinstance(structure, Node):
        for child in structure.children:
            yield from names_of(child)


def renamed(structure: Structure, names: Mapping[str, str]) -> Structure:
    """The structure with other names for some leaves."""
    if isinstance(structure, Leaf):
        return Leaf(names.get(structure.name, structure.name))
    if isinstance(structure, Node):
        return replace(structure, children=tuple(renamed(child, names) for child in structure.children))
    return structure


def pick(structure: Structure, value: Any, where: str = "input") -> dict[str, Any]:
    """Take the tensors out of a nested value.

    Args:
        structure: what the value has to look like.
        value: the nested value.
        where: how error messages call the value.

    Returns:
        ``{leaf name: tensor}``.

    Raises:
        InputError: the value is built differently, or a constant differs from the exported one.
    """
    found: dict[str, Any] = {}
    _pick(structure, value, where, found)
    return found


def _pick(structure: Structure, value: Any, where: str, found: dict[str, Any]) -> None:
    if isinstance(structure, Leaf):
        if value is None:
            raise InputError(f"{where} is None; the model was exported with a tensor there (named {structure.name!r})")
        found[structure.name] = value
        return
    if isinstance(structure, Constant):
        if not _same(structure.value, value):
            raise InputError(
                f"{where} is {value!r}; the model was exported with {structure.value!r}, which is now part of it. "
                "Pass that value, or export again with the other one"
            )
        return
    if structure.kind in _EMPTY and not structure.children and value not in _EMPTY[structure.kind]:
        raise InputError(f"{where} must be empty, got {type(value).__name__} {value!r}"[:200])
    for key, child in zip(structure.keys or range(len(structure.children)), structure.children):
        if structure.kind == "object" and isinstance(value, Mapping) and key not in {*value, *_needed(structure)}:
            continue
        item = _item(structure, value, key, where)
        if isinstance(child, Node) and child.kind == "length":
            _check_length(item, _item(structure, value, child.keys[0], where), f"{where}[{key!r}]", child.keys[0])
        else:
            _pick(child, item, f"{where}[{key!r}]", found)


def _check_length(given: Any, tensor: Any, where: str, name: str) -> None:
    rows = tensor.shape[-2] if len(getattr(tensor, "shape", ())) > 1 else None
    if given != rows:
        raise InputError(
            f"{where} is {given}, and {name} hold {rows} tokens; the exported model needs all of them: give it the cache before it "
            "was cut to a window, or the one that the exported model returned"
        )


def _same(expected: Any, given: Any) -> bool:
    return type(expected) is type(given) and bool(expected == given)


_EMPTY: Mapping[str, tuple[Any, ...]] = {"dict": ({},), "list": ([], ()), "tuple": ([], ())}
"""What counts as an empty container of each kind."""


def _needed(node: Node) -> set[Any]:
    """The keys that a dict has to have; one in the place of an object need not say what the export fixed."""
    return {key for key, child in zip(node.keys, node.children) if node.kind != "object" or any(names_of(child))}


def _item(node: Node, value: Any, key: Any, where: str) -> Any:
    if node.kind in ("tuple", "list"):
        if not isinstance(value, (tuple, list)) or len(value) != len(node.children):
            given = f"{len(value)} items" if isinstance(value, (tuple, list)) else type(value).__name__
            raise InputError(f"{where} must be a {node.kind} of {len(node.children)} items, got {given}")
        return value[key]
    if isinstance(value, Mapping):
        if not _needed(node) <= set(value) <= set(node.keys):
            raise InputError(f"{where} must have the keys {list(node.keys)}, got {list(value)}")
        return value[key]
    if node.kind == "object" and isinstance(key, str) and hasattr(value, key):
        return getattr(value, key)
    raise InputError(f"{where} must be a dict with the keys {list(node.keys)}, got {type(value).__name__}")


def fill(
    structure: Structure, tensors: Mapping[str, Any], build: Callable[[Node, list[Any]], Any] | None = None
) -> Any:
    """Put tensors back into their places.

    Args:
        structure: what the result looks like.
        tensors: ``{leaf name: tensor}``.
        build: makes an ``"object"`` or ``"class"`` node from its children; without it such a node becomes a dict, or None.
    """
    if isinstance(structure, Leaf):
        return tensors[structure.name]
    if isinstance(structure, Constant):
        return structure.value
    children = [fill(child, tensors, build) for child in structure.children]
    for index, child in enumerate(structure.children):
        if isinstance(child, Node) and child.kind == "length":
            children[index] = int(children[structure.keys.index(child.keys[0])].shape[-2])
    if structure.kind == "tuple":
        return tuple(children)
    if structure.kind == "list":
        return children
    if structure.kind in ("object", "class") and build is not None:
        return build(structure, children)
    if structure.kind in ("class", "length"):
        return None  # a length is filled in where its tensor is known
    return dict(zip(structure.keys, children))


def structure_to_json(structure: Structure) -> Any:
    """A structure as plain JSON data."""
    if isinstance(structure, Leaf):
        return {"leaf": structure.name}
    if isinstance(structure, Constant):
        return {"constant": structure.value}
    data: dict[str, Any] = {structure.kind: [structure_to_json(child) for child in structure.children]}
    if structure.keys:
        data["keys"] = list(structure.keys)
    if structure.type_name:
        data["type"] = structure.type_name
    return data


def structure_from_json(data: Any) -> Structure:
    """The inverse of ``structure_to_json``.

    Raises:
        InputError: the data was not written by ``structure_to_json``.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"a structure is a JSON object, got {type(data).__name__}")
    if "leaf" in data:
        return Leaf(str(data["leaf"]))
    if "constant" in data:
        return Constant(data["constant"])
    for kind in ("tuple", "list", "dict", "object", "class", "length"):
        if kind in data:
            children = tuple(structure_from_json(child) for child in data[kind])
            return Node(kind, children, tuple(data.get("keys", ())), str(data.get("type", "")))
    raise InputError(
        f"a structure has one of leaf, constant, tuple, list, dict, object, class, length; got {sorted(data)}"
    )
