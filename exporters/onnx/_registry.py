"""Keep torch.onnx's table of translations from one export to the next.

torch.onnx parses the source of some five hundred functions for each export, which takes longer than a small model does.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

__all__ = ["known_translations"]


@contextlib.contextmanager
def known_translations() -> Iterator[None]:
    """While this is open, the table is made once for each opset; each export gets a copy that it may add to."""
    kind = _registry_type()
    if kind is None:
        yield
        return
    with patch.object(kind, "from_torchlib", staticmethod(functools.partial(_copy, kind.from_torchlib))):
        yield


def _registry_type() -> Any:
    """torch.onnx's registry, where this torch has it at the place that is known."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:
        return None
    return ONNXRegistry if hasattr(ONNXRegistry(), "functions") else None


_MADE: dict[tuple[Any, ...], Any] = {}


def _copy(make: Callable[..., Any], **options: Any) -> Any:
    key = tuple(sorted(options.items()))
    if key not in _MADE:
        _MADE[key] = make(**options)
    known = _MADE[key]
    copied = type(known)()
    vars(copied).update(vars(known))
    copied.functions = {operator: list(each) for operator, each in known.functions.items()}
    return copied
