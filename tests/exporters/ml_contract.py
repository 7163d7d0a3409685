"""What every target says of the operators of ai.onnx.ml, each held against ONNX Runtime: import the tests beside two fixtures.

``agree(operator, inputs, outputs, opset=3, rtol=1e-4, **attributes)`` compares a model of one node; ``answers(model, inputs)``
gives the arrays of the target and those of ONNX Runtime.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.exporters.ml_models import FLOAT, HOLES, INT64, STRING, WORDS, X, classifier, ml_model, trees

RANDOM = np.random.default_rng(6)


def test_label_encoder_maps_between_all_types(agree):
    keys, numbers = ["a", "b", "c"], [7, -3, 5]
    agree("LabelEncoder", [WORDS], [INT64], keys_strings=keys, values_int64s=numbers, default_int64=-9)
    agree("LabelEncoder", [WORDS], [FLOAT], keys_strings=keys, values_floats=[0.5, 1.5, 2.5])
    values = np.array([[5, 7, 1], [-3, 5, 5]])
    agree("LabelEncoder", [values], [STRING], keys_int64s=numbers, values_strings=keys)
    floats = np.array([[0.5, np.nan], [1.0, -2.0]], np.float32)
    agree("LabelEncoder", [floats], [INT64], opset=4, keys_floats=[-2.0, np.nan, 0.5], values_int64s=[1, 2, 3])


def test_label_encoder_of_its_first_version_and_category_mapper_know_places(agree):
    agree("LabelEncoder", [WORDS], [INT64], opset=1, classes_strings=["a", "b", "c"])
    indices = np.array([[2, 0, 5, -1]])
    agree("LabelEncoder", [indices], [STRING], opset=1, classes_strings=["a", "b", "c"])
    categories = {"cats_strings": ["a", "b", "c"], "cats_int64s": [3, 2, 1]}
    agree("CategoryMapper", [WORDS], [INT64], **categories)
    agree("CategoryMapper", [np.array([[2, 3, 9]])], [STRING], **categories)


def test_encoders_of_features(agree):
    agree("OneHotEncoder", [WORDS], [FLOAT], cats_strings=["a", "b", "c"])
    agree("OneHotEncoder", [np.array([[2.0, 4.0]], np.float32)], [FLOAT], cats_int64s=[4, 3, 2])
    agree("FeatureVectorizer", [X, X[:, :2]], [FLOAT], inputdimensions=[4, 2])
    agree("ArrayFeatureExtractor", [X, np.array([2, 0])], [FLOAT])
    agree("ArrayFeatureExtractor", [X[0], np.array([2, 0])], [FLOAT])


def test_scalers(agree):
    agree("Binarizer", [X], [FLOAT], threshold=0.3)
    agree("Scaler", [X], [FLOAT], offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 3.0, 4.0])
    agree("Scaler", [np.arange(8).reshape(2, 4)], [FLOAT], offset=[0.5], scale=[2.0])
    for norm in ("L1", "L2"):
        agree("Normalizer", [X], [FLOAT], norm=norm)
    agree("Normalizer", [np.abs(X)], [FLOAT], norm="MAX")
    holes = np.where(X > 0.5, np.float32(np.nan), X)
    agree("Imputer", [holes], [FLOAT], imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan"))
    agree("Imputer", [np.array([[1, 2, 1]])], [INT64], imputed_value_int64s=[9], replaced_value_int64=1)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_models(agree, transform):
    weights, shifts = RANDOM.normal(size=12).tolist(), [0.1, -0.2, 0.3]
    common = {"coefficients": weights, "intercepts": shifts}
    options = {"post_transform": transform, **common}
    agree("LinearClassifier", [X], [INT64, FLOAT], classlabels_ints=[5, 6, 7], **options)
    agree("LinearClassifier", [X], [STRING, FLOAT], classlabels_strings=["a", "b", "c"], **options)
    if transform == "NONE":  # ONNX Runtime ignores the others
        agree("LinearRegressor", [X], [FLOAT], targets=3, **options)


KERNELS = {"LINEAR": [], "RBF": [0.4, 0.0, 0.0], "POLY": [0.3, 0.5, 3.0], "SIGMOID": [0.2, 0.1, 0.0]}


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_machines(agree, kernel):
    vectors = RANDOM.normal(size=(5, 4))
    common = {"support_vectors": vectors.ravel().tolist(), "kernel_type": kernel}
    common["kernel_params"] = KERNELS[kernel] or [0.0, 0.0, 0.0]
    weights = RANDOM.normal(size=5).tolist()
    for one_class in (0, 1):
        agree(
            "SVMRegressor", [X], [FLOAT], coefficients=weights, rho=[0.2], n_supports=5, one_class=one_class, **common
        )
    agree(
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
def test_support_vector_machine_gives_probabilities(answers, classes):
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
    (labels, chances), (wanted, expected) = answers(model, [X])
    np.testing.assert_allclose(chances, expected, atol=0.005)
    np.testing.assert_allclose(chances.sum(-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(labels, wanted)


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_ensemble_regressor_aggregates(agree, how):
    agree(
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
def test_tree_ensemble_classifier_of_many_classes(agree, transform):
    options = classifier([0, 1, 2, 1, 0], post_transform=transform)
    agree("TreeEnsembleClassifier", [HOLES], [INT64, FLOAT], classlabels_int64s=[3, 4, 5], **options)
    agree("TreeEnsembleClassifier", [HOLES], [STRING, FLOAT], classlabels_strings=["a", "b", "c"], **options)


@pytest.mark.parametrize("weights", [[0.4, 0.1, 0.2, 0.05, 0.5], [0.7, -0.9, 0.4, -0.6, 0.5]])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])  # ONNX Runtime leaves the softmax of two classes out
def test_tree_ensemble_classifier_of_two_classes(agree, weights, transform):
    options = classifier([0] * 5, weights=weights, post_transform=transform)
    agree("TreeEnsembleClassifier", [HOLES], [INT64, FLOAT], classlabels_int64s=[0, 1], **options)
