"""The operators of ai.onnx.ml: encoders, scalers, linear models and trees."""

from __future__ import annotations

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._trees import AGGREGATES, Forest, leaf_sums, leaves_of
from exporters.torch._values import RefusedError, is_string, tensor_to_array

ML = "ai.onnx.ml"


@lower("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(X, Y):
    found = X.index_select(-1, Y.reshape(-1).to(torch.int64))
    return found[None] if X.ndim == 1 else found


@lower("Binarizer", domain=ML)
def binarizer(X, *, threshold=0.0):
    return (threshold < X).to(X.dtype)


@lower("CategoryMapper", domain=ML)
def category_mapper(X, *, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused"):
    if is_string(X):
        return _looked_up(X, cats_strings, np.array(cats_int64s, np.int64), default_int64)
    return _looked_up(X, cats_int64s, np.array(cats_strings, object), default_string)


def _looked_up(X, keys, values, default):
    """The value of each key, by exact equality; NaN is a key like others."""
    array = X if is_string(X) else tensor_to_array(X)
    table = {_key(key): value for key, value in zip(keys, values)}
    found = np.empty(array.shape, values.dtype)
    found.flat[:] = [table.get(_key(item), default) for item in array.flat]
    return found if values.dtype == object else torch.from_numpy(found)


def _key(item):
    item = item.item() if isinstance(item, np.generic) else item
    item = item.decode() if isinstance(item, bytes) else item
    return (
        "nan"
        if isinstance(item, float) and np.isnan(item)
        else np.float32(item).item()
        if isinstance(item, float)
        else item
    )


@lower("FeatureVectorizer", domain=ML)
def feature_vectorizer(*X, inputdimensions=None):
    return torch.cat([(x[:, None] if x.ndim == 1 else x).float() for x in X], 1)


@lower("Imputer", domain=ML)
def imputer(
    X, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0, replaced_value_int64=0
):
    values, replaced = imputed_value_floats, replaced_value_float
    if not values:
        values, replaced = imputed_value_int64s, replaced_value_int64
    missing = torch.isnan(X) if np.isnan(replaced) else replaced == X
    return torch.where(missing, torch.tensor(values, dtype=X.dtype, device=X.device), X)


@lower("LabelEncoder", domain=ML)
def label_encoder_1(X, *, classes_strings=None, default_int64=-1, default_string="_Unused"):
    if is_string(X):
        return _looked_up(X, classes_strings, np.arange(len(classes_strings)), default_int64)
    return _looked_up(X, range(len(classes_strings)), np.array(classes_strings, object), default_string)


@lower("LabelEncoder", since=2, domain=ML, takes=("dtypes",))
def label_encoder(
    X,
    *,
    default_float=-0.0,
    default_int64=-1,
    default_string="_Unused",
    default_tensor=None,
    keys_floats=None,
    keys_int64s=None,
    keys_strings=None,
    keys_tensor=None,
    values_floats=None,
    values_int64s=None,
    values_strings=None,
    values_tensor=None,
    dtypes=(),
):
    keys = next(k for k in (keys_tensor, keys_floats, keys_int64s, keys_strings) if k is not None)
    if values_tensor is not None:
        default = {"O": default_string, "f": default_float}.get(values_tensor.dtype.kind, default_int64)
        default = default if default_tensor is None else default_tensor.reshape(-1)[0]
        return _looked_up(X, keys, values_tensor, default)
    if values_strings is not None:
        return _looked_up(X, keys, np.array(values_strings, object), default_string)
    if values_int64s is not None:
        return _looked_up(X, keys, np.array(values_int64s, np.int64), default_int64)
    return _looked_up(X, keys, np.array(values_floats, np.float32), default_float)


@lower("OneHotEncoder", domain=ML)
def one_hot_encoder(X, *, cats_int64s=None, cats_strings=None, zeros=1):
    keys = cats_strings if is_string(X) else cats_int64s
    index = _looked_up(X if is_string(X) else X.to(torch.int64), keys, np.arange(len(keys)), -1)
    if not zeros and bool((index < 0).any()):
        raise RefusedError("OneHotEncoder got a category that it does not know")
    return (index[..., None] == torch.arange(len(keys))).float()


@lower("Normalizer", domain=ML)
def normalizer(X, *, norm="MAX"):
    orders = {"MAX": float("inf"), "L1": 1, "L2": 2}
    if norm not in orders:
        raise RefusedError(f"norm {norm!r} is not MAX, L1 or L2")
    size = torch.linalg.vector_norm(X.float(), orders[norm], -1, keepdim=True)
    return X.float() / torch.clamp(size, min=1e-30)


@lower("Scaler", domain=ML)
def scaler(X, *, offset=None, scale=None):
    X = X.float() - torch.tensor(offset or 0.0, device=X.device)
    return X * torch.tensor(scale, device=X.device) if scale else X


def transformed(scores, kind):
    """Scores after ``post_transform``."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return torch.sigmoid(scores)
    if kind == "SOFTMAX":
        return torch.softmax(scores, -1)
    if kind == "SOFTMAX_ZERO":
        kept = torch.where(scores == 0, float("-inf"), scores)
        return torch.nan_to_num(torch.softmax(kept, -1))
    return torch.special.ndtri((scores + 1) / 2) if kind == "PROBIT" else scores


@lower("LinearRegressor", domain=ML)
def linear_regressor(X, *, coefficients=None, intercepts=None, post_transform="NONE", targets=1):
    weights = torch.tensor(coefficients, dtype=torch.float32).reshape(targets, -1)
    scores = X.float() @ weights.T + (torch.tensor(intercepts) if intercepts else 0)
    return transformed(scores, post_transform)


TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The post transforms of TreeEnsemble, by number."""


@lower("TreeEnsemble", domain=ML)
def tree_ensemble(
    X,
    *,
    aggregate_function=1,
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
    """Leaves stand behind the inner nodes, so that one number says where a sample is."""
    inner, leaves = len(nodes_modes), len(leaf_weights)
    own = np.arange(inner, inner + leaves)
    forest = Forest(
        features=np.concatenate([np.asarray(nodes_featureids), np.zeros(leaves, np.int64)]),
        splits=np.concatenate([np.asarray(nodes_splits), np.zeros(leaves, np.asarray(nodes_splits).dtype)]),
        modes=np.concatenate([np.asarray(nodes_modes), np.full(leaves, 255)]),
        yes=np.concatenate([np.asarray(nodes_truenodeids) + inner * np.asarray(nodes_trueleafs), own]),
        no=np.concatenate([np.asarray(nodes_falsenodeids) + inner * np.asarray(nodes_falseleafs), own]),
        missing=np.concatenate([np.asarray(nodes_missing_value_tracks_true or [0] * inner), np.zeros(leaves)]),
        members=membership_values,
        roots=np.asarray(tree_roots),
    )
    targets = n_targets or max(leaf_targetids) + 1
    table = np.zeros([inner + leaves, targets], np.asarray(leaf_weights).dtype)
    used = np.zeros([inner + leaves, targets], bool)
    table[own, leaf_targetids], used[own, leaf_targetids] = leaf_weights, True
    scores = leaf_sums(table, used, leaves_of(forest, X), AGGREGATES[aggregate_function])
    return transformed(scores.to(X.dtype), TRANSFORMS[post_transform])
