"""Operators written once: a function in one framework, for the tensors of all; and models as layers of the other.

One file a framework, with the same functions in each: ``differentiate`` derives a body's gradient there, ``infer`` tells its
shapes, ``apply`` calls an operator from there, differentiably.
"""

from __future__ import annotations

from interop.operators._errors import OperatorError
from interop.operators._layers import as_keras_layer, as_torch_module
from interop.operators._operator import FRAMEWORKS, REGISTRY, Operator, find, operator

__all__ = [
    "operator",
    "Operator",
    "OperatorError",
    "as_torch_module",
    "as_keras_layer",
    "find",
    "FRAMEWORKS",
    "REGISTRY",
]
