"""Tree ensembles: all samples walk down all trees at once, one level a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from exporters._graph.trees import EQ, GT, GTE, LEQ, LT, MEMBER, NEQ, Forest
from exporters.torch._values import Array, RefusedError

__all__ = ["aggregate", "walk"]

_COMPARE = {LEQ: torch.le, LT: torch.lt, GTE: torch.ge, GT: torch.gt, EQ: torch.eq, NEQ: torch.ne}


def walk(forest: Forest, x: torch.Tensor) -> torch.Tensor:
    """The leaf of each sample in each tree.

    Args:
        forest: the trees.
        x: ``[batch, features]``, floats.

    Returns:
        int64 nodes ``[batch, trees]``.
    """
    roots, yes, no = (_tensor(part, torch.int64, x) for part in (forest.roots, forest.yes, forest.no))
    nodes = roots.expand(x.shape[0], -1)
    for _ in range(forest.depth):
        nodes = torch.where(_holds(forest, x, nodes), yes[nodes], no[nodes])
    return nodes


def _tensor(values: Array, dtype: torch.dtype, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(np.asarray(values)).to(like.device, dtype)


def _holds(forest: Forest, x: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    value = x.gather(1, _tensor(forest.features, torch.int64, x)[nodes])
    split = _tensor(forest.splits, x.dtype, x)[nodes]
    inner = forest.modes[forest.yes != np.arange(len(forest.yes))]
    first, *others = np.unique(inner).tolist()
    result = _compare(forest, first, value, split, nodes)
    for mode in others:
        chosen = _tensor(forest.modes, torch.int64, x)[nodes] == mode
        result = torch.where(chosen, _compare(forest, mode, value, split, nodes), result)
    if forest.missing.any():
        result = result | (torch.isnan(value) & _tensor(forest.missing, torch.bool, x)[nodes])
    return result


def _compare(forest: Forest, mode: int, value: torch.Tensor, split: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    if mode in _COMPARE:
        return torch.as_tensor(_COMPARE[mode](value, split))
    if mode != MEMBER or forest.members is None:
        raise RefusedError(f"its nodes have the mode {mode}, or lack the values of a membership test")
    members = _tensor(forest.members, value.dtype, value)[nodes]
    return (value[..., None] == members).any(-1)


def aggregate(table: Array, leaves: torch.Tensor, how: str) -> torch.Tensor:
    """The targets ``[batch, targets]`` of the leaves ``[batch, trees]`` that the samples came to."""
    given: Any = torch.tensor(table, device=leaves.device)[leaves]
    if how in ("MIN", "MAX"):
        return torch.as_tensor(given.amin(1) if how == "MIN" else given.amax(1))
    return torch.as_tensor(given.mean(1) if how == "AVERAGE" else given.sum(1))
