"""The operators of ai.onnx.ml: ONNX Runtime says what they compute, NumPy where it lacks one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from exporters.tensorflow._convert import lower_model
from exporters.tensorflow._tensors import RefusedError
from exporters.tensorflow.ops.ml import cast_map, dict_vectorizer, zip_map
from tests.exporters.ml_models import FLOAT, HOLES, INT64, STRING, WORDS, X, classifier, ml_model, trees
from tests.exporters.tensorflow._graphs import check_model, run_runtime, run_tensorflow

RANDOM = np.random.default_rng(6)


def _agree(operator, inputs, outputs, opset=3, rtol=1e-4, **attributes):
    check_model(ml_model(operator, inputs, outputs, opset, **attributes), list(inputs), rtol=rtol)


def test_label_encoder_maps_between_all_types():
    keys, numbers = ["a", "b", "c"], [7, -3, 5]
    _agree("LabelEncoder", [WORDS], [INT64], keys_strings=keys, values_int64s=numbers, default_int64=-9)
    _agree("LabelEncoder", [WORDS], [FLOAT], keys_strings=keys, values_floats=[0.5, 1.5, 2.5])
    values = np.array([[5, 7, 1], [-3, 5, 5]])
    _agree("LabelEncoder", [values], [STRING], keys_int64s=numbers, values_strings=keys)
    floats = np.array([[0.5, np.nan], [1.0, -2.0]], np.float32)
    _agree("LabelEncoder", [floats], [INT64], opset=4, keys_floats=[-2.0, np.nan, 0.5], values_int64s=[1, 2, 3])


def test_label_encoder_of_its_first_version_and_category_mapper_know_places():
    _agree("LabelEncoder", [WORDS], [INT64], opset=1, classes_strings=["a", "b", "c"])
    indices = np.array([[2, 0, 5, -1]])
    _agree("LabelEncoder", [indices], [STRING], opset=1, classes_strings=["a", "b", "c"])
    categories = {"cats_strings": ["a", "b", "c"], "cats_int64s": [3, 2, 1]}
    _agree("CategoryMapper", [WORDS], [INT64], **categories)
    _agree("CategoryMapper", [np.array([[2, 3, 9]])], [STRING], **categories)


def test_encoders_of_features():
    _agree("OneHotEncoder", [WORDS], [FLOAT], cats_strings=["a", "b", "c"])
    _agree("OneHotEncoder", [np.array([[2.0, 4.0]], np.float32)], [FLOAT], cats_int64s=[4, 3, 2])
    _agree("FeatureVectorizer", [X, X[:, :2]], [FLOAT], inputdimensions=[4, 2])
    _agree("ArrayFeatureExtractor", [X, np.array([2, 0])], [FLOAT])
    _agree("ArrayFeatureExtractor", [X[0], np.array([2, 0])], [FLOAT])


def test_scalers():
    _agree("Binarizer", [X], [FLOAT], threshold=0.3)
    _agree("Scaler", [X], [FLOAT], offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 3.0, 4.0])
    _agree("Scaler", [np.arange(8).reshape(2, 4)], [FLOAT], offset=[0.5], scale=[2.0])
    for norm in ("L1", "L2"):
        _agree("Normalizer", [X], [FLOAT], norm=norm)
    _agree("Normalizer", [np.abs(X)], [FLOAT], norm="MAX")
    holes = np.where(X > 0.5, np.float32(np.nan), X)
    _agree("Imputer", [holes], [FLOAT], imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan"))
    _agree("Imputer", [np.array([[1, 2, 1]])], [INT64], imputed_value_int64s=[9], replaced_value_int64=1)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_models(transform):
    weights, shifts = RANDOM.normal(size=12).tolist(), [0.1, -0.2, 0.3]
    common = {"coefficients": weights, "intercepts": shifts}
    options = {"post_transform": transform, **common}
    _agree("LinearClassifier", [X], [INT64, FLOAT], classlabels_ints=[5, 6, 7], **options)
    _agree("LinearClassifier", [X], [STRING, FLOAT], classlabels_strings=["a", "b", "c"], **options)
    if transform == "NONE":  # ONNX Runtime ignores the others
        _agree("LinearRegressor", [X], [FLOAT], targets=3, **options)


KERNELS = {"LINEAR": [], "RBF": [0.4, 0.0, 0.0], "POLY": [0.3, 0.5, 3.0], "SIGMOID": [0.2, 0.1, 0.0]}


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_machines(kernel):
    vectors = RANDOM.normal(size=(5, 4))
    common = {"support_vectors": vectors.ravel().tolist(), "kernel_type": kernel}
    common["kernel_params"] = KERNELS[kernel] or [0.0, 0.0, 0.0]
    weights = RANDOM.normal(size=5).tolist()
    for one_class in (0, 1):
        _agree(
            "SVMRegressor", [X], [FLOAT], coefficients=weights, rho=[0.2], n_supports=5, one_class=one_class, **common
        )
    _agree(
        "SVMClassifier",
        [X],
        [INT64, FLOAT],
        coefficients=RANDOM.normal(size=10).tolist(),
        vectors_per_class=[2, 1, 2],
        rho=[0.1, -0.1, 0.2],
        classlabels_ints=[4, 5, 6],
        **common,
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_support_vector_machine_gives_probabilities(classes):
    vectors = RANDOM.normal(size=(6, 4))
    pairs = classes * (classes - 1) // 2
    model = ml_model(
        "SVMClassifier",
        [X],
        [INT64, FLOAT],
        coefficients=RANDOM.normal(size=6 * (classes - 1)).tolist(),
        vectors_per_class=[6 // classes] * classes,
        rho=[0.1, -0.1, 0.2][:pairs],
        prob_a=[-1.0, -0.8, -1.2][:pairs],
        prob_b=[0.1, 0.0, 0.2][:pairs],
        classlabels_ints=[4, 5, 6][:classes],
        support_vectors=vectors.ravel().tolist(),
        kernel_type="RBF",
        kernel_params=[0.4, 0.0, 0.0],
    )
    # ONNX Runtime iterates until its equations hold to 0.005 divided by the number of classes.
    labels, chances = run_tensorflow(lower_model(ir.from_proto(model)), [X])
    wanted, expected = run_runtime(model, [X])
    np.testing.assert_allclose(chances, expected, atol=0.005)
    np.testing.assert_allclose(chances.sum(-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(labels, wanted)


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_ensemble_regressor_aggregates(how):
    _agree(
        "TreeEnsembleRegressor",
        [HOLES],
        [FLOAT],
        n_targets=2,
        target_treeids=[0, 0, 0, 0, 1, 1, 1, 1],
        target_nodeids=[2, 3, 4, 4, 1, 1, 2, 2],
        target_ids=[0, 1, 0, 1, 0, 1, 0, 1],
        target_weights=[1.0, 2.0, -3.0, 4.0, 0.5, 0.25, -1.0, 8.0],
        base_values=[10.0, 20.0],
        aggregate_function=how,
        **trees(),
    )


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_tree_ensemble_classifier_of_many_classes(transform):
    options = classifier([0, 1, 2, 1, 0], post_transform=transform)
    _agree("TreeEnsembleClassifier", [HOLES], [INT64, FLOAT], classlabels_int64s=[3, 4, 5], **options)
    _agree("TreeEnsembleClassifier", [HOLES], [STRING, FLOAT], classlabels_strings=["a", "b", "c"], **options)


@pytest.mark.parametrize("weights", [[0.4, 0.1, 0.2, 0.05, 0.5], [0.7, -0.9, 0.4, -0.6, 0.5]])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])  # ONNX Runtime leaves the softmax of two classes out
def test_tree_ensemble_classifier_of_two_classes(weights, transform):
    options = classifier([0] * 5, weights=weights, post_transform=transform)
    _agree("TreeEnsembleClassifier", [HOLES], [INT64, FLOAT], classlabels_int64s=[0, 1], **options)


@pytest.mark.parametrize("refused", [zip_map, cast_map, dict_vectorizer])
def test_maps_are_refused(refused):
    with pytest.raises(RefusedError, match="maps"):
        refused(X)
