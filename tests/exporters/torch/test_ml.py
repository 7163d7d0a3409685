"""The operators of ai.onnx.ml as torch code: ONNX Runtime says what they compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exporters import UnsupportedOperatorError, export_model
from exporters.torch._values import is_string
from tests.exporters.ml_contract import (  # noqa: F401  # collected here, for this target
    test_encoders_of_features,
    test_label_encoder_maps_between_all_types,
    test_label_encoder_of_its_first_version_and_category_mapper_know_places,
    test_linear_models,
    test_scalers,
    test_support_vector_machine_gives_probabilities,
    test_support_vector_machines,
    test_tree_ensemble_classifier_of_many_classes,
    test_tree_ensemble_classifier_of_two_classes,
    test_tree_ensemble_regressor_aggregates,
)
from tests.exporters.ml_models import FLOAT, HOLES, INT64, X, classifier, ml_model
from tests.exporters.torch._graphs import rebuilt, runtime_outputs

RANDOM = np.random.default_rng(6)


def _agree(operator, inputs, outputs, opset=3, rtol=1e-4, **attributes):
    model = ml_model(operator, inputs, outputs, opset, **attributes)
    found = rebuilt(model)(*(x if is_string(x) else torch.from_numpy(x) for x in inputs))
    found = found if isinstance(found, tuple) else (found,)
    for got, want in zip(found, runtime_outputs(model, inputs), strict=True):
        if want.dtype == object:
            assert got.tolist() == want.tolist()
            continue
        assert got.numpy().dtype == want.dtype
        np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=1e-6, strict=True)


@pytest.fixture
def agree():
    return _agree


@pytest.fixture
def answers():
    def run(model, inputs):
        found = rebuilt(model)(*map(torch.from_numpy, inputs))
        return [result.numpy() for result in found], runtime_outputs(model, inputs)

    return run


@pytest.mark.parametrize("transform", ["PROBIT", "SOFTMAX_ZERO"])
def test_rare_transforms_of_classifiers(transform):
    chances = RANDOM.random((3, 4)).astype(np.float32) / 8
    options = {
        "coefficients": [0.5, 1, 0, 0.25, 1, 1, 0.5, 0, 0, 0, 0, 0],
        "intercepts": [0.0, 0.0, 0.0],
        "post_transform": transform,
    }
    _agree("LinearClassifier", [chances], [INT64, FLOAT], classlabels_ints=[5, 6, 7], rtol=2e-3, **options)


def _forest_model():
    return ml_model(
        "TreeEnsembleClassifier",
        [HOLES],
        [INT64, FLOAT],
        classlabels_int64s=[3, 4, 5],
        **classifier([0, 1, 2, 1, 0]),
    )


def test_a_forest_is_written_and_runs_at_other_sizes(tmp_path):
    import onnx

    import interop

    onnx.save(_forest_model(), tmp_path / "forest.onnx")
    path = export_model(tmp_path / "forest.onnx", "torch", path=tmp_path / "forest.pt2").path
    wide = np.tile(HOLES, (3, 1))
    expected = runtime_outputs(_forest_model(), [wide])
    found = interop.load(path)(wide)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(
    ("operator", "attributes"), [("CastMap", {}), ("DictVectorizer", {"int64_vocabulary": [1]}), ("ZipMap", {})]
)
def test_operators_of_maps_are_refused_by_name(operator, attributes):
    with pytest.raises(UnsupportedOperatorError, match=f"ai.onnx.ml::{operator}"):
        rebuilt(ml_model(operator, [X], [FLOAT], **attributes))
