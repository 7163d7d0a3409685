"""Nested structures: optree's containers, and the dataclasses and mappings that it takes for leaves."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, MutableMapping
from typing import Any

import optree

from interop.errors import ConversionError
from interop.frameworks._table import owner_of

__all__ = ["map_tensors"]


def map_tensors(function: Callable[[Any], Any], tree: Any) -> Any:
    """Rebuild a structure with a function applied to its tensors; other leaves are left as they are.

    Raises:
        ConversionError: ``tree`` is neither a structure nor a tensor.
    """
    if _is_record(tree) or not optree.tree_is_leaf(tree):
        return _map(function, tree)
    raise ConversionError(
        f"{type(tree).__name__} is not a tensor of a loaded framework, nor a dict, list, tuple or dataclass of them; "
        "numpy.asarray(x) makes a tensor of numbers"
    )


def _map(function: Callable[[Any], Any], tree: Any) -> Any:
    if _is_record(tree):
        return _map_record(function, tree)
    return optree.tree_map(lambda leaf: _map_leaf(function, leaf), tree, is_leaf=_is_record)


def _map_leaf(function: Callable[[Any], Any], leaf: Any) -> Any:
    if owner_of(type(leaf)) is not None:
        return function(leaf)
    return _map_record(function, leaf) if _is_record(leaf) else leaf


def _is_record(x: Any) -> bool:
    """A dataclass or a mapping that optree does not look into (transformers' outputs and batches are such)."""
    if isinstance(x, type) or not (dataclasses.is_dataclass(x) or isinstance(x, MutableMapping)):
        return False
    return optree.tree_is_leaf(x) and owner_of(type(x)) is None


def _map_record(function: Callable[[Any], Any], record: Any) -> Any:
    """A shallow copy with mapped fields or items; ``__post_init__`` does not run again."""
    result = copy.copy(record)
    if isinstance(record, MutableMapping) and not dataclasses.is_dataclass(record):
        for key, value in record.items():
            result[key] = _map(function, value)
        return result
    frozen = type(record).__dataclass_params__.frozen
    for field in dataclasses.fields(record):
        if hasattr(record, field.name):
            value = _map(function, getattr(record, field.name))
            (object.__setattr__ if frozen else setattr)(result, field.name, value)
    return result
