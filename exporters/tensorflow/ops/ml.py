"""The operators of ai.onnx.ml beside the trees: encoders, scalers, linear models and support vector machines."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters._graph.support_vectors import pair_weights, pairs_of
from exporters.tensorflow._labels import index_of, labels_at, transform_scores, two_scores
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of

ML = "ai.onnx.ml"


@lower("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(X, Y):
    found = tf.gather(X, tf.reshape(Y, [-1]), axis=-1)
    return found[tf.newaxis] if rank_of(X) == 1 else found


@lower("Binarizer", domain=ML)
def binarizer(X, *, threshold=0.0):
    wide = X if X.dtype.is_floating else tf.cast(X, tf.float64)
    return tf.cast(wide > tf.cast(threshold, wide.dtype), X.dtype)


@lower("CategoryMapper", domain=ML)
def category_mapper(X, *, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused"):
    if X.dtype == tf.string:
        return tf.gather(np.array([*cats_int64s, default_int64], np.int64), index_of(X, cats_strings))
    return tf.gather(tf.constant([*cats_strings, default_string]), index_of(X, cats_int64s))


@lower("FeatureVectorizer", domain=ML)
def feature_vectorizer(*X, inputdimensions=None):
    return tf.concat([tf.cast(x[:, tf.newaxis] if rank_of(x) == 1 else x, tf.float32) for x in X], 1)


@lower("Imputer", domain=ML)
def imputer(
    X, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0, replaced_value_int64=0
):
    values, replaced = imputed_value_floats, replaced_value_float
    if not values:
        values, replaced = imputed_value_int64s, replaced_value_int64
    missing = tf.math.is_nan(X) if np.isnan(replaced) else tf.equal(X, np.array(replaced, X.dtype.as_numpy_dtype))
    return tf.where(missing, np.array(values, X.dtype.as_numpy_dtype), X)


@lower("LabelEncoder", domain=ML)
def label_encoder_1(X, *, classes_strings=None, default_int64=-1, default_string="_Unused"):
    if X.dtype == tf.string:
        index = tf.cast(index_of(X, classes_strings), tf.int64)
        return tf.where(index < len(classes_strings), index, default_int64)
    count = len(classes_strings)
    index = tf.where((X >= 0) & (count > X), X, count)
    return tf.gather(tf.constant([*classes_strings, default_string]), index)


@lower("LabelEncoder", since=2, domain=ML)
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
):
    keys = next(k for k in (keys_tensor, keys_floats, keys_int64s, keys_strings) if k is not None)
    if values_tensor is not None:
        default = _default(values_tensor.dtype) if default_tensor is None else default_tensor.reshape([-1])[0]
        values = np.array([*values_tensor, default], values_tensor.dtype)
    elif values_strings is not None:
        values = np.array([*values_strings, default_string], object)
    elif values_int64s is not None:
        values = np.array([*values_int64s, default_int64], np.int64)
    else:
        values = np.array([*values_floats, default_float], np.float32)
    return tf.gather(tf.constant(values), index_of(X, keys))


def _default(dtype):
    return {"O": "_Unused", "f": -0.0}.get(dtype.kind, -1)


@lower("OneHotEncoder", domain=ML)
def one_hot_encoder(X, *, cats_int64s=None, cats_strings=None, zeros=1):
    keys = cats_strings if X.dtype == tf.string else cats_int64s
    index = index_of(X if X.dtype == tf.string else tf.cast(X, tf.int64), keys)
    if not zeros:
        check = tf.debugging.assert_less(index, len(keys), "OneHotEncoder got a category that it does not know")
        with tf.control_dependencies([check]):
            index = tf.identity(index)
    return tf.one_hot(index, len(keys), dtype=tf.float32)


@lower("Normalizer", domain=ML)
def normalizer(X, *, norm="MAX"):
    X = tf.cast(X, tf.float32)
    if norm == "MAX":
        size = tf.reduce_max(tf.abs(X), -1, keepdims=True)
    elif norm == "L1":
        size = tf.reduce_sum(tf.abs(X), -1, keepdims=True)
    elif norm == "L2":
        size = tf.norm(X, axis=-1, keepdims=True)
    else:
        raise RefusedError(f"norm {norm!r} is not MAX, L1 or L2")
    return X / tf.maximum(size, 1e-30)


@lower("Scaler", domain=ML)
def scaler(X, *, offset=None, scale=None):
    X = tf.cast(X, tf.float32)
    X = X - np.array(offset, np.float32) if offset else X
    return X * np.array(scale, np.float32) if scale else X


def _rows(x):
    """The samples as rows of floats; a single one may come as a vector."""
    x = x if x.dtype == tf.float64 else tf.cast(x, tf.float32)
    return x[tf.newaxis] if rank_of(x) == 1 else x


def _linear(x, coefficients, outputs, intercepts):
    weights = np.array(coefficients, x.dtype.as_numpy_dtype).reshape([outputs, -1])
    scores = tf.matmul(x, weights, transpose_b=True)
    return scores + np.array(intercepts, x.dtype.as_numpy_dtype) if intercepts else scores


@lower("LinearRegressor", domain=ML)
def linear_regressor(X, *, coefficients=None, intercepts=None, post_transform="NONE", targets=1):
    scores = _linear(_rows(X), coefficients, targets, intercepts)
    return tf.cast(transform_scores(scores, post_transform), tf.float32)


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
    features = shape_of(x)[1]
    outputs = len(coefficients) // features if isinstance(features, int) else len(intercepts or [0] * classes)
    scores = _linear(x, coefficients, outputs, intercepts)
    if outputs == 1 and classes == 2:
        scores = tf.concat([-scores, scores], -1)
        outputs = 2
    scores = tf.cast(transform_scores(scores, post_transform), tf.float32)
    if outputs > 1:
        return labels_at(tf.argmax(scores, -1), classlabels_ints, classlabels_strings), scores
    index = tf.cast(scores[:, 0] >= (0.0 if post_transform == "NONE" else 0.5), tf.int64)
    integers = [0, *classlabels_ints] if classlabels_ints else None
    return labels_at(index, integers, ["", *classlabels_strings] if classlabels_strings else None), scores


def _kernel(x, vectors, kernel_type, kernel_params):
    """The kernel of samples ``[batch, features]`` and support vectors ``[vectors, features]``."""
    gamma, shift, degree = kernel_params or (0.0, 0.0, 0.0)
    vectors = vectors.astype(x.dtype.as_numpy_dtype)
    if kernel_type == "RBF":
        distances = tf.reduce_sum(tf.math.squared_difference(x[:, tf.newaxis], vectors), -1)
        return tf.exp(-gamma * distances)
    products = tf.matmul(x, vectors, transpose_b=True)
    if kernel_type == "LINEAR":
        return products
    if kernel_type == "POLY":
        return (gamma * products + shift) ** int(degree)
    if kernel_type == "SIGMOID":
        return tf.tanh(gamma * products + shift)
    raise RefusedError(f"kernel_type {kernel_type!r} is not LINEAR, POLY, RBF or SIGMOID")


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
        vectors = np.array(support_vectors, np.float32).reshape([n_supports, -1])
        x = _kernel(x, vectors, kernel_type, kernel_params)
    result = _linear(x, coefficients, 1, None) + rho[0]
    if one_class:
        result = tf.where(result > 0, 1.0, -1.0)
    return tf.cast(transform_scores(result, post_transform), tf.float32)


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
        shown = tf.cast(transform_scores(scores, post_transform), tf.float32)
        return labels_at(tf.argmax(scores, -1), classlabels_ints, classlabels_strings), shown
    kernels = _kernel(
        x, np.array(support_vectors, np.float32).reshape([sum(vectors_per_class), -1]), kernel_type, kernel_params
    )
    scores = _linear(kernels, pair_weights(coefficients, vectors_per_class), len(rho), rho)
    index = tf.argmax(_votes(scores > 0, classes), -1)
    if prob_a:
        scores = _coupled(_pair_chances(scores, prob_a, prob_b), classes)
    single = len(rho) == 1 and not prob_a
    shown = (
        two_scores(scores, post_transform, probabilities=False) if single else transform_scores(scores, post_transform)
    )
    return labels_at(index, classlabels_ints, classlabels_strings), tf.cast(shown, tf.float32)


def _votes(first_wins, classes):
    """How many of the pairs each class wins."""
    pairs = pairs_of(classes)
    first, second = (np.eye(classes, dtype=np.float32)[pairs[:, side]] for side in (0, 1))
    won = tf.cast(first_wins, tf.float32)
    return tf.matmul(won, first) + tf.matmul(1 - won, second)


def _pair_chances(scores, prob_a, prob_b):
    """The probability that the first class of each pair wins."""
    dtype = scores.dtype.as_numpy_dtype
    raw = 1 - tf.sigmoid(scores * np.array(prob_a, dtype) + np.array(prob_b, dtype))
    return tf.clip_by_value(raw, 1e-7, 1 - 1e-7)


def _coupled(chances, classes):
    """The class probabilities that fit pairwise ones best (Wu, Lin and Weng 2004, equation 21), solved exactly."""
    pairs = pairs_of(classes)
    size = classes + 1
    first, second = pairs[:, 0], pairs[:, 1]
    one, other = chances, 1 - chances
    eye = np.eye(size, dtype=chances.dtype.as_numpy_dtype)
    outer = eye[first][:, :, None] * eye[second][:, None, :]
    cross = tf.einsum("bp,pij->bij", -one * other, outer + outer.transpose(0, 2, 1))
    diagonal = tf.matmul(tf.square(other), eye[first]) + tf.matmul(tf.square(one), eye[second])
    border = np.zeros([size, size], eye.dtype)
    border[-1, :-1] = border[:-1, -1] = 1  # the probabilities add up to one
    system = cross + tf.linalg.diag(diagonal) + border
    wanted = tf.broadcast_to(eye[-1][:, None], [tf.shape(chances)[0], size, 1])
    return tf.linalg.solve(system, wanted)[:, :-1, 0]


def _refuse_maps():
    raise RefusedError("its values are maps, which TensorFlow has no tensors for")


@lower("CastMap", domain=ML)
def cast_map(X, *, cast_to="TO_FLOAT", map_form="DENSE", max_map=1):
    _refuse_maps()


@lower("DictVectorizer", domain=ML)
def dict_vectorizer(X, *, int64_vocabulary=None, string_vocabulary=None):
    _refuse_maps()


@lower("ZipMap", domain=ML)
def zip_map(X, *, classlabels_int64s=None, classlabels_strings=None):
    _refuse_maps()
