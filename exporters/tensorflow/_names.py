"""TensorFlow-safe names for ONNX names, and the way back.

TensorFlow refuses or rewrites names such as ``/x``, ``a:0``, ``_x``, ``onnx::Add_3``, ``input.1`` and ``self`` as arguments
of a signature, and lets ``a.b`` and ``a_b`` collide. The map is stored in the SavedModel, so that the original names work
everywhere in this project.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

__all__ = ["safe_names", "variable_names"]

# Names that tf.function or the generated signature wrapper use for themselves.
_TAKEN = {"self", "args", "kwargs", "name", "training"}


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name to a Python identifier that TensorFlow keeps as it is; the map is one to one.

    Names that are fine already keep theirs; of two that differ only in case, which TensorFlow takes for one, the first does.

    Example:
        >>> safe_names(["a.b", "a_b", "/x"])
        {'a_b': 'a_b', 'a.b': 'a_b_1', '/x': 'x'}
    """
    names = list(names)
    chosen: dict[str, str] = {}
    used = set(_TAKEN)
    for name in sorted(names, key=lambda name: not _is_safe(name)):  # good names first, and stable
        if _is_safe(name) and name.lower() not in used:
            chosen[name] = name
        else:
            chosen[name] = _unique(_identifier(name), used)
        used.add(chosen[name].lower())
    return chosen


def variable_names(names: Iterable[str]) -> dict[str, str]:
    """Map each parameter's name to a variable name; dots and slashes may stay, a colon or a leading slash may not."""
    used: set[str] = set()
    chosen = {}
    for name in names:
        safe = re.sub(r"[^A-Za-z0-9_.\-/]", "_", name).strip("/")
        if not re.match(r"[A-Za-z0-9.]", safe):
            safe = f"variable{safe}"
        chosen[name] = _unique(safe, used)
        used.add(chosen[name].lower())
    return chosen


def _is_safe(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)) and name not in _TAKEN and not keyword.iskeyword(name)


def _identifier(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    if not safe:
        return "tensor"
    return safe if safe[0].isalpha() and _is_safe(safe) else f"tensor_{safe}"


def _unique(name: str, used: set[str]) -> str:
    candidate, number = name, 0
    while candidate.lower() in used:
        number += 1
        candidate = f"{name}_{number}"
    return candidate
