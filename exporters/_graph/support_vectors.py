"""The votes of a support vector machine of several classes, one against one, for every target that has it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["pair_weights", "pairs_of"]

Array = np.ndarray[Any, Any]


def pairs_of(classes: int) -> Array:
    """All pairs of classes ``[pairs, 2]``, the smaller first, in the order that ``rho`` has."""
    return np.array(list(itertools.combinations(range(classes), 2)), np.int64).reshape(-1, 2)


def pair_weights(coefficients: Sequence[float], per_class: Sequence[int]) -> Array:
    """For each pair of classes the weights of all support vectors, most of them zero.

    Args:
        coefficients: ``[classes - 1, vectors]``, flat: for each vector its weights against the other classes.
        per_class: how many of the vectors belong to each class.

    Returns:
        float32 ``[pairs, vectors]``.
    """
    starts = np.cumsum([0, *per_class])
    given = np.array(coefficients, np.float32).reshape([-1, starts[-1]])
    pairs = pairs_of(len(per_class))
    weights = np.zeros([len(pairs), starts[-1]], np.float32)
    for row, (i, j) in zip(weights, pairs):
        row[starts[i] : starts[i + 1]] = given[j - 1, starts[i] : starts[i + 1]]
        row[starts[j] : starts[j + 1]] = given[i, starts[j] : starts[j + 1]]
    return weights
