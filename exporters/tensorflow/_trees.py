"""Tree ensembles: all samples walk down all trees at once, one level a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from exporters.tensorflow._tensors import RefusedError

__all__ = ["Forest", "aggregate", "forest_of_nodes", "leaf_table", "walk"]

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
COMPARE = {LEQ: tf.less_equal, LT: tf.less, GTE: tf.greater_equal, GT: tf.greater, EQ: tf.equal, NEQ: tf.not_equal}
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


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


def walk(forest: Forest, x: Any) -> Any:
    """The leaf of each sample in each tree.

    Args:
        forest: the trees.
        x: ``[batch, features]``, floats.

    Returns:
        int32 nodes ``[batch, trees]``.
    """
    roots = forest.roots.astype(np.int32)
    nodes = tf.broadcast_to(roots, [tf.shape(x)[0], len(roots)])
    yes, no = forest.yes.astype(np.int32), forest.no.astype(np.int32)

    def step(nodes: Any) -> tuple[Any]:
        return (tf.where(_holds(forest, x, nodes), tf.gather(yes, nodes), tf.gather(no, nodes)),)

    depth = forest.depth
    if depth == 0:
        return nodes
    (nodes,) = tf.while_loop(lambda _: True, step, (nodes,), maximum_iterations=depth)
    return nodes


def _holds(forest: Forest, x: Any, nodes: Any) -> Any:
    value = tf.gather(x, tf.gather(forest.features.astype(np.int32), nodes), batch_dims=1)
    split = tf.gather(forest.splits.astype(x.dtype.as_numpy_dtype), nodes)
    inner = forest.modes[forest.yes != np.arange(len(forest.yes))]
    modes = np.unique(inner).tolist()
    result = _compare(forest, modes[0], value, split, nodes)
    for mode in modes[1:]:
        chosen = tf.gather(forest.modes.astype(np.int32), nodes) == mode
        result = tf.where(chosen, _compare(forest, mode, value, split, nodes), result)
    if forest.missing.any():
        result |= tf.math.is_nan(value) & tf.gather(forest.missing.astype(bool), nodes)
    return result


def _compare(forest: Forest, mode: int, value: Any, split: Any, nodes: Any) -> Any:
    if mode in COMPARE:
        return COMPARE[mode](value, split)
    if mode != MEMBER or forest.members is None:
        raise RefusedError(f"its nodes have the mode {mode}, or lack the values of a membership test")
    members = tf.gather(forest.members.astype(value.dtype.as_numpy_dtype), nodes)
    return tf.reduce_any(value[..., tf.newaxis] == members, -1)


def leaf_table(
    leaves: int, targets: int, entries: Sequence[tuple[int, int, float]], how: str, dtype: np.dtype[Any]
) -> Array:
    """What each leaf gives to each target.

    Args:
        leaves: number of rows.
        targets: number of columns.
        entries: ``(row, column, weight)``; several for one place are aggregated.
        how: AVERAGE, SUM, MIN or MAX.
        dtype: of the table.
    """
    if how not in AGGREGATES:
        raise RefusedError(f"aggregate_function {how!r} is not one of {', '.join(AGGREGATES)}")
    combine: np.ufunc = {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add)
    start = {"MIN": np.finfo(dtype).max, "MAX": np.finfo(dtype).min}.get(how, 0)
    table = np.full([leaves, targets], start, dtype)
    for row, column, weight in entries:
        table[row, column] = combine(table[row, column], weight)
    return table


def aggregate(table: Array, leaves: Any, how: str) -> Any:
    """The targets ``[batch, targets]`` of the leaves ``[batch, trees]`` that the samples came to."""
    given = tf.gather(table, leaves)
    reduce = {"MIN": tf.reduce_min, "MAX": tf.reduce_max, "AVERAGE": tf.reduce_mean}.get(how, tf.reduce_sum)
    return reduce(given, 1)


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
