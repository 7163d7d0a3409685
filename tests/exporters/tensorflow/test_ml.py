"""The operators of ai.onnx.ml: ONNX Runtime says what they compute, NumPy where it lacks one."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from exporters.tensorflow._convert import lower_model
from exporters.tensorflow._tensors import RefusedError
from exporters.tensorflow.ops.ml import cast_map, dict_vectorizer, zip_map
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
from tests.exporters.ml_models import X, ml_model
from tests.exporters.tensorflow._graphs import check_model, run_runtime, run_tensorflow


def _agree(operator, inputs, outputs, opset=3, rtol=1e-4, **attributes):
    check_model(ml_model(operator, inputs, outputs, opset, **attributes), list(inputs), rtol=rtol)


@pytest.fixture
def agree():
    return _agree


@pytest.fixture
def answers():
    return lambda model, inputs: (run_tensorflow(lower_model(ir.from_proto(model)), inputs), run_runtime(model, inputs))


@pytest.mark.parametrize("refused", [zip_map, cast_map, dict_vectorizer])
def test_maps_are_refused(refused):
    with pytest.raises(RefusedError, match="maps"):
        refused(X)
