"""Quantised operators."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from exporters.tensorflow._quantized import multiply_integers
from interop.dtypes import dtype_of
from tests.exporters.tensorflow._nodes import check_node, lower_node
from tests.exporters.tensorflow._runtime import check_like_runtime, node_model, run_both

RNG = np.random.default_rng(4)
DATA = (10 * RNG.standard_normal((3, 4, 6))).astype(np.float32)
BYTES = [np.int8, np.uint8]


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


def random_bytes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def reference(operator, inputs, attributes=None, opset=25):
    """The result of onnx's own evaluator."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = [
        helper.make_tensor_value_info(name, dtype_of(x.dtype).onnx, list(x.shape))
        for name, x in zip(names, inputs)
        if x is not None
    ]
    node = helper.make_node(operator, names, ["y"], **(attributes or {}))
    made = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph([node], operator, given, [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, {n: x for n, x in zip(names, inputs) if x is not None})[0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_quantize_rounds_and_saturates(dtype, constants):
    x = np.array([[0, 0.5, 1.5, 2.5, -0.5], [-1e9, 1e9, 1000, -3, 7.49]], np.float32)
    zero = scalar(3, dtype)
    limits = np.iinfo(dtype)
    expected = np.clip(np.rint(x / 2).astype(np.float64) + 3, limits.min, limits.max).astype(dtype)
    check_node("QuantizeLinear", [x, scalar(2), zero], [expected], constants=constants)
    check_like_runtime("QuantizeLinear", [x, scalar(2), zero], constants=constants)


def test_quantize_without_zero_point_gives_uint8():
    x = np.array([-1, 0, 3, 1000], np.float32)
    check_node("QuantizeLinear", [x, scalar(1)], [np.array([0, 0, 3, 255], np.uint8)])
    attributes = {"output_dtype": TensorProto.INT16}
    check_node("QuantizeLinear", [x, scalar(1)], [np.array([-1, 0, 3, 1000], np.int16)], attributes)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_quantize_and_dequantize_along_an_axis(axis, constants):
    size = DATA.shape[axis]
    scale = (0.1 + RNG.random(size)).astype(np.float32)
    zero = np.arange(size, dtype=np.uint8)
    check_like_runtime("QuantizeLinear", [DATA, scale, zero], attributes={"axis": axis}, constants=constants)
    data = random_bytes(np.uint8, *DATA.shape)
    check_like_runtime("DequantizeLinear", [data, scale, zero], attributes={"axis": axis}, constants=constants)


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.int4, ml_dtypes.uint4, np.uint16])
@pytest.mark.parametrize(("axis", "block"), [(1, 2), (2, 4), (-1, 3)])  # 4 does not divide 6
def test_quantize_and_dequantize_in_blocks(axis, block, dtype):
    shape = list(DATA.shape)
    shape[axis] = -(-shape[axis] // block)
    scale = (0.5 + RNG.random(shape)).astype(np.float32)
    zero = RNG.integers(0, 7, shape).astype(np.int8).astype(dtype)
    attributes = {"axis": axis, "block_size": block}
    quantized = reference("QuantizeLinear", [DATA, scale, zero], attributes)
    check_node("QuantizeLinear", [DATA, scale, zero], [quantized], attributes)
    expected = reference("DequantizeLinear", [quantized, scale, zero], attributes)
    check_node("DequantizeLinear", [quantized, scale, zero], [expected], attributes)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_quantize_to_float8(name, saturate):
    dtype = dtype_of(name).numpy
    x = np.array([0, 1, -1, 300, 1e6, -1e6, 0.013], np.float32)
    zero = np.zeros([], dtype)
    expected = reference("QuantizeLinear", [x, scalar(2), zero], {"saturate": saturate})
    check_node("QuantizeLinear", [x, scalar(2), zero], [expected], {"saturate": saturate})
    check_node("DequantizeLinear", [expected, scalar(2)], [expected.astype(np.float32) * 2])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_dequantize_to_the_type_of_the_scale(dtype):
    data = random_bytes(np.int16, 5)
    zero = scalar(7, np.int16)
    expected = ((data.astype(np.int32) - 7).astype(dtype) * dtype(0.01)).astype(dtype)
    check_node("DequantizeLinear", [data, scalar(0.01, dtype), zero], [expected], rtol=1e-2)


def test_dequantize_to_another_type():
    data = random_bytes(np.int8, 5)
    attributes = {"output_dtype": TensorProto.FLOAT16}
    expected = (data.astype(np.float32) * 0.5).astype(np.float16)
    check_node("DequantizeLinear", [data, scalar(0.5)], [expected], attributes)


def test_dequantize_of_large_int32_is_exact_before_scaling():
    data = np.array([2**30 + 1, -(2**30)], np.int32)
    check_node("DequantizeLinear", [data, scalar(1)], [data.astype(np.float32)], rtol=1e-7)


def test_quantize_divides_in_the_asked_precision():
    x, scale = np.array([65504, 1], np.float32), scalar(0.001, np.float16)
    expected = reference("QuantizeLinear", [x, scale, scalar(0, np.int16)], {"precision": TensorProto.FLOAT})
    check_node("QuantizeLinear", [x, scale, scalar(0, np.int16)], [expected], {"precision": TensorProto.FLOAT})


def test_dequantize_hands_the_gradient_to_the_scale():
    data = random_bytes(np.int8, 4, 3)
    scale = np.array([0.5, 1, 2], np.float32)
    module = lower_node("DequantizeLinear", [data, scale], [scale.dtype])
    x = tf.constant(scale)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(module(tf.constant(data), x)["y0"])
    np.testing.assert_allclose(tape.gradient(loss, x), data.astype(np.float32).sum(0))


@pytest.mark.parametrize("shape", [(7,), (2, 3, 4), (1,)])
@pytest.mark.parametrize("shift", [-20, 0, 20])
def test_dynamic_quantize_is_onnx_runtimes(shape, shift):
    x = (10 * RNG.standard_normal(shape) + shift).astype(np.float32)
    check_like_runtime("DynamicQuantizeLinear", [x], outputs=3)


def test_dynamic_quantize_of_zeros_has_a_finite_scale():
    check_like_runtime("DynamicQuantizeLinear", [np.zeros(5, np.float32)], outputs=3)


def exact_product(a, b, a_zero, b_zero):
    return np.matmul(a.astype(np.int32) - a_zero.astype(np.int32), b.astype(np.int32) - b_zero.astype(np.int32))


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("b_type", BYTES)
@pytest.mark.parametrize(
    "shapes", [((5, 300), (300, 4)), ((2, 1, 5, 7), (3, 7, 2)), ((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,))]
)
@pytest.mark.parametrize("constants", [(), (2, 3)])
def test_integer_product_is_exact(a_type, b_type, shapes, constants):
    a, b = random_bytes(a_type, *shapes[0]), random_bytes(b_type, *shapes[1])
    zeros = [scalar(100, a_type), scalar(30, b_type)]
    check_node("MatMulInteger", [a, b, *zeros], [exact_product(a, b, *zeros)], constants=constants)
    check_node("MatMulInteger", [a, b, zeros[0]], [exact_product(a, b, zeros[0], scalar(0))], constants=constants[:1])
    check_node("MatMulInteger", [a, b], [exact_product(a, b, scalar(0), scalar(0))])


@pytest.mark.parametrize("constants", [(), (2, 3)])
def test_integer_product_with_zero_points_of_rows_and_columns(constants):
    a, b = random_bytes(np.uint8, 5, 7), random_bytes(np.int8, 7, 3)
    rows, columns = random_bytes(np.uint8, 5), random_bytes(np.int8, 3)
    expected = exact_product(a, b, rows[:, None], columns)
    check_node("MatMulInteger", [a, b, rows, columns], [expected], constants=constants)


def test_integer_product_of_the_largest_numbers_does_not_overflow_early():
    a = np.full((1, 4096), 255, np.uint8)
    found = multiply_integers(tf.constant(a), tf.constant(a.T.copy()))
    assert found.numpy() == 4096 * 255 * 255


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("b_type", BYTES)
@pytest.mark.parametrize("constants", [(), (1, 2, 3, 4, 5, 6, 7)])
def test_qlinear_matmul_is_onnx_runtimes(a_type, b_type, constants):
    if (a_type, b_type) == (np.int8, np.uint8):
        pytest.skip("ONNX Runtime has no kernel for it")
    a, b = random_bytes(a_type, 2, 5, 20), random_bytes(b_type, 20, 4)
    b_scale = (0.01 + RNG.random(4) / 100).astype(np.float32)
    b_zero = random_bytes(b_type, 4)
    inputs = [a, scalar(0.02), scalar(10, a_type), b, b_scale, b_zero, scalar(0.5), scalar(20, a_type)]
    check_like_runtime("QLinearMatMul", inputs, constants=constants, atol=1.0)


CONVOLUTIONS = [
    ((2, 3, 9, 8), (4, 3, 3, 3), {}),
    ((2, 3, 9, 8), (4, 3, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((2, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "dilations": [2, 1]}),
    ((2, 40, 7, 7), (4, 40, 3, 3), {"auto_pad": "SAME_UPPER"}),
    ((2, 3, 9), (4, 3, 3), {"pads": [1, 1]}),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CONVOLUTIONS)
@pytest.mark.parametrize("constants", [(1,), (1, 2, 3)])
def test_conv_integer_is_exact(x_shape, w_shape, attributes, constants):
    x, w = random_bytes(np.uint8, *x_shape), random_bytes(np.uint8, *w_shape)
    inputs = [x, w, scalar(120, np.uint8), scalar(100, np.uint8)]
    check_like_runtime("ConvInteger", inputs, attributes=attributes, constants=constants, rtol=0, atol=0)


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CONVOLUTIONS)
@pytest.mark.parametrize("w_type", BYTES)
def test_qlinear_conv_is_onnx_runtimes(x_shape, w_shape, attributes, w_type):
    x, w = random_bytes(np.uint8, *x_shape), random_bytes(w_type, *w_shape)
    channels = w_shape[0]
    w_scale = (0.001 + RNG.random(channels) / 1000).astype(np.float32)
    w_zero = np.zeros(channels, w_type) if w_type is np.int8 else np.full(channels, 128, w_type)
    bias = RNG.integers(-1000, 1000, channels).astype(np.int32)
    scales = [scalar(0.05), scalar(128, np.uint8), w, w_scale, w_zero, scalar(0.3), scalar(100, np.uint8), bias]
    constants = tuple(range(1, 9))
    check_like_runtime("QLinearConv", [x, *scales], attributes=attributes, constants=constants, atol=1.0)


def test_qlinear_conv_is_off_by_one_step_at_most_and_rarely():
    x, w = random_bytes(np.uint8, 1, 3, 30, 30), random_bytes(np.int8, 8, 3, 3, 3)
    inputs = [
        x,
        scalar(0.02),
        scalar(128, np.uint8),
        w,
        scalar(0.01),
        scalar(0, np.int8),
        scalar(0.3),
        scalar(128, np.uint8),
    ]
    exact = reference("QLinearConv", inputs, opset=10)
    model = node_model("QLinearConv", inputs, constants=range(1, 8))
    found, expected = run_both(model, inputs, range(1, 8))
    assert np.mean(found[0] != expected[0]) < 0.001
    assert np.abs(found[0].astype(int) - exact.astype(int)).max() <= 1
