"""The tree ensembles of ai.onnx.ml."""

from __future__ import annotations

import functools

import numpy as np
import torch

from exporters._graph.trees import (
    AGGREGATES,
    TRANSFORMS,
    both_labels,
    class_columns,
    forest_of_ensemble,
    forest_of_nodes,
    leaf_table,
)
from exporters.torch._labels import labels_at, transform_scores, two_scores
from exporters.torch._table import lower
from exporters.torch._trees import aggregate, walk
from interop.dtypes import dtype_of

ML = "ai.onnx.ml"
SUM = 1


@lower("TreeEnsemble", domain=ML)
def tree_ensemble(
    X,
    *,
    aggregate_function=SUM,
    leaf_targetids,
    leaf_weights,
    membership_values=None,
    n_targets=None,
    nodes_falseleafs,
    nodes_falsenodeids,
    nodes_featureids,
    nodes_hitrates=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes,
    nodes_splits,
    nodes_trueleafs,
    nodes_truenodeids,
    post_transform=0,
    tree_roots,
):
    inner, leaves = len(nodes_modes), len(leaf_weights)
    forest = forest_of_ensemble(
        leaves, nodes_featureids, nodes_splits, nodes_modes, membership_values, nodes_missing_value_tracks_true,
        (nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs), tree_roots,
    )  # fmt: skip
    how = AGGREGATES[aggregate_function]
    targets = n_targets or max(leaf_targetids) + 1
    own = range(inner, inner + leaves)
    table = leaf_table((inner + leaves, targets), own, leaf_targetids, leaf_weights, how, dtype_of(X.dtype).numpy)
    return transform_scores(aggregate(table, walk(forest, X), how), TRANSFORMS[post_transform])


@lower("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(
    X,
    *,
    aggregate_function="SUM",
    base_values=None,
    base_values_as_tensor=None,
    n_targets=None,
    nodes_falsenodeids=None,
    nodes_featureids=None,
    nodes_hitrates=None,
    nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes=None,
    nodes_nodeids=None,
    nodes_treeids=None,
    nodes_truenodeids=None,
    nodes_values=None,
    nodes_values_as_tensor=None,
    post_transform="NONE",
    target_ids=None,
    target_nodeids=None,
    target_treeids=None,
    target_weights=None,
    target_weights_as_tensor=None,
):
    values = nodes_values if nodes_values_as_tensor is None else nodes_values_as_tensor
    forest, rows = _forest(
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        values,
        nodes_modes,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
    )
    X = _floats(X)
    weights = target_weights if target_weights_as_tensor is None else target_weights_as_tensor
    places = [rows[key] for key in zip(target_treeids, target_nodeids)]
    shape = len(nodes_modes), n_targets or max(target_ids) + 1
    table = leaf_table(shape, places, target_ids, weights, aggregate_function, dtype_of(X.dtype).numpy)
    result = _with_base(aggregate(table, walk(forest, X), aggregate_function), base_values, base_values_as_tensor)
    return transform_scores(result, post_transform).float()


@lower("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(
    X,
    *,
    base_values=None,
    base_values_as_tensor=None,
    class_ids=None,
    class_nodeids=None,
    class_treeids=None,
    class_weights=None,
    class_weights_as_tensor=None,
    classlabels_int64s=None,
    classlabels_strings=None,
    nodes_falsenodeids=None,
    nodes_featureids=None,
    nodes_hitrates=None,
    nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes=None,
    nodes_nodeids=None,
    nodes_treeids=None,
    nodes_truenodeids=None,
    nodes_values=None,
    nodes_values_as_tensor=None,
    post_transform="NONE",
):
    values = nodes_values if nodes_values_as_tensor is None else nodes_values_as_tensor
    forest, rows = _forest(
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        values,
        nodes_modes,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
    )
    X = _floats(X)
    weights = class_weights if class_weights_as_tensor is None else class_weights_as_tensor
    labels = classlabels_int64s or classlabels_strings or []
    binary, columns = class_columns(class_ids, len(labels))
    places = [rows[key] for key in zip(class_treeids, class_nodeids)]
    shape = len(nodes_modes), 1 if binary else len(labels)
    table = leaf_table(shape, places, columns, weights, "SUM", dtype_of(X.dtype).numpy)
    scores = _with_base(aggregate(table, walk(forest, X), "SUM"), base_values, base_values_as_tensor)
    scores = scores.float()
    if not binary:
        index, shown = scores.argmax(-1), transform_scores(scores, post_transform)
    else:
        positive = min(weights) >= 0
        index = (scores[:, 0] > (0.5 if positive else 0.0)).to(torch.int64)
        shown = two_scores(scores, post_transform, probabilities=positive)
    return labels_at(index, *both_labels(classlabels_int64s, classlabels_strings)), shown


def _forest(*parts):
    """The forest, which is made once: a live module calls its lowering again and again."""
    return _made_forest(*(part if part is None else tuple(np.asarray(part).tolist()) for part in parts))


_made_forest = functools.lru_cache(maxsize=32)(forest_of_nodes)


def _floats(x):
    return x if x.dtype.is_floating_point else x.float()


def _with_base(result, values, tensor):
    base = values if tensor is None else tensor
    if base is None or not len(base):
        return result
    return result + torch.tensor(np.asarray(base)).to(result)
