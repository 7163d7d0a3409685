"""C++ identifiers for a model's names, and the way back."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["identifiers"]

_KEYWORDS = {
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "char8_t", "char16_t", "char32_t", "class", "compl", "concept", "const", "consteval", "constexpr", "constinit",
    "const_cast", "continue", "co_await", "co_return", "co_yield", "decltype", "default", "delete", "do", "double",
    "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
    "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "return", "short",
    "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
    "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual",
    "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
}  # fmt: skip
"""Source: ISO C++20, [lex.key]."""


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Map each name to an identifier that no other has; names that are fine already keep theirs.

    Example:
        >>> identifiers(["image", "class", "/x", "x", "2"])
        {'image': 'image', 'x': 'x', 'class': 'class_', '/x': 'x_2', '2': 'value_2'}
    """
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda name: _identifier(name) != name):  # stable, and good names first
        base = candidate = _identifier(name)
        number = 2
        while candidate in found.values():
            candidate, number = f"{base.rstrip('_')}_{number}", number + 1
        found[name] = candidate
    return found


def _identifier(name: str) -> str:
    """Without double or leading underscores, which C++ keeps for itself."""
    safe = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_]", "_", name)).lstrip("_")
    if safe != name:
        safe = safe.rstrip("_")
    if not safe or safe[0].isdigit():
        safe = f"value_{safe}".rstrip("_")
    return f"{safe}_" if safe in _KEYWORDS else safe
