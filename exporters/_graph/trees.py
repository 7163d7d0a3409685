"""Tree ensembles of ai.onnx.ml as tables of nodes, for every target that walks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporters._graph.operator_table import RefusedError

__all__ = [
    "AGGREGATES",
    "EQ",
    "GT",
    "GTE",
    "LEQ",
    "LT",
    "MEMBER",
    "NEQ",
    "TRANSFORMS",
    "Forest",
    "both_labels",
    "class_columns",
    "forest_of_ensemble",
    "forest_of_nodes",
    "leaf_table",
]

Array = np.ndarray[Any, Any]

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
MODES = {
    "BRANCH_LEQ": LEQ,
    "BRANCH_LT": LT,
    "BRANCH_GTE": GTE,
    "BRANCH_GT": GT,
    "BRANCH_EQ": EQ,
    "BRANCH_NEQ": NEQ,
}
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""By number, as TreeEnsemble has them."""
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The post transforms of TreeEnsemble, by number."""


@dataclass(frozen=True)
class Forest:
    """Trees as one table of nodes; a leaf's branches lead to itself.

    Attributes:
        features: ``[nodes]``, which feature a node looks at.
        splits: ``[nodes]``, what it compares it with.
        modes: ``[nodes]``, how.
        yes: ``[nodes]``, the next node where the comparison holds.
        no: ``[nodes]``, the next node where it does not.
        missing: ``[nodes]``, whether NaN counts as yes.
        members: ``[nodes, most]``, the values of nodes that test for membership, filled up with NaN; or None.
        roots: ``[trees]``.
    """

    features: Array
    splits: Array
    modes: Array
    yes: Array
    no: Array
    missing: Array
    members: Array | None
    roots: Array

    @property
    def depth(self) -> int:
        """The longest way from a root to a leaf."""
        level, depth = set(self.roots.tolist()), 0
        while level := {int(t) for n in level for t in (self.yes[n], self.no[n]) if t != n}:
            depth += 1
            if depth > len(self.yes):
                raise RefusedError("its trees have a cycle")
        return depth


def forest_of_ensemble(
    leaves: int,
    features: Sequence[int],
    splits: Array,
    modes: Array,
    members: Any,
    missing: Sequence[int] | None,
    yes: tuple[Sequence[int], Sequence[int]],
    no: tuple[Sequence[int], Sequence[int]],
    roots: Sequence[int],
) -> Forest:
    """The forest of TreeEnsemble: its leaves stand behind its inner nodes, so that one number says where a sample is.

    Args:
        leaves: how many there are.
        features: of the inner nodes, as the next ones.
        splits: what they compare with.
        modes: how.
        members: the sets of the nodes that test for membership, in their order, each closed by a NaN; or None.
        missing: whether NaN counts as yes; None for never.
        yes: numbers of the next nodes where the comparison holds, and which of these count leaves.
        no: likewise where it does not.
        roots: one node a tree.
    """
    inner = len(modes)

    def filled(values: Any, dtype: Any = None) -> Array:
        given = np.asarray(values, dtype)
        return np.concatenate([given, np.zeros(leaves, given.dtype)])

    def following(way: tuple[Sequence[int], Sequence[int]]) -> Array:
        ids, are_leaves = way
        return np.concatenate([np.asarray(ids) + inner * np.asarray(are_leaves), np.arange(inner, inner + leaves)])

    return Forest(
        features=filled(features),
        splits=filled(splits),
        modes=filled(modes),
        yes=following(yes),
        no=following(no),
        missing=filled(missing or np.zeros(inner)),
        members=_members(modes, members, inner + leaves),
        roots=np.asarray(roots),
    )


def _members(modes: Array, values: Any, rows: int) -> Array | None:
    places = np.flatnonzero(np.asarray(modes) == MEMBER)
    if values is None or not len(places):
        return None
    ends = np.flatnonzero(np.isnan(values))
    sets = np.split(values, ends + 1)[: len(places)]
    table = np.full([rows, max(map(len, sets))], np.nan)
    for place, members in zip(places, sets):
        table[place, : len(members)] = members
    return table


def forest_of_nodes(
    tree_ids: Sequence[int],
    node_ids: Sequence[int],
    features: Sequence[int],
    values: Any,
    modes: Sequence[str],
    true_ids: Sequence[int],
    false_ids: Sequence[int],
    missing: Sequence[int] | None,
) -> tuple[Forest, dict[tuple[int, int], int]]:
    """The forest of TreeEnsembleRegressor and TreeEnsembleClassifier, and the row of each (tree, node)."""
    rows = {key: row for row, key in enumerate(zip(tree_ids, node_ids))}
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    own = np.arange(len(modes))
    yes, no = (
        np.array([row if leaf else rows[t, n] for row, leaf, t, n in zip(own, is_leaf, tree_ids, ids)], np.int64)
        for ids in (true_ids, false_ids)
    )
    if unknown := set(modes) - {"LEAF", *MODES}:
        raise RefusedError(f"its nodes have the modes {sorted(unknown)}")
    numbers = np.array([MODES.get(mode, LEQ) for mode in modes])
    tracks = np.zeros(len(modes), bool) if not missing else np.array(missing, bool)
    roots = np.array([rows[t, _first(tree_ids, node_ids, t)] for t in dict.fromkeys(tree_ids)])
    forest = Forest(np.array(features), np.asarray(values), numbers, yes, no, tracks, None, roots)
    return forest, rows


def _first(tree_ids: Sequence[int], node_ids: Sequence[int], tree: int) -> int:
    """The first node of a tree is its root."""
    return next(node for t, node in zip(tree_ids, node_ids) if t == tree)


def leaf_table(
    shape: tuple[int, int],
    rows: Sequence[int],
    columns: Sequence[int],
    weights: Any,
    how: str,
    dtype: np.dtype[Any],
) -> Array:
    """What each leaf gives to each target.

    Args:
        shape: numbers of leaves and of targets.
        rows: the leaf of each weight.
        columns: its target.
        weights: numbers; several for one place are aggregated.
        how: AVERAGE, SUM, MIN or MAX.
        dtype: of the table.
    """
    if how not in AGGREGATES:
        raise RefusedError(f"aggregate_function {how!r} is not one of {', '.join(AGGREGATES)}")
    combine: np.ufunc = {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add)
    start = {"MIN": np.finfo(dtype).max, "MAX": np.finfo(dtype).min}.get(how, 0)
    table = np.full(shape, start, dtype)
    combine.at(table, (np.asarray(rows), np.asarray(columns)), np.asarray(weights, dtype))
    return table


def class_columns(class_ids: Sequence[int], classes: int) -> tuple[bool, Sequence[int]]:
    """Whether one score stands for two classes, and the column of the score that each weight adds to."""
    binary = len(set(class_ids)) == 1 and classes <= 2
    return binary, [0] * len(class_ids) if binary else class_ids


def both_labels(
    numbers: Sequence[int] | None, texts: Sequence[str] | None
) -> tuple[Sequence[int] | None, Sequence[str] | None]:
    """The labels of a classifier; where there is one, it stands for the second class, and the first is 0 or empty."""
    if len(numbers or texts or ()) != 1:
        return numbers, texts
    return [0, *numbers] if numbers else None, ["", *texts] if texts else None
