"""Ensembles of decision trees as arrays: all samples walk all trees at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from exporters.torch._values import Array

__all__ = ["AGGREGATES", "Forest", "leaf_sums", "leaves_of"]

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""By number, as TreeEnsemble has them."""

# The tests of a node, by number: at most, below, at least, above, equal, not equal, member of a set.
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(7)


@dataclass(frozen=True)
class Forest:
    """The nodes of all trees, one row a node; a leaf leads to itself.

    Attributes:
        features: the feature that a node tests.
        splits: what it is compared with.
        modes: the comparison.
        yes: where it leads to if the test holds.
        no: and if not.
        missing: whether a NaN counts as held.
        members: the sets of the nodes that test for membership, each closed by a NaN; or None.
        roots: one node a tree.
    """

    features: Array
    splits: Array
    modes: Array
    yes: Array
    no: Array
    missing: Array
    members: Any
    roots: Array


def leaves_of(forest: Forest, x: torch.Tensor) -> torch.Tensor:
    """The leaf that each sample reaches in each tree, ``[samples, trees]``."""
    features, splits, modes, yes, no, missing = (
        torch.as_tensor(np.asarray(part), device=x.device)
        for part in (forest.features, forest.splits, forest.modes, forest.yes, forest.no, forest.missing)
    )
    features, yes, no = features.long(), yes.long(), no.long()
    members = _members(forest, x)
    place = torch.as_tensor(forest.roots, device=x.device).long().expand(x.shape[0], -1)
    for _ in range(len(forest.modes)):
        value = x.gather(1, features[place])
        holds = _holds(value, splits[place].to(x.dtype), modes[place])
        if members is not None:
            is_member = (value[..., None] == members[place]).any(-1)
            holds = torch.where(modes[place] == _MEMBER, is_member, holds)
        holds = holds | (torch.isnan(value) & (missing[place] != 0))
        following = torch.where(holds, yes[place], no[place])
        if bool((following == place).all()):
            break
        place = following
    return place


def _holds(value: torch.Tensor, split: torch.Tensor, mode: torch.Tensor) -> torch.Tensor:
    tests = [value <= split, value < split, value >= split, value > split, value == split, value != split]
    holds = torch.zeros_like(value, dtype=torch.bool)
    for number, test in enumerate(tests):
        holds = torch.where(mode == number, test, holds)
    return holds


def _members(forest: Forest, x: torch.Tensor) -> torch.Tensor | None:
    """One row a node, filled up with NaN, which equals nothing."""
    places = np.flatnonzero(np.asarray(forest.modes) == _MEMBER)
    if forest.members is None or not len(places):
        return None
    values = np.asarray(forest.members)
    sets = np.split(values, np.flatnonzero(np.isnan(values)) + 1)[: len(places)]
    table = np.full([len(forest.modes), max(map(len, sets))], np.nan)
    for place, members in zip(places, sets):
        table[place, : len(members)] = members
    return torch.as_tensor(table, device=x.device).to(x.dtype)


def leaf_sums(table: Array, used: Array, leaves: torch.Tensor, how: str) -> torch.Tensor:
    """The scores of each sample, ``[samples, targets]``.

    Args:
        table: the weight of each node for each target.
        used: which of them a leaf has.
        leaves: what ``leaves_of`` gives.
        how: how the trees are joined, out of ``AGGREGATES``.
    """
    weights = torch.as_tensor(table, device=leaves.device)[leaves]
    if how in ("SUM", "AVERAGE"):
        total = weights.sum(1)
        return total / leaves.shape[1] if how == "AVERAGE" else total
    is_used = torch.as_tensor(used, device=leaves.device)[leaves]
    never = float("inf") if how == "MIN" else float("-inf")
    kept = torch.where(is_used, weights, never)
    found = kept.amin(1) if how == "MIN" else kept.amax(1)
    return torch.where(torch.isinf(found), 0, found)
