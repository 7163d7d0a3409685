"""The signature that an exporter stored inside a model file: believed only where the graph agrees."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

from interop.errors import InteropError
from interop.signature import Signature, TensorSpec
from interop.structure import Leaf, Node, Structure

__all__ = ["read_signature"]

_SIZE_LIMIT = 8 << 20  # characters; a signature with ten thousand tensors is about one million
_WRONG = (InteropError, KeyError, TypeError, ValueError, AttributeError, RecursionError)


def read_signature(
    stored: str | Any, graph: Signature, where: str, expand: Callable[[Signature], Signature] | None = None
) -> Signature:
    """Refine the graph's own flat signature by the stored one.

    Args:
        stored: JSON text, or its parsed form.
        graph: what the graph itself declares, under the same names.
        where: the file, for the warning.
        expand: gives the signature of the tensors that carry a stored one, where the format has others.

    Returns:
        The stored signature; or ``graph``, with a warning, where the stored one is damaged or contradicts the graph.
    """
    try:
        signature = _parse(stored)
        problem = _contradiction(signature if expand is None else expand(signature), graph)
    except _WRONG as error:
        problem = f"it cannot be read ({type(error).__name__}: {str(error)[:200]})"
    if problem is None:
        return signature
    warnings.warn(f"{where}: the stored signature is ignored: {problem}", stacklevel=2)
    return graph


def _parse(stored: str | Any) -> Signature:
    if isinstance(stored, str):
        if len(stored) > _SIZE_LIMIT:
            raise ValueError(f"{len(stored)} characters of JSON")
        stored = json.loads(stored)
    signature = Signature.from_json(stored)
    for structure in (signature.arguments, signature.keywords, signature.results):
        _check_node(structure)
    if signature.arguments is not None and signature.arguments.kind != "tuple":
        raise ValueError("arguments are a tuple")
    if signature.keywords.kind != "dict" or not all(isinstance(key, str) for key in signature.keywords.keys):
        raise ValueError("keywords are a dict with string keys")
    return signature


def _check_node(structure: Structure | None) -> None:
    if not isinstance(structure, Node):
        return
    keyed = structure.kind in ("dict", "object")
    if keyed != bool(structure.keys) and structure.children:
        raise ValueError(f"a {structure.kind} {'needs' if keyed else 'has no'} keys")
    if keyed and (len(structure.keys) != len(structure.children) or len(set(structure.keys)) != len(structure.keys)):
        raise ValueError("keys and children do not match")
    if not all(isinstance(key, (str, int, float, bool, type(None))) for key in structure.keys):
        raise ValueError("a key is a string or a number")
    for child in structure.children:
        if isinstance(child, Node) and child.kind == "length" and not _counts(child, structure):
            raise ValueError("a length is that of a tensor beside it")
        _check_node(child)


def _counts(length: Node, parent: Node) -> bool:
    fields = dict(zip(parent.keys, parent.children))
    return len(length.keys) == 1 and isinstance(fields.get(length.keys[0]), Leaf)


def _contradiction(stored: Signature, graph: Signature) -> str | None:
    for kind, said, real in (("input", stored.inputs, graph.inputs), ("output", stored.outputs, graph.outputs)):
        found = {spec.name: spec for spec in real}
        if len(said) != len(found) or {spec.name for spec in said} != found.keys():
            return f"it names the {kind}s {[spec.name for spec in said][:20]}, the graph {list(found)[:20]}"
        for spec in said:
            if not _agree(spec, found[spec.name]):
                return f"it says {kind} {spec}, the graph {found[spec.name]}"
    return None


def _agree(stored: TensorSpec, graph: TensorSpec) -> bool:
    if stored.dtype != graph.dtype:
        return False
    if graph.shape is None or stored.shape is None:
        return True
    return len(stored.shape) == len(graph.shape) and all(
        not isinstance(real, int) or said == real for said, real in zip(stored.shape, graph.shape)
    )
