"""Arithmetic, elementary functions, comparisons, logic and bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch

from tests.exporters.tensorflow._nodes import check_node, gradients, lower_node

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((2, 3, 4)).astype(np.float32)
SMALL = np.tanh(REAL)
POSITIVE = np.abs(REAL) + 0.1

UNARY = {
    "Abs": (torch.abs, REAL),
    "Acos": (torch.acos, SMALL),
    "Acosh": (torch.acosh, POSITIVE + 1),
    "Asin": (torch.asin, SMALL),
    "Asinh": (torch.asinh, REAL),
    "Atan": (torch.atan, REAL),
    "Atanh": (torch.atanh, SMALL),
    "Ceil": (torch.ceil, 5 * REAL),
    "Cos": (torch.cos, 5 * REAL),
    "Cosh": (torch.cosh, REAL),
    "Erf": (torch.erf, REAL),
    "Exp": (torch.exp, REAL),
    "Floor": (torch.floor, 5 * REAL),
    "Log": (torch.log, POSITIVE),
    "Neg": (torch.neg, REAL),
    "Reciprocal": (torch.reciprocal, POSITIVE),
    "Round": (torch.round, np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4) / 2),
    "Sign": (torch.sign, np.round(REAL)),
    "Sin": (torch.sin, 5 * REAL),
    "Sinh": (torch.sinh, REAL),
    "Sqrt": (torch.sqrt, POSITIVE),
    "Tan": (torch.tan, REAL),
}
FLAT = {"Ceil", "Floor", "Round", "Sign"}  # torch's gradient of them is zero; TensorFlow says the same or has none
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def torch_gradients(function, *arrays):
    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
    function(*tensors).square().sum().backward()
    return [t.grad.numpy() for t in tensors]


@pytest.mark.parametrize("operator", UNARY)
def test_unary_has_the_values_of_torch(operator):
    function, data = UNARY[operator]
    check_node(operator, [data], [function(torch.tensor(data)).numpy()], rtol=2e-6)


@pytest.mark.parametrize("operator", sorted(set(UNARY) - FLAT))
def test_unary_has_the_gradients_of_torch(operator):
    function, data = UNARY[operator]
    np.testing.assert_allclose(gradients(operator, [data]), torch_gradients(function, data), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float16, 4e-3), (ml_dtypes.bfloat16, 2e-2)])
@pytest.mark.parametrize("operator", ["Acosh", "Erf", "Exp", "Reciprocal", "Round", "Sign", "Tan"])
def test_unary_keeps_its_type(operator, dtype, rtol):
    function, data = UNARY[operator]
    data = data.astype(dtype)
    check_node(operator, [data], [function(torch.tensor(data.astype(np.float64))).numpy().astype(dtype)], rtol=rtol)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul"])
def test_integer_arithmetic_wraps_around(operator, dtype):
    limits = np.iinfo(dtype)
    a = np.array([[limits.max], [limits.min], [7]], dtype)
    b = np.array([limits.max, 1, 3], dtype)
    with np.errstate(over="ignore"):
        expected = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[operator](a, b)
    check_node(operator, [a, b], [expected])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_div_truncates(dtype):
    a, b = np.array([7, 200, 9, 0], np.int64).astype(dtype), np.array([2, 7, 4, 3], dtype)
    check_node(
        "Div", [a, b], [(a.astype(object) // b.astype(object)).astype(dtype) if a.min() >= 0 else _truncated(a, b)]
    )


def _truncated(a, b):
    return np.array([int(x / y) for x, y in zip(a.tolist(), b.tolist())], a.dtype)


def test_integer_div_of_negatives_truncates():
    a, b = np.array([-7, 7, -7, 7], np.int32), np.array([2, -2, -2, 2], np.int32)
    check_node("Div", [a, b], [np.array([-3, -3, 3, 3], np.int32)])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_smallest_integer_by_minus_one_does_not_crash(operator, dtype):
    smallest = np.array([np.iinfo(dtype).min] * 9, dtype)
    module = lower_node(operator, [smallest, smallest], [smallest.dtype])
    result = module(tf.constant(smallest), tf.constant(np.full(9, -1, dtype)))["y0"].numpy()
    assert result.shape == (9,)
    assert operator == "Div" or not result.any()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_of_integers(dtype, fmod):
    a, b = np.array([-7, 7, -7, 7, 6]).astype(dtype), np.array([3, 3, 5, 5, 3], dtype)
    if np.issubdtype(dtype, np.signedinteger):
        b = b * np.array([1, -1, -1, 1, -1], dtype)
    check_node("Mod", [a, b], [(np.fmod if fmod else np.mod)(a, b)], {"fmod": fmod})


SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, 4.0, -4.0, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_mod_of_special_values(dtype, fmod):
    a, b = SPECIAL[:, None].astype(dtype), SPECIAL[None, :].astype(dtype)
    with np.errstate(invalid="ignore"):
        expected = (np.fmod if fmod else np.mod)(a, b)
    check_node("Mod", [a, b], [expected], {"fmod": fmod})


def test_mod_gives_zero_the_sign_of_the_divisor():
    a, b = np.array([-4, 4, -0.0, 0], np.float32), np.array([2, -2, 3, -3], np.float32)
    result = lower_node("Mod", [a, b], [a.dtype])(a, b)["y0"].numpy()
    np.testing.assert_array_equal(np.signbit(result), [False, True, False, True])


@pytest.mark.parametrize(("fmod", "function"), [(0, torch.remainder), (1, torch.fmod)])
def test_mod_has_the_gradients_of_torch(fmod, function):
    a, b = 5 * REAL, POSITIVE
    found = gradients("Mod", [a, b], {"fmod": fmod})
    for given, expected in zip(found, torch_gradients(function, a, b)):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0, -1.0])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_pow_by_a_scalar(exponent, constants):
    y = np.array(exponent, np.float32)
    check_node("Pow", [POSITIVE, y], [np.power(POSITIVE, y)], constants=constants)


def test_pow_by_a_constant_square_is_one_node():
    module = lower_node("Pow", [REAL, np.array(2, np.float32)], [REAL.dtype], constants=(1,))
    types = [op.type for op in module.serving_signature().graph.get_operations()]
    assert "Square" in types
    assert "Pow" not in types


@pytest.mark.parametrize("base", [np.int32, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("exponent", [np.int32, np.int64, np.uint8, np.float32, np.float64])
def test_pow_of_mixed_types_keeps_the_type_of_the_base(base, exponent):
    x, y = np.array([1, 2, 3, 4, 5]).astype(base), np.array([0, 1, 2, 3, 2]).astype(exponent)
    check_node("Pow", [x, y], [np.power(x.astype(np.float64), y.astype(np.float64)).astype(base)])


def test_pow_of_large_integers_is_exact():
    x, y = np.array([3], np.int64), np.array([39], np.int32)
    check_node("Pow", [x, y], [np.array([3**39], np.int64)])


def test_pow_has_the_gradients_of_torch():
    found = gradients("Pow", [POSITIVE, SMALL])
    for given, expected in zip(found, torch_gradients(torch.pow, POSITIVE, SMALL)):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("operator", "function"), [("Max", np.maximum), ("Min", np.minimum)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.uint64, np.float16, np.float64])
def test_extremes_of_many_inputs_broadcast(operator, function, dtype):
    arrays = [(10 * RNG.random(shape)).astype(dtype) for shape in ((3, 1), (4,), (2, 3, 4))]
    check_node(operator, arrays, [function(function(arrays[0], arrays[1]), arrays[2])])


@pytest.mark.parametrize(("operator", "function"), [("Max", np.maximum), ("Min", np.minimum)])
def test_extremes_hand_on_nan(operator, function):
    a, b = np.array([np.nan, 1, 2, np.nan], np.float32), np.array([1, np.nan, 3, np.nan], np.float32)
    check_node(operator, [a, b], [function(a, b)])


def test_sum_and_mean_broadcast():
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 1), (4,), (2, 3, 4))]
    check_node("Sum", arrays, [arrays[0] + arrays[1] + arrays[2]])
    check_node("Mean", arrays, [(arrays[0] + arrays[1] + arrays[2]) / np.float32(3)])
    check_node("Mean", arrays[:1], arrays[:1])


@pytest.mark.parametrize("dtype", [*INTEGERS, np.float16, np.float64])
@pytest.mark.parametrize("operator", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_comparison_of_each_type(operator, dtype):
    function = {
        "Equal": np.equal,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Less": np.less,
        "LessOrEqual": np.less_equal,
    }[operator]
    a, b = np.array([[1], [2], [3]], dtype), np.array([1, 2, 3, 250]).astype(dtype)
    check_node(operator, [a, b], [function(a, b)])


def test_equal_compares_strings():
    a, b = np.array(["a", "b", "c"], object), np.array(["a", "c", "c"], object)
    check_node("Equal", [a, b], [np.array([True, False, True])])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift_by_any_amount(dtype, direction):
    limits, bits = np.iinfo(dtype), np.iinfo(dtype).bits
    x = np.array([[limits.min], [limits.max], [5]], dtype)
    y = np.array([0, 1, bits - 1, bits, bits + 1, limits.max], dtype)
    if limits.min < 0:
        y = np.append(y, np.array([-1, limits.min], dtype))
    expected = [[_shifted(int(a), int(n), bits, direction, dtype) for n in y] for a in x[:, 0]]
    check_node("BitShift", [x, y], [np.array(expected, dtype)], {"direction": direction})


def _shifted(value, amount, bits, direction, dtype):
    """Bit by bit on Python's integers, by the words of the specification."""
    if not 0 <= amount < bits:
        return -1 if direction == "RIGHT" and value < 0 else 0
    shifted = value >> amount if direction == "RIGHT" else value << amount
    return int(np.array([shifted & (2**bits - 1)], f"uint{bits}").view(dtype)[0])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise_operators(dtype):
    a, b = np.array([[0], [5], [255]]).astype(dtype), np.array([3, 129]).astype(dtype)
    check_node("BitwiseAnd", [a, b], [a & b])
    check_node("BitwiseOr", [a, b], [a | b])
    check_node("BitwiseXor", [a, b], [a ^ b])
    check_node("BitwiseNot", [a], [~a])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize(("negative", "positive"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_is_inf_of_each_type(dtype, negative, positive):
    x = np.array([0, np.inf, -np.inf, np.nan, 1], np.float32).astype(dtype)
    expected = np.array([False, bool(positive), bool(negative), False, False])
    check_node("IsInf", [x], [expected], {"detect_negative": negative, "detect_positive": positive})


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz])
def test_is_nan_of_each_type(dtype):
    x = np.array([0, np.nan, 2], np.float32).astype(dtype)
    check_node("IsNaN", [x], [np.array([False, True, False])])
