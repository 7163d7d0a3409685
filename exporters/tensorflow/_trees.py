"""Tree ensembles: all samples walk down all trees at once, one level a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from exporters._graph.trees import EQ, GT, GTE, LEQ, LT, MEMBER, NEQ, Forest
from exporters.tensorflow._tensors import RefusedError

__all__ = ["aggregate", "walk"]

Array = np.ndarray[Any, Any]

COMPARE = {LEQ: tf.less_equal, LT: tf.less, GTE: tf.greater_equal, GT: tf.greater, EQ: tf.equal, NEQ: tf.not_equal}


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


def aggregate(table: Array, leaves: Any, how: str) -> Any:
    """The targets ``[batch, targets]`` of the leaves ``[batch, trees]`` that the samples came to."""
    given = tf.gather(table, leaves)
    reduce = {"MIN": tf.reduce_min, "MAX": tf.reduce_max, "AVERAGE": tf.reduce_mean}.get(how, tf.reduce_sum)
    return reduce(given, 1)
