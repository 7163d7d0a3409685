"""Build the objects that a model's call returned in torch, where their class is at hand."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from interop.structure import Node

__all__ = ["rebuild"]


def rebuild(node: Node, children: list[Any]) -> Any:
    """Make an ``"object"`` node from its children, or find the class of a ``"class"`` node.

    The class name comes from a model file, so nothing is imported for it: a class counts only where this process has
    loaded its module already, and only where it is a mapping, a dataclass, a named tuple or a Transformers cache.

    Returns:
        The object, or a dict of its fields; None for a class that does not count.
    """
    fields = dict(zip(node.keys, children))
    cls = _loaded_class(node.type_name)
    if node.kind == "class":
        return cls if cls is not None and _is_cache(cls) else None
    if cls is None or not all(isinstance(key, str) for key in fields):
        return fields
    if dataclasses.is_dataclass(cls):
        known = {field.name for field in dataclasses.fields(cls) if field.init}
        return cls(**fields) if known >= set(fields) else fields
    if issubclass(cls, tuple) and tuple(getattr(cls, "_fields", ())) == node.keys:
        return cls(*children)
    if issubclass(cls, dict):
        return cls(fields)
    if {"key_cache", "value_cache"} == set(fields) and hasattr(cls, "update"):
        return _fill_cache(cls, fields)
    return _restore_cache(cls, fields) if _is_cache(cls) else fields


def _loaded_class(type_name: str) -> type | None:
    module_name, _, qualname = type_name.partition(":")
    found: Any = sys.modules.get(module_name)
    for part in qualname.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) else None


def _fill_cache(cls: type, fields: Mapping[str, Any]) -> Any:
    """A Transformers key/value cache is filled layer by layer."""
    cache: Any = cls()
    for layer, (keys, values) in enumerate(zip(fields["key_cache"], fields["value_cache"])):
        cache.update(keys, values, layer)
    return cache


def _is_cache(cls: type) -> bool:
    """Whether this is a cache of Transformers, or the part of one that stands for a layer."""
    module: Any = sys.modules.get("transformers.cache_utils")
    parts = [getattr(module, name, None) for name in ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")]
    known = tuple(part for part in parts if isinstance(part, type))
    return issubclass(cls, known) or (cls.__module__.startswith("transformers.") and cls.__name__.endswith("Cache"))


def _restore_cache(cls: type, fields: Mapping[str, Any]) -> Any:
    """An object with these attributes; the device and dtype that a layer notes are those of its tensors."""
    restored: Any = object.__new__(cls)
    tensor = next((value for value in fields.values() if hasattr(value, "dtype")), None)
    noted = {} if tensor is None else {"device": getattr(tensor, "device", None), "dtype": tensor.dtype}
    vars(restored).update(noted | dict(fields))
    return restored
