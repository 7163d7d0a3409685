"""The operators of ai.onnx.ml beside the trees: encoders, scalers, linear models and support vector machines."""

from __future__ import annotations

import numpy as np
import torch

from exporters._graph.support_vectors import pair_weights, pairs_of
from exporters.torch._labels import labels_at, transform_scores, two_scores
from exporters.torch._table import lower
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


def _rows(x):
    """The samples as rows of floats; a single one may come as a vector."""
    x = x if x.dtype == torch.float64 else x.float()
    return x[None] if x.ndim == 1 else x


def _linear(x, coefficients, outputs, intercepts):
    weights = torch.tensor(coefficients, dtype=x.dtype, device=x.device).reshape(outputs, -1)
    return torch.nn.functional.linear(x, weights, torch.tensor(intercepts).to(x) if intercepts else None)


@lower("LinearRegressor", domain=ML)
def linear_regressor(X, *, coefficients=None, intercepts=None, post_transform="NONE", targets=1):
    return transform_scores(_linear(_rows(X), coefficients, targets, intercepts), post_transform).float()


@lower("LinearClassifier", domain=ML)
def linear_classifier(
    X,
    *,
    classlabels_ints=None,
    classlabels_strings=None,
    coefficients,
    intercepts=None,
    multi_class=0,
    post_transform="NONE",
):
    x = _rows(X)
    classes = len(classlabels_ints or classlabels_strings or [])
    outputs = len(coefficients) // x.shape[1]
    scores = _linear(x, coefficients, outputs, intercepts)
    if outputs == 1 and classes == 2:
        scores = torch.cat([-scores, scores], -1)
        outputs = 2
    scores = transform_scores(scores, post_transform).float()
    if outputs > 1:
        return labels_at(scores.argmax(-1), classlabels_ints, classlabels_strings), scores
    index = (scores[:, 0] >= (0.0 if post_transform == "NONE" else 0.5)).to(torch.int64)
    integers = [0, *classlabels_ints] if classlabels_ints else None
    return labels_at(index, integers, ["", *classlabels_strings] if classlabels_strings else None), scores


def _kernel(x, vectors, kernel_type, kernel_params):
    """The kernel of samples ``[batch, features]`` and support vectors ``[vectors, features]``."""
    gamma, shift, degree = kernel_params or (0.0, 0.0, 0.0)
    if kernel_type == "RBF":
        return torch.exp(-gamma * (x[:, None] - vectors).square().sum(-1))
    products = x @ vectors.T
    if kernel_type == "LINEAR":
        return products
    if kernel_type == "POLY":
        return (gamma * products + shift) ** int(degree)
    if kernel_type == "SIGMOID":
        return torch.tanh(gamma * products + shift)
    raise RefusedError(f"kernel_type {kernel_type!r} is not LINEAR, POLY, RBF or SIGMOID")


def _vectors(support_vectors, count, like):
    return torch.tensor(support_vectors, dtype=torch.float32).reshape(count, -1).to(like)


@lower("SVMRegressor", domain=ML)
def svm_regressor(
    X,
    *,
    coefficients=None,
    kernel_params=None,
    kernel_type="LINEAR",
    n_supports=0,
    one_class=0,
    post_transform="NONE",
    rho=None,
    support_vectors=None,
):
    x = _rows(X)
    if n_supports:
        x = _kernel(x, _vectors(support_vectors, n_supports, x), kernel_type, kernel_params)
    result = _linear(x, coefficients, 1, None) + rho[0]
    if one_class:
        result = torch.where(result > 0, 1.0, -1.0)
    return transform_scores(result, post_transform).float()


@lower("SVMClassifier", domain=ML)
def svm_classifier(
    X,
    *,
    classlabels_ints=None,
    classlabels_strings=None,
    coefficients=None,
    kernel_params=None,
    kernel_type="LINEAR",
    post_transform="NONE",
    prob_a=None,
    prob_b=None,
    rho=None,
    support_vectors=None,
    vectors_per_class=None,
):
    x = _rows(X)
    classes = max(len(classlabels_ints or classlabels_strings or []), 1)
    if not vectors_per_class:
        scores = _linear(x, coefficients, classes, None) + rho[0]
        shown = transform_scores(scores, post_transform).float()
        return labels_at(scores.argmax(-1), classlabels_ints, classlabels_strings), shown
    kernels = _kernel(x, _vectors(support_vectors, sum(vectors_per_class), x), kernel_type, kernel_params)
    scores = _linear(kernels, pair_weights(coefficients, vectors_per_class), len(rho), rho)
    index = _votes(scores > 0, classes).argmax(-1)
    if prob_a:
        scores = _coupled(_pair_chances(scores, prob_a, prob_b), classes)
    if len(rho) == 1 and not prob_a:
        shown = two_scores(scores, post_transform, probabilities=False)
    else:
        shown = transform_scores(scores, post_transform)
    return labels_at(index, classlabels_ints, classlabels_strings), shown.float()


def _votes(first_wins, classes):
    """How many of the pairs each class wins."""
    first, second = (torch.eye(classes)[torch.from_numpy(side)].to(first_wins.device) for side in pairs_of(classes).T)
    won = first_wins.float()
    return won @ first + (1 - won) @ second


def _pair_chances(scores, prob_a, prob_b):
    """The probability that the first class of each pair wins."""
    raw = 1 - torch.sigmoid(scores * torch.tensor(prob_a).to(scores) + torch.tensor(prob_b).to(scores))
    return torch.clamp(raw, 1e-7, 1 - 1e-7)


def _coupled(chances, classes):
    """The class probabilities that fit pairwise ones best (Wu, Lin and Weng 2004, equation 21), solved exactly."""
    size = classes + 1
    first, second = (torch.eye(size)[torch.from_numpy(side)].to(chances) for side in pairs_of(classes).T)
    one, other = chances, 1 - chances
    outer = first[:, :, None] * second[:, None, :]
    cross = torch.einsum("bp,pij->bij", -one * other, outer + outer.transpose(1, 2))
    diagonal = other.square() @ first + one.square() @ second
    border = torch.zeros(size, size).to(chances)
    border[-1, :-1] = border[:-1, -1] = 1  # the probabilities add up to one
    system = cross + torch.diag_embed(diagonal) + border
    wanted = torch.eye(size)[-1].to(chances).expand(chances.shape[0], size)
    return torch.linalg.solve(system, wanted)[:, :-1]
