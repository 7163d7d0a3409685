"""Tensors crossing between frameworks: who owns one, what is known of it, and how it crosses.

One file a framework, with the same functions in each (``Framework``); ``docs/adding_a_framework.md`` shows how to add
one.
"""

from __future__ import annotations

from interop.frameworks._convert import convert, describe, explain
from interop.frameworks._guard import Guard, guard
from interop.frameworks._info import Explanation, Framework, Needs, TensorInfo, Verdict
from interop.frameworks._table import FRAMEWORKS, framework, framework_of

__all__ = [
    "convert",
    "explain",
    "guard",
    "Guard",
    "describe",
    "framework_of",
    "framework",
    "FRAMEWORKS",
    "Explanation",
    "TensorInfo",
    "Framework",
    "Needs",
    "Verdict",
]
