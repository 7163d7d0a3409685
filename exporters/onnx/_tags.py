"""A Transformers cache as a pytree node: its attributes as tagged data, its tensors as numbered places in it.

``transformers.exporters`` flattens a cache to its tensors and a context in which ``{"_t": "tensor", "i": 2}`` stands for the
third of them, ``{"_t": "obj", "p": "module:Class", "s": {...}}`` for an object and its attributes, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from interop.structure import Constant, Leaf, Node, Structure

__all__ = ["is_tagged", "tagged_paths", "tagged_structure"]

_PLAIN = (type(None), bool, int, float, str)


def is_tagged(context: Any) -> bool:
    """Whether a pytree context is of this kind."""
    return isinstance(context, dict) and "_t" in context


def tagged_structure(context: Any, leaves: Sequence[Structure]) -> Structure | None:
    """The structure of a value; None for what a device or a dtype is, which follows from the tensors.

    Args:
        context: the tagged data.
        leaves: what stands for each tensor.
    """
    if type(context) in _PLAIN:
        return Constant(context)
    tag = context.get("_t") if isinstance(context, dict) else None
    if tag in ("tensor", "sym"):
        leaf: Structure = leaves[context["i"]]
        return leaf
    if tag == "type":
        return Node("class", (), (), context["p"])
    items = _items(context)
    if items is None:
        return None
    found = {key: tagged_structure(item, leaves) for key, item in items}
    if isinstance(found.get("cumulative_length"), Constant) and isinstance(found.get("keys"), Leaf):
        found["cumulative_length"] = Node("length", (), ("keys",))  # Transformers' patches keep every token of a window
    kept = {key: item for key, item in found.items() if item is not None}
    if isinstance(context, list) or tag == "seq":
        return Node("tuple" if tag == "seq" and context["p"] == "builtins:tuple" else "list", tuple(kept.values()))
    return Node("object" if tag == "obj" else "dict", tuple(kept.values()), tuple(kept), context.get("p", ""))


def tagged_paths(context: Any, path: tuple[Any, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """``(number of the tensor, its path)``; the ``layers`` of a cache are not worth a word in a name."""
    if isinstance(context, dict) and context.get("_t") in ("tensor", "sym"):
        yield context["i"], path
    for key, item in _items(context) or ():
        yield from tagged_paths(item, path if key == "layers" else (*path, key))


def _items(context: Any) -> list[tuple[Any, Any]] | None:
    """Keys and values of something that holds others; None for anything else."""
    if isinstance(context, list):
        return list(enumerate(context))
    if not isinstance(context, dict):
        return None
    tag = context.get("_t")
    if tag is None or tag == "obj":
        return list((context if tag is None else context["s"]).items())
    if tag == "map":
        return list(context["v"].items())
    if tag == "items":
        return [(key, value) for key, value in context["v"]]
    return list(enumerate(context["v"])) if tag == "seq" else None
