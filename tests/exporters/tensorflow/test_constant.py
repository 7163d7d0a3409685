"""Constants, ranges, windows and random values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import tensorflow as tf
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from exporters.tensorflow._convert import lower_model
from tests.exporters.tensorflow._nodes import check_node, gradients, lower_node

DATA = np.random.default_rng(3).standard_normal((200, 50)).astype(np.float32)


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


def constant_node(**attributes):
    node = helper.make_node("Constant", [], ["y0"], **attributes)
    made = helper.make_tensor_value_info("y0", TensorProto.UNDEFINED, None)
    model = helper.make_model(helper.make_graph([node], "constant", [], [made]))
    inferred = onnx.shape_inference.infer_shapes(model)
    return lower_model(ir.from_proto(inferred))()["y0"].numpy()


CONSTANTS = [
    ({"value_float": 1.5}, np.array(1.5, np.float32)),
    ({"value_floats": [1.5, 2.5]}, np.array([1.5, 2.5], np.float32)),
    ({"value_int": 2**40}, np.array(2**40, np.int64)),
    ({"value_ints": [3, -4]}, np.array([3, -4], np.int64)),
    ({"value": numpy_helper.from_array(np.eye(2, dtype=np.float16))}, np.eye(2, dtype=np.float16)),
]


@pytest.mark.parametrize(("attributes", "expected"), CONSTANTS, ids=[next(iter(a)) for a, _ in CONSTANTS])
def test_constant_of_each_form(attributes, expected):
    np.testing.assert_array_equal(constant_node(**attributes), expected, strict=True)


def test_constant_of_strings():
    assert constant_node(value_string="häß").decode() == "häß"
    assert [item.decode() for item in constant_node(value_strings=["a", "b"])] == ["a", "b"]


@pytest.mark.parametrize("value", [None, np.array([2], np.int8), np.array([True]), np.array([0.5], np.float64)])
@pytest.mark.parametrize("shape", [[2, 3], [0], []])
@pytest.mark.parametrize("constants", [(), (0,)])
def test_constant_of_shape(shape, value, constants):
    attributes = {} if value is None else {"value": numpy_helper.from_array(value)}
    fill = np.float32(0) if value is None else value[0]
    check_node("ConstantOfShape", [np.array(shape, np.int64)], [np.full(shape, fill)], attributes, constants=constants)


@pytest.mark.parametrize("k", [0, 1, -2, 10])
def test_eye_like_on_any_diagonal(k):
    data = np.zeros((3, 5), np.int32)
    check_node("EyeLike", [data], [np.eye(3, 5, k, dtype=np.int32)], {"k": k})
    check_node("EyeLike", [data], [np.eye(3, 5, k, dtype=np.float16)], {"k": k, "dtype": TensorProto.FLOAT16})


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
@pytest.mark.parametrize("bounds", [(1, 10, 3), (10, -5, -4), (0, 5, 1), (3, 3, 1), (5, 2, 1)])
@pytest.mark.parametrize("constants", [(), (0, 1, 2)])
def test_range_of_integers(bounds, dtype, constants):
    check_node("Range", [scalar(x, dtype) for x in bounds], [np.arange(*bounds, dtype=dtype)], constants=constants)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_range_of_floats_does_not_add_up_rounding_errors(dtype):
    bounds = [scalar(x, dtype) for x in (0, 1000, 0.1)]
    count = int(np.ceil((bounds[1] - bounds[0]) / bounds[2]))
    expected = bounds[0] + np.arange(count).astype(dtype) * bounds[2]
    check_node("Range", bounds, [expected], rtol=1e-7)


def test_range_of_float16_counts_in_float32():
    bounds = [scalar(x, np.float16) for x in (0, 4096, 1)]
    check_node("Range", bounds, [np.arange(4096).astype(np.float16)])


WINDOWS = {
    "HannWindow": torch.hann_window,
    "BlackmanWindow": torch.blackman_window,
    "HammingWindow": lambda size, periodic: torch.hamming_window(size, periodic, alpha=25 / 46, beta=21 / 46),
}


@pytest.mark.parametrize("operator", WINDOWS)
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("constants", [(), (0,)])
def test_window_is_torchs(operator, periodic, constants):
    expected = WINDOWS[operator](17, bool(periodic)).numpy()
    size = scalar(17, np.int64)
    module = lower_node(operator, [size], [expected.dtype], {"periodic": periodic}, constants=constants)
    result = module(*([] if constants else [tf.constant(size)]))["y0"].numpy()
    np.testing.assert_allclose(result, expected, atol=3e-7, strict=True)


def test_window_in_float64_is_exact():
    expected = torch.hann_window(31, dtype=torch.float64).numpy()
    check_node("HannWindow", [scalar(31, np.int32)], [expected], {"output_datatype": TensorProto.DOUBLE}, rtol=1e-12)


@pytest.mark.parametrize(
    "sizes", [(8, 16, 8192, 0.0, 4096.0), (20, 64, 16000, 300.0, 7000.0), (40, 32, 8000, 0.0, 4000.0)]
)
def test_mel_weight_matrix_is_the_reference_evaluators(sizes):
    bins, length, rate, low, high = sizes
    inputs = [scalar(x, np.int64) for x in (bins, length, rate)] + [scalar(low), scalar(high)]
    node = helper.make_node("MelWeightMatrix", [f"x{i}" for i in range(5)], ["y0"])
    given = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), [])
        for i, x in enumerate(inputs)
    ]
    made = helper.make_tensor_value_info("y0", TensorProto.FLOAT, [None, None])
    model = helper.make_model(helper.make_graph([node], "mel", given, [made]))
    (expected,) = ReferenceEvaluator(model).run(None, {f"x{i}": x for i, x in enumerate(inputs)})
    check_node("MelWeightMatrix", inputs, [expected])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_random_normal_like_has_its_moments(dtype):
    data = DATA.astype(dtype)
    module = lower_node("RandomNormalLike", [data], [data.dtype], {"mean": 2.0, "scale": 0.5})
    drawn = module(tf.constant(data))["y0"].numpy()
    assert drawn.shape == data.shape
    assert drawn.dtype == dtype
    assert abs(drawn.astype(np.float64).mean() - 2) < 0.03
    assert abs(drawn.astype(np.float64).std() - 0.5) < 0.03


def test_random_uniform_has_its_range():
    module = lower_node("RandomUniform", [], [DATA.dtype], {"low": -2.0, "high": 3.0, "shape": [100, 100]})
    drawn = module()["y0"].numpy()
    assert drawn.shape == (100, 100)
    assert -2 <= drawn.min() < -1.9
    assert 2.9 < drawn.max() < 3


@pytest.mark.parametrize("operator", ["RandomUniformLike", "RandomNormalLike", "Bernoulli"])
def test_seed_repeats_from_one_model_to_the_next(operator):
    data = np.full((50, 4), 0.5, np.float32)
    first, again, other = (
        lower_node(operator, [data], [data.dtype], {"seed": seed})(tf.constant(data))["y0"].numpy()
        for seed in (1.5, 1.5, 2.5)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_random_values_are_new_in_each_call_even_of_constants():
    module = lower_node("RandomUniformLike", [DATA[:4]], [DATA.dtype], constants=(0,))
    assert (module()["y0"].numpy() != module()["y0"].numpy()).any()


def test_bernoulli_draws_by_the_given_probabilities():
    p = np.tile(np.array([0, 0.25, 1], np.float32), (4000, 1))
    module = lower_node("Bernoulli", [p], [np.dtype(np.int32)], {"dtype": TensorProto.INT32})
    drawn = module(tf.constant(p))["y0"].numpy()
    assert drawn.dtype == np.int32
    np.testing.assert_allclose(drawn.mean(0), [0, 0.25, 1], atol=0.03)


def test_multinomial_draws_by_log_probabilities():
    logits = np.log(np.array([[0.1, 0.6, 0.3], [0.98, 0.01, 0.01]], np.float32))
    attributes = {"sample_size": 4000, "dtype": TensorProto.INT64}
    drawn = lower_node("Multinomial", [logits], [np.dtype(np.int64)], attributes)(tf.constant(logits))["y0"].numpy()
    assert drawn.shape == (2, 4000)
    frequencies = [[np.mean(row == i) for i in range(3)] for row in drawn]
    np.testing.assert_allclose(frequencies, np.exp(logits), atol=0.04)


@pytest.mark.parametrize("constants", [(1, 2), (1,), ()])
def test_dropout_drops_where_the_model_asks_for_it(constants):
    inputs = [DATA, scalar(0.25), scalar(True, np.bool_)]
    module = lower_node("Dropout", inputs, [DATA.dtype, np.dtype(np.bool_)], constants=constants)
    feeds = [tf.constant(x) for i, x in enumerate(inputs) if i not in constants]
    dropped, mask = (result.numpy() for result in module(*feeds).values())
    assert abs(mask.mean() - 0.75) < 0.03
    np.testing.assert_allclose(dropped, np.where(mask, DATA / np.float32(0.75), 0), rtol=1e-6)


@pytest.mark.parametrize("constants", [(1, 2), ()])
def test_dropout_is_the_identity_otherwise(constants):
    inputs = [DATA[:2], scalar(0.25), scalar(False, np.bool_)]
    check_node("Dropout", inputs, [DATA[:2], np.ones((2, 50), np.bool_)], constants=constants)
    check_node("Dropout", inputs[:1], [DATA[:2]])


def test_dropout_of_everything_has_a_finite_gradient():
    inputs = [DATA[:2], scalar(1.0), scalar(True, np.bool_)]
    np.testing.assert_array_equal(gradients("Dropout", inputs, constants=(1, 2))[0], np.zeros((2, 50)))


def test_dropout_drops_in_training():
    graph = helper.make_graph(
        [helper.make_node("Dropout", ["x"], ["y"])],
        "dropout",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 50])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 50])],
    )
    model = ir.from_proto(helper.make_model(graph))
    assert (lower_model(model, training=True)(tf.constant(DATA), training=True)["y"].numpy() == 0).mean() > 0.4
    np.testing.assert_array_equal(lower_model(model)(tf.constant(DATA))["y"].numpy(), DATA)
