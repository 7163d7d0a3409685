"""ONNX Runtime's own operators, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.exporters.tensorflow._runtime import check_like_runtime, node_model, run_both

RNG = np.random.default_rng(5)
DATA = RNG.standard_normal((2, 3, 8)).astype(np.float32)
VECTOR = RNG.standard_normal(8).astype(np.float32)
BYTES = [np.int8, np.uint8]


def check(operator, inputs, attributes=None, **options):
    check_like_runtime(operator, inputs, attributes=attributes, domain="com.microsoft", **options)


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def random_bytes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def test_gelu_family():
    check("Gelu", [DATA])
    check("BiasGelu", [DATA, VECTOR])
    check("FastGelu", [DATA])
    check("FastGelu", [DATA, VECTOR])
    check("QuickGelu", [DATA])
    check("QuickGelu", [DATA], {"alpha": 1.2})


@pytest.mark.parametrize(
    "attributes", [{}, {"alpha": 0.125, "transB": 1}, {"transA": 1}, {"transA": 1, "transB": 1, "alpha": -2.0}]
)
def test_fused_matmul(attributes):
    a = random(2, 5, 3) if attributes.get("transA") else random(2, 3, 5)
    b = random(2, 4, 5) if attributes.get("transB") else random(2, 5, 4)
    check("FusedMatMul", [a, b], attributes, rtol=1e-4, atol=1e-5)


def test_fused_matmul_moves_the_first_axis_to_the_rows():
    a, b = random(3, 2, 4, 5), random(2, 4, 5, 6)
    check("FusedMatMul", [a, b], {"transBatchA": 1}, rtol=1e-4, atol=1e-5)
    check("FusedMatMul", [random(2, 4, 3, 5), random(5, 2, 4, 6)], {"transBatchB": 1}, rtol=1e-4, atol=1e-5)


ACTIVATIONS = ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_fused_gemm(activation):
    attributes = {"activation": activation, "alpha": 0.5, "beta": 2.0, "transB": 1}
    if activation in ("LeakyRelu", "HardSigmoid"):
        attributes["activation_alpha"] = 0.3
    if activation == "HardSigmoid":
        attributes["activation_beta"] = 0.4
    check("FusedGemm", [random(3, 5), random(4, 5), random(4)], attributes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [None, VECTOR])
@pytest.mark.parametrize("beta", [None, VECTOR])
def test_skip_layer_normalization(beta, bias):
    inputs = [DATA, DATA[::-1].copy(), VECTOR, beta, bias]
    while inputs[-1] is None:
        inputs.pop()
    check("SkipLayerNormalization", inputs, {"epsilon": 1e-5}, rtol=1e-4, atol=1e-5)


def test_skip_layer_normalization_hands_on_the_sum():
    inputs = [DATA, DATA[:1], VECTOR, VECTOR, VECTOR]
    for operator in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        given = inputs if operator == "SkipLayerNormalization" else [*inputs[:3], inputs[4]]
        model = node_model(operator, given, outputs=4, domain="com.microsoft")
        model.graph.node[0].output[1], model.graph.node[0].output[2] = "", ""
        del model.graph.output[1:3]
        for found, expected in zip(*run_both(model, given), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [None, VECTOR])
def test_skip_simplified_layer_normalization(bias):
    inputs = [DATA, DATA[::-1].copy(), VECTOR, *([] if bias is None else [bias])]
    check("SkipSimplifiedLayerNormalization", inputs, {"epsilon": 1e-5}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 1])
def test_simplified_layer_normalization(axis):
    scale = VECTOR if axis == -1 else random(3, 8)
    check_like_runtime("SimplifiedLayerNormalization", [DATA, scale], attributes={"axis": axis}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_segments", [True, False])
@pytest.mark.parametrize("has_mask", [True, False])
def test_embed_layer_normalization(has_segments, has_mask):
    ids = RNG.integers(0, 10, (2, 5)).astype(np.int32)
    segments = RNG.integers(0, 2, (2, 5)).astype(np.int32) if has_segments else None
    table = random(2, 8) if has_segments else None
    inputs = [ids, segments, random(10, 8), random(6, 8), table, VECTOR, VECTOR]
    if has_mask:
        inputs.append(np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32))
    constants = (2, 3, 4, 5, 6) if has_segments else (2, 3, 5, 6)
    check("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, outputs=2, constants=constants, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("constants", [(), (1, 2, 3, 4, 5, 6, 7)])
def test_qlinear_arithmetic_broadcasts(operator, dtype, constants):
    a, b = random_bytes(dtype, 2, 3, 8), random_bytes(dtype, 3, 1)
    inputs = [a, scalar(0.02), scalar(10, dtype), b, scalar(0.03), scalar(20, dtype), scalar(0.05), scalar(30, dtype)]
    check(operator, inputs, constants=constants, atol=1.0)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
        ("QLinearSoftmax", {"axis": 1, "opset": 11}),
    ],
)
def test_qlinear_activation(operator, attributes, dtype):
    x = random_bytes(dtype, 2, 3, 8)
    inputs = [x, scalar(0.03), scalar(10, dtype), scalar(1 / 256), scalar(5, dtype)]
    check(operator, inputs, attributes, atol=1.0, constants=(1, 2, 3, 4))


@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_concat(dtype):
    parts = [random_bytes(dtype, 2, n, 4) for n in (1, 3)]
    scales = [scalar(0.02), scalar(3, dtype), scalar(0.05), scalar(-3 if dtype is np.int8 else 200, dtype)]
    inputs = [scalar(0.04), scalar(7, dtype), parts[0], *scales[:2], parts[1], *scales[2:]]
    check("QLinearConcat", inputs, {"axis": 1}, atol=1.0, constants=(0, 1, 3, 4, 6, 7))


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("channels_last", [0, 1])
def test_qlinear_global_average_pool(dtype, channels_last):
    x = random_bytes(dtype, 2, 3, 4, 5)
    inputs = [x, scalar(0.02), scalar(3, dtype), scalar(0.01), scalar(9, dtype)]
    check("QLinearGlobalAveragePool", inputs, {"channels_last": channels_last}, atol=1.0)


@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_where(dtype):
    x, y = random_bytes(dtype, 2, 3), random_bytes(dtype, 2, 3)
    condition = np.array([[True, False, True], [False, False, True]])
    scales = [scalar(0.02), scalar(3, dtype), y, scalar(0.05), scalar(7, dtype), scalar(0.04), scalar(9, dtype)]
    check("QLinearWhere", [condition, x, *scales], atol=1.0, constants=(2, 3, 5, 6, 7, 8))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantize_and_dequantize(axis):
    scale = scalar(0.1) if axis is None else (0.1 + RNG.random(DATA.shape[axis])).astype(np.float32)
    zero = np.full(scale.shape, 100, np.uint8)
    attributes = {} if axis is None else {"axis": axis}
    check("QuantizeLinear", [DATA, scale, zero], attributes)
    check("DequantizeLinear", [random_bytes(np.uint8, *DATA.shape), scale, zero], attributes)


@pytest.mark.parametrize("b_type", BYTES)
@pytest.mark.parametrize("columns", [True, False])
def test_products_that_end_in_floats(b_type, columns):
    b = random_bytes(b_type, 8, 5)
    b_scale = (0.01 + RNG.random(5) / 100).astype(np.float32) if columns else scalar(0.02)
    b_zero = random_bytes(b_type, 5) if columns else scalar(3, b_type)
    bias = random(5)
    check("DynamicQuantizeMatMul", [DATA, b, b_scale, b_zero, bias], constants=(1, 2, 3), rtol=1e-4, atol=1e-4)
    check("DynamicQuantizeMatMul", [DATA, b, b_scale], rtol=1e-4, atol=1e-4)
    a = random_bytes(np.uint8, 2, 3, 8)
    inputs = [a, b, scalar(0.03), b_scale, scalar(100, np.uint8), b_zero, bias]
    check("MatMulIntegerToFloat", inputs, constants=(1, 2, 3, 4, 5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_float", [True, False])
def test_qgemm(is_float):
    a, b = random_bytes(np.uint8, 3, 8), random_bytes(np.int8, 5, 8)
    inputs = [
        a,
        scalar(0.02),
        scalar(100, np.uint8),
        b,
        scalar(0.01),
        scalar(0, np.int8),
        np.arange(5, dtype=np.int32) * 100,
    ]
    if not is_float:
        inputs += [scalar(0.05), scalar(90, np.uint8)]
    check("QGemm", inputs, {"transB": 1}, rtol=1e-4, atol=1e-4 if is_float else 1.0)


def pack(codes, bits):
    """Codes of a few bits into bytes along the last axis, lowest bits first."""
    per_byte = 8 // bits
    padding = -codes.shape[-1] % per_byte
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, padding)])
    parts = codes.reshape(*codes.shape[:-1], -1, per_byte).astype(np.uint8)
    return np.bitwise_or.reduce([parts[..., i] << (i * bits) for i in range(per_byte)], axis=0).astype(np.uint8)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero_points", ["none", "packed", "float"])
@pytest.mark.parametrize("size", [64, 80])  # 80 is no multiple of the block
def test_matmul_n_bits(bits, zero_points, size):
    if (bits, zero_points) == (8, "float"):
        pytest.skip("ONNX Runtime has no kernel for it")
    rows, block = 6, 32
    blocks = -(-size // block)
    weight = RNG.integers(0, 2**bits, (rows, blocks, block))
    scales = (0.01 + RNG.random((rows, blocks)) / 10).astype(np.float32)
    inputs = [random(2, 3, size), pack(weight, bits), scales]
    if zero_points == "packed":
        inputs.append(pack(RNG.integers(0, 2**bits, (rows, blocks)), bits))
    elif zero_points == "float":
        inputs.append((8 * RNG.random((rows, blocks))).astype(np.float32))
    attributes = {"K": size, "N": rows, "bits": bits, "block_size": block}
    check("MatMulNBits", inputs, attributes, constants=range(1, len(inputs)), rtol=1e-3, atol=1e-3)


def test_matmul_n_bits_with_an_order_of_groups_and_a_bias():
    rows, size, block = 6, 64, 32
    weight = RNG.integers(0, 16, (rows, 2, block))
    scales = (0.01 + RNG.random((rows, 2)) / 10).astype(np.float32)
    order = np.tile([1, 0], size // 2).astype(np.int32)
    inputs = [random(3, size), pack(weight, 4), scales, None, order, random(rows)]
    attributes = {"K": size, "N": rows, "bits": 4, "block_size": block}
    check("MatMulNBits", inputs, attributes, constants=(1, 2, 4, 5), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("constants", [(), (0, 1, 2)])
def test_range(constants):
    for bounds in ([2, 9, 3], [9, 2, -2], [2, 2, 1]):
        check("Range", [np.array(bound) for bound in bounds], constants=constants)
    check("Range", [scalar(0.5), scalar(2.0), scalar(0.25)], constants=constants)
    check("Range", [np.array(2), np.array(5)], constants=constants[:2])  # in steps of one


def test_conv_transpose_with_dynamic_pads():
    x, w, pads = random(2, 4, 5, 6), random(4, 3, 3, 2), np.array([1, 0, 2, 1])
    inputs = [x, w, pads, random(3)]
    check("ConvTransposeWithDynamicPads", inputs, {"strides": [2, 1]}, constants=(1, 2), rtol=1e-4, atol=1e-5)
