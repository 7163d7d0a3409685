"""Transformers caches among the arguments: nodes of torch's pytree, so that they are copied and captured like any container."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from interop.extras import loaded

__all__ = ["register_caches"]


def register_caches(model: Any, arguments: Any) -> None:
    """Make the cache classes of a Transformers model pytree nodes, if one is among the arguments and is none yet.

    Args:
        model: the model.
        arguments: nested arguments of a call of it.
    """
    torch, transformers = loaded("torch"), loaded("transformers")
    if torch is None or transformers is None:
        return
    leaves = torch.utils._pytree.tree_leaves(arguments)
    if not any(_is_cache(type(leaf)) for leaf in leaves):
        return
    try:
        exporter = importlib.import_module("transformers.exporters.exporter_dynamo")
    except ImportError:  # an older Transformers has no exporters, and registers its caches itself
        return
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        if isinstance(module, transformers.PreTrainedModel):
            exporter.register_cache_pytrees_for_model(module)


def _is_cache(cls: type) -> bool:
    module = inspect.getmodule(cls)
    return module is not None and module.__name__.startswith("transformers.") and cls.__name__.endswith("Cache")
