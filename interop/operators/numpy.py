"""Bodies written in NumPy, which has no gradients and says nothing of shapes before it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from interop.operators._call import Call
from interop.operators._errors import OperatorError
from interop.operators._operator import Operator
from interop.signature import TensorSpec

__all__ = ["differentiate", "infer", "zeros_like"]

zeros_like = np.zeros_like


def differentiate(
    made: Operator, function: Callable[..., list[Any]], inputs: int, wrt: tuple[int, ...]
) -> Callable[..., list[Any]]:
    """Refuse: the gradient has to be given."""
    raise OperatorError(
        f"{made.name!r} is written in NumPy, which has no gradients; define one with @{made.name}.gradient (and make that an "
        "operator too where gradients of gradients are needed), or write the body in torch, TensorFlow or JAX"
    )


def infer(made: Operator, call: Call, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Refuse: the shapes have to be given."""
    raise OperatorError(
        f"{made.name!r} is written in NumPy, and a graph wants its results' shapes before it runs; give them: "
        "@interop.operator('numpy', shape=lambda x: interop.TensorSpec('', x.dtype, x.shape))"
    )
