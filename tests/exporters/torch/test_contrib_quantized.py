"""ONNX Runtime's own quantised operators, against ONNX Runtime; a quantised result may differ by one step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.exporters.torch._graphs import runtime_outputs
from tests.exporters.torch.test_contrib_attention import contrib_model, results_of

RNG = np.random.default_rng(5)
DATA = RNG.standard_normal((2, 3, 8)).astype(np.float32)
BYTES = [np.int8, np.uint8]


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


def random_bytes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def check(operator, inputs, result, *, rtol=1e-5, atol=1.0, **attributes):
    model = contrib_model(operator, inputs, 1, result, **attributes)
    (found,) = results_of(model, inputs)
    (expected,) = runtime_outputs(model, [x for x in inputs if x is not None])
    assert found.numpy().dtype == expected.dtype
    np.testing.assert_allclose(
        found.numpy().astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol, strict=True
    )


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_qlinear_arithmetic_broadcasts(operator, dtype):
    a, b = random_bytes(dtype, 2, 3, 8), random_bytes(dtype, 3, 1)
    inputs = [a, scalar(0.02), scalar(10, dtype), b, scalar(0.03), scalar(20, dtype), scalar(0.05), scalar(30, dtype)]
    check(operator, inputs, dtype)
    check(operator, inputs[:7], dtype)  # no zero point


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
        ("QLinearSoftmax", {"axis": 1, "opset": 13}),
        ("QLinearSoftmax", {"axis": 1, "opset": 11}),
    ],
)
def test_qlinear_activation(operator, attributes, dtype):
    x = random_bytes(dtype, 2, 3, 8)
    inputs = [x, scalar(0.03), scalar(10, dtype), scalar(1 / 256), scalar(5, dtype)]
    check(operator, inputs, dtype, **attributes)


@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_concat(dtype):
    parts = [random_bytes(dtype, 2, n, 4) for n in (1, 3)]
    scales = [scalar(0.02), scalar(3, dtype), scalar(0.05), scalar(-3 if dtype is np.int8 else 200, dtype)]
    inputs = [scalar(0.04), scalar(7, dtype), parts[0], *scales[:2], parts[1], *scales[2:]]
    check("QLinearConcat", inputs, dtype, axis=1)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("channels_last", [0, 1])
def test_qlinear_global_average_pool(dtype, channels_last):
    inputs = [random_bytes(dtype, 2, 3, 4, 5), scalar(0.02), scalar(3, dtype), scalar(0.01), scalar(9, dtype)]
    check("QLinearGlobalAveragePool", inputs, dtype, channels_last=channels_last)


@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_where(dtype):
    x, y = random_bytes(dtype, 2, 3), random_bytes(dtype, 2, 3)
    condition = np.array([[True, False, True], [False, False, True]])
    scales = [scalar(0.02), scalar(3, dtype), y, scalar(0.05), scalar(7, dtype), scalar(0.04), scalar(9, dtype)]
    check("QLinearWhere", [condition, x, *scales], dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantize_and_dequantize(axis, dtype):
    scale = scalar(0.1) if axis is None else (0.1 + RNG.random(DATA.shape[axis])).astype(np.float32)
    zero = np.full(scale.shape, 100, dtype)
    attributes = {} if axis is None else {"axis": axis}
    check("QuantizeLinear", [DATA, scale, zero], dtype, atol=0, **attributes)
    check("DequantizeLinear", [random_bytes(dtype, *DATA.shape), scale, zero], "f4", atol=1e-6, **attributes)


def test_quantize_without_a_zero_point_gives_bytes():
    check("QuantizeLinear", [DATA, scalar(0.01)], np.uint8, atol=0)


@pytest.mark.parametrize("b_type", BYTES)
@pytest.mark.parametrize("columns", [True, False])
def test_products_that_end_in_floats(b_type, columns):
    b = random_bytes(b_type, 8, 5)
    b_scale = (0.01 + RNG.random(5) / 100).astype(np.float32) if columns else scalar(0.02)
    b_zero = random_bytes(b_type, 5) if columns else scalar(3, b_type)
    bias = RNG.standard_normal(5).astype(np.float32)
    close = {"rtol": 1e-4, "atol": 1e-4}
    check("DynamicQuantizeMatMul", [DATA, b, b_scale, b_zero, bias], "f4", **close)
    check("DynamicQuantizeMatMul", [DATA, b, b_scale], "f4", **close)
    a = random_bytes(np.uint8, 2, 3, 8)
    inputs = [a, b, scalar(0.03), b_scale, scalar(100, np.uint8), b_zero, bias]
    check("MatMulIntegerToFloat", inputs, "f4", **close)
    check("MatMulIntegerToFloat", inputs[:4], "f4", **close)


@pytest.mark.parametrize("is_float", [True, False])
@pytest.mark.parametrize("columns", [True, False])
def test_qgemm(is_float, columns):
    a, b = random_bytes(np.uint8, 3, 8), random_bytes(np.int8, 5, 8)
    b_scale = (0.01 + RNG.random(5) / 100).astype(np.float32) if columns else scalar(0.01)
    b_zero = np.zeros(b_scale.shape, np.int8)
    shift = np.arange(5, dtype=np.int32) * 100
    inputs = [a, scalar(0.02), scalar(100, np.uint8), b, b_scale, b_zero, shift]
    if not is_float:
        inputs += [scalar(0.05), scalar(90, np.uint8)]
    close = {"rtol": 1e-4, "atol": 1e-4} if is_float else {}
    check("QGemm", inputs, "f4" if is_float else np.uint8, transB=1, alpha=0.5, **close)


def test_constant_zero_is_an_exact_range():
    """All equal: the scale of DynamicQuantizeMatMul is that of zeros."""
    b = random_bytes(np.int8, 8, 5)
    (found,) = results_of(
        contrib_model("DynamicQuantizeMatMul", [DATA * 0, b, scalar(0.02)]), [DATA * 0, b, scalar(0.02)]
    )
    assert torch.equal(found, torch.zeros(2, 3, 5))
