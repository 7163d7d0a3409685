"""Conversion and reinterpretation of element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
import tensorflow as tf

from exporters.errors import UnsupportedOperatorError
from exporters.tensorflow._bits import decode, encode, from_bytes, to_bytes
from exporters.tensorflow._casts import cast_to
from interop.dtypes import dtype_of
from tests.exporters.tensorflow._nodes import check_node, gradients, lower_node

RNG = np.random.default_rng(2)
SPECIAL = [0, -0.0, 1, -1, np.nan, np.inf, -np.inf, 1e6, -1e6, 1e-7, -1e-7]
EDGES = [240, 247.9, 248, 256, 448, 464, 465, 57344, 61439, 61440, 65536, 2.5, 5, 6, 7]
REAL = np.array([*SPECIAL, *EDGES, *(RNG.standard_normal(500) * np.exp(5 * RNG.standard_normal(500)))], np.float32)
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
NUMBERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
PACKED = ["float4_e2m1fn", "int2", "uint2"]


def to(dtype):
    return {"to": dtype_of(np.dtype(dtype)).onnx}


def assert_same_bits(result, expected):
    """Equal bytes; any NaN is as good as another."""
    is_nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(result.astype(np.float32)), is_nan)
    np.testing.assert_array_equal(result.view(np.uint8)[~is_nan], expected.view(np.uint8)[~is_nan])


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", FLOAT8)
def test_cast_to_float8_rounds_like_onnx(name, saturate):
    dtype = dtype_of(name).numpy
    with np.errstate(all="ignore"):
        expected = onnx.numpy_helper.saturate_cast(REAL, dtype) if saturate else REAL.astype(dtype)
    module = lower_node("Cast", [REAL], [dtype], {**to(dtype), "saturate": int(saturate)})
    assert_same_bits(module(tf.constant(REAL))["y0"].numpy(), expected)


@pytest.mark.parametrize("target", [np.float16, np.float32, np.int32])
@pytest.mark.parametrize("name", FLOAT8)
def test_cast_from_float8_is_exact(name, target):
    dtype = dtype_of(name).numpy
    data = np.arange(256, dtype=np.uint8).view(dtype)
    if target is np.int32:
        data = data[np.isfinite(data.astype(np.float32))]
    check_node("Cast", [data], [data.astype(np.float32).astype(target)], to(target))


@pytest.mark.parametrize("source", [np.int64, np.bool_, np.float64])
@pytest.mark.parametrize("name", FLOAT8)
def test_cast_to_float8_from_other_types(name, source):
    dtype = dtype_of(name).numpy
    data = np.array([0, 1, 5, 100]).astype(source)
    module = lower_node("Cast", [data], [dtype], to(dtype))
    assert_same_bits(module(tf.constant(data))["y0"].numpy(), data.astype(np.float32).astype(dtype))


# ml_dtypes has no word on NaN in a type without NaN; infinities saturate.
@pytest.mark.parametrize("name", PACKED)
def test_packed_types_are_made_and_read_bit_by_bit(name):
    dtype = dtype_of(name).numpy
    real = REAL[~np.isnan(REAL)] if name.startswith("float") else np.arange(-40, 40).astype(np.float32)
    made = encode(tf.constant(real), tf.dtypes.as_dtype(dtype))
    assert_same_bits(made.numpy(), real.astype(dtype))
    assert cast_to(made, tf.float16).dtype == tf.float16
    np.testing.assert_array_equal(cast_to(made, tf.float32).numpy(), real.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("name", [*FLOAT8, *PACKED, "int4", "uint4", "int8", "bool"])
def test_bytes_go_round_with_unknown_dims(name):
    dtype = tf.dtypes.as_dtype(name)
    codes = np.arange(2 if name == "bool" else 1 << dtype_of(name).bits, dtype=np.uint8).reshape(2, -1)
    spec = tf.TensorSpec([None, None], tf.uint8)
    function = tf.function(lambda x: to_bytes(from_bytes(x, dtype)), input_signature=[spec], autograph=False)
    found = function(codes).numpy()
    mask = 0xFF if dtype_of(name).bits >= 8 else (1 << dtype_of(name).bits) - 1
    np.testing.assert_array_equal(found & mask, codes)
    assert function(codes[:, :0]).shape == (2, 0)


def test_decode_of_a_scalar_keeps_its_shape():
    x = tf.constant(np.array(2, ml_dtypes.float8_e4m3fnuz))
    assert decode(x).shape == ()
    assert decode(x).numpy() == 2


@pytest.mark.parametrize("target", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("source", [np.float32, np.float16, np.int8, np.int64, np.uint8])
def test_cast_to_four_bits_wraps_around(source, target):
    data = np.arange(0 if source is np.uint8 else -20, 20).astype(source)
    expected = data.astype(np.int32).astype(target)
    check_node("Cast", [data], [expected], to(target))


@pytest.mark.parametrize("target", [*NUMBERS, *FLOATS, np.bool_])
@pytest.mark.parametrize("source", [ml_dtypes.int4, ml_dtypes.uint4])
def test_cast_from_four_bits(source, target):
    data = np.arange(16).astype(np.int8).astype(source)
    check_node("Cast", [data], [data.astype(np.int32).astype(target)], to(target))


@pytest.mark.parametrize("target", [*NUMBERS, np.bool_])
@pytest.mark.parametrize("source", [np.int64, np.uint64, np.int16])
def test_cast_between_integers_discards_high_bits(source, target):
    limits = np.iinfo(source)
    data = np.array([limits.min, limits.max, 200, 0, 1, 255, 256], source)
    check_node("Cast", [data], [data.astype(target)], to(target))


@pytest.mark.parametrize("target", [*NUMBERS, *FLOATS, np.bool_])
@pytest.mark.parametrize("source", FLOATS)
def test_cast_from_floats_truncates(source, target):
    data = np.array([0, 0.4, 1.5, 2.99, 100, 127]).astype(source)
    check_node("Cast", [data], [data.astype(np.float64).astype(target)], to(target), rtol=1e-2)


def test_cast_of_special_floats_to_bool_is_true():
    data = np.array([0, -0.0, np.nan, np.inf, 1e-30], np.float32)
    check_node("Cast", [data], [np.array([False, False, True, True, True])], to(np.bool_))


def test_cast_out_of_range_gives_infinity():
    data = np.array([1e30, -1e30, 1], np.float32)
    check_node("Cast", [data], [np.array([np.inf, -np.inf, 1], np.float16)], to(np.float16))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_cast_to_string_reads_back_as_the_same_value(dtype):
    data = np.array([0.1, 1, 314.15926, 1e-5, 1 / 3, -2.5, 65000]).astype(dtype)
    module = lower_node("Cast", [data], [np.dtype(object)], to(object))
    text = [item.decode() for item in module(tf.constant(data))["y0"].numpy()]
    np.testing.assert_array_equal(np.array([float(item) for item in text]).astype(dtype), data)
    assert text[1] == "1.0"
    assert max(map(len, text)) <= len(str(np.finfo(dtype).max)) + 2


def test_cast_to_string_is_the_shortest_text():
    data = np.array([0.1, 1 / 3, 314.15926, 1e20, np.nan, -np.inf], np.float32)
    check_node("Cast", [data], [np.array([str(x) for x in data])], to(object))
    check_node("Cast", [np.array([-3, 2**62])], [np.array(["-3", str(2**62)])], to(object))
    check_node("Cast", [np.array([True, False])], [np.array(["True", "False"])], to(object))


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32])
def test_cast_from_string(dtype):
    text = np.array(["3.14", "1e2", "-5", "1000"], object)
    expected = np.array([3.14, 100, -5, 1000])
    check_node("Cast", [text], [expected.astype(dtype)], to(dtype), rtol=1e-6)


def test_cast_from_string_knows_special_words():
    text = np.array(["+INF", "INF", "-INF", "NaN", "inf", "nan"], object)
    check_node(
        "Cast", [text], [np.array([np.inf, np.inf, -np.inf, np.nan, np.inf, np.nan], np.float32)], to(np.float32)
    )


@pytest.mark.parametrize("value", [2**53 + 1, -(2**63), 2**63 - 1])
def test_cast_from_string_keeps_all_bits_of_an_integer(value):
    check_node("Cast", [np.array([str(value)], object)], [np.array([value], np.int64)], to(np.int64))


def test_cast_like_takes_the_type_only():
    target = np.zeros([], ml_dtypes.bfloat16)
    check_node("CastLike", [REAL[:1], target], [REAL[:1].astype(ml_dtypes.bfloat16)])


def test_cast_is_differentiable_between_floats():
    data = np.array([1, -2], np.float32)
    module = lower_node("Cast", [data], [np.dtype(np.float64)], to(np.float64))
    x = tf.constant(data)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.square(module(x)["y0"]))
    np.testing.assert_array_equal(tape.gradient(loss, x).numpy(), 2 * data)
    np.testing.assert_array_equal(gradients("Cast", [data], to(np.float32))[0], 2 * data)


def test_cast_to_a_type_without_tensorflow_is_refused():
    with pytest.raises(UnsupportedOperatorError, match="float8_e8m0fnu"):
        lower_node("Cast", [REAL], [dtype_of("float8_e8m0fnu").numpy], to(ml_dtypes.float8_e8m0fnu))


PAIRS = [
    (np.float32, np.uint32),
    (np.float64, np.int64),
    (ml_dtypes.bfloat16, np.float16),
    (np.int8, np.uint8),
    (np.uint8, ml_dtypes.float8_e4m3fn),
    (ml_dtypes.float8_e5m2, np.int8),
    (ml_dtypes.float8_e4m3fnuz, np.uint8),
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_bit_cast_keeps_the_bits(source, target):
    data = np.array([[1, 2, 3], [0, 5, 6]]).astype(source)
    expected = data.view(target)
    module = lower_node("BitCast", [data], [np.dtype(target)], to(target))
    result = module(tf.constant(data))["y0"].numpy()
    assert result.dtype == target
    assert result.tobytes() == expected.tobytes()


def test_bit_cast_between_four_bit_types():
    data = np.arange(-8, 8).astype(ml_dtypes.int4)
    expected = np.arange(-8, 8).astype(np.int8).astype(ml_dtypes.uint4)
    check_node("BitCast", [data], [expected], to(ml_dtypes.uint4))


def test_bit_cast_to_another_width_is_refused():
    with pytest.raises(UnsupportedOperatorError, match="64 bits"):
        lower_node("BitCast", [REAL], [np.dtype(np.int64)], to(np.int64))
