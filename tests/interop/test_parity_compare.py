"""Every hole that is known of the comparators in this field, and the figures."""

import json
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from interop.errors import InputError
from interop.parity import compare
from interop.parity.compare import compare_output
from interop.parity.figures import ulp_of
from interop.parity.tolerance import RELATIVE_TOLERANCE, Allowance


def f32(*values):
    return np.array(values, np.float32)


def judge(reference, candidate, **options):
    result = compare({"y": reference}, {"y": candidate}, **options)
    assert result.passed is (result.reason == "")
    return result


FAILING = {
    "nan_against_number": (f32(np.nan, 1), f32(5, 1), "NaN"),
    "number_against_nan": (f32(1), f32(np.nan), "NaN"),
    "broadcastable_shapes": (f32(1, 1, 1), f32(1), "shape"),
    "same_count_other_shape": (np.ones((2, 3)), np.ones((3, 2)), "shape"),
    "square_transposed": (f32(*range(9)).reshape(3, 3), f32(*range(9)).reshape(3, 3).T, "differ"),
    "bias_on_the_wrong_axis": (np.repeat([[1.0], [2.0]], 2, 1), np.repeat([[1.0, 2.0]], 2, 0), "differ"),
    "scalar_against_one_element": (np.ones(()), np.ones(1), "shape"),
    "empty_of_other_shape": (np.ones((0, 2)), np.ones((2, 0)), "shape"),
    "int64_wrap_around": (np.array([2**62]), np.array([-(2**62)]), "4611686018427387904"),
    "int64_extremes": (np.array([2**63 - 1]), np.array([-(2**63)]), "differ"),
    "int64_beyond_2_53": (np.array([2**53 + 1]), np.array([2**53]), "differ"),
    "uint64_beyond_int64": (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), "differ"),
    "uint8_wrap_around": (np.array([0], np.uint8), np.array([255], np.uint8), "differ"),
    "int32_against_int64": (np.array([1], np.int32), np.array([1], np.int64), "dtype"),
    "float32_against_float64": (f32(1), np.array([1.0]), "dtype"),
    "float16_against_bfloat16": (np.ones(1, np.float16), np.ones(1, ml_dtypes.bfloat16), "dtype"),
    "bfloat16_against_its_bits": (np.ones(1, ml_dtypes.bfloat16), np.array([0x3F80], np.uint16), "dtype"),
    "int_against_float": (np.array([1]), np.array([1.0]), "dtype"),
    "bool_against_int": (np.array([True]), np.array([1]), "dtype"),
    "bool_differs": (np.array([True, False]), np.array([True, True]), "differ"),
    "text_differs": (np.array(["a"], object), np.array(["b"], object), "differ"),
    "text_against_int": (np.array(["1"], object), np.array([1]), "dtype"),
    "inf_sign": (f32(np.inf), f32(-np.inf), "Inf"),
    "inf_against_number": (f32(np.inf), f32(1), "Inf"),
    "number_against_inf": (f32(1), f32(np.inf), "Inf"),
    "inf_against_nan": (f32(np.inf), f32(np.nan), "NaN"),
    "inf_against_largest": (f32(np.inf), f32(np.finfo(np.float32).max), "Inf"),
    "zero_against_1e_6": (f32(0), f32(1e-6), "1e-06"),
    "float64_overflowing_difference": (np.array([1e308]), np.array([-1e308]), "differ"),
    "one_wrong_among_a_million": (np.zeros(10**6, np.float32), np.eye(1, 10**6, 7, np.float32)[0], "at (7,)"),
    "complex_imaginary_part": (np.array([1 + 1j]), np.array([1 + 1.01j]), "differ"),
    "complex_nan_moved": (np.array([complex(np.nan, 1)]), np.array([complex(1, np.nan)]), "NaN"),
    "complex_inf_sign": (np.array([complex(1, np.inf)]), np.array([complex(1, -np.inf)]), "Inf"),
    "float8_neighbour_of_neighbours": (
        np.ones(1, ml_dtypes.float8_e4m3fn),
        np.full(1, 2, ml_dtypes.float8_e4m3fn),
        "differ",
    ),
    "int4": (np.array([-8], ml_dtypes.int4), np.array([7], ml_dtypes.int4), "differ"),
    "all_ones_hide_nothing": (f32(1, 1), f32(1, 1.001), "differ"),
    "wrong_by_relative_1e_3_and_tiny": (f32(1e-9, 2e-9), f32(1e-9, 2.002e-9), "differ"),
}

PASSING = {
    "nan_equals_nan": (f32(np.nan, 1), f32(np.nan, 1)),
    "nan_with_other_bits": (
        np.array([0x7FC00000], np.uint32).view(np.float32),
        np.array([0xFFC00001], np.uint32).view(np.float32),
    ),
    "inf_equals_inf": (f32(np.inf, -np.inf), f32(np.inf, -np.inf)),
    "empty": (f32(), f32()),
    "empty_ints": (np.zeros((0, 3), np.int64), np.zeros((0, 3), np.int64)),
    "scalar": (np.array(2.5), np.array(2.5)),
    "zeros_of_both_signs": (f32(0.0), f32(-0.0)),
    "near_zero_at_large_scale": (f32(1000, 0), f32(1000, 1e-4)),
    "rounding": (f32(1), np.nextafter(f32(1), f32(2))),
    "bfloat16_rounding": (np.array([1.0], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16)),
    "float16_rounding": (np.array([1.0], np.float16), np.array([1.001], np.float16)),
    "int64_extreme": (np.array([-(2**63)]), np.array([-(2**63)])),
    "text_against_bytes": (np.array([["a", "é"]], object), np.array([[b"a", "é".encode()]], object)),
    "fixed_width_text": (np.array(["a"]), np.array(["a"], object)),
    "complex": (np.array([1 + 1j], np.complex64), np.array([1 + 1.000001j], np.complex64)),
    "all_nan": (f32(np.nan), f32(np.nan)),
    "python_scalars": (3, 3),
}


@pytest.mark.parametrize("name", FAILING)
def test_compare_sees_difference(name):
    reference, candidate, said = FAILING[name]
    result = judge(reference, candidate)
    assert not result.passed
    assert said in result.reason
    assert "'y'" in result.reason and "\n" not in result.reason


@pytest.mark.parametrize("name", FAILING)
def test_compare_sees_difference_with_sides_swapped(name):
    reference, candidate, _ = FAILING[name]
    assert not judge(candidate, reference).passed


@pytest.mark.parametrize("name", PASSING)
def test_compare_passes_equal(name):
    result = judge(*PASSING[name])
    assert result.passed, result.reason


def test_compare_checks_count():
    assert "1 outputs instead of 2" in compare({"a": f32(1), "b": f32(1)}, {"a": f32(1)}).reason
    assert not compare({"a": f32(1)}, {"a": f32(1), "b": f32(1)}).passed
    assert not compare({"a": f32(1)}, {}).passed


def test_comparing_nothing_is_no_pass():
    assert not compare({}, {}).passed


def test_compare_never_pairs_by_position():
    result = compare({"a": f32(1)}, {"b": f32(1)})
    assert not result.passed
    assert "missing ['a']" in result.reason and "unexpected ['b']" in result.reason


def test_compare_sees_swapped_outputs():
    result = compare({"a": f32(1), "b": f32(2)}, {"a": f32(2), "b": f32(1)})
    assert not result.passed
    assert not any(output.passed for output in result.outputs.values())


def test_compare_ignores_order_of_names():
    assert compare({"a": f32(1), "b": f32(2)}, {"b": f32(2), "a": f32(1)}).passed


def test_compare_gives_figures_beside_a_wrong_dtype():
    result = judge(f32(1, 2), np.array([1.0, 2.5]))
    assert result.outputs["y"].max_abs == 0.5
    assert result.outputs["y"].reason.startswith("dtype")


def test_compare_measures_int64_distance_without_overflow():
    assert judge(np.array([2**62]), np.array([-(2**62)])).outputs["y"].max_abs == 2.0**63


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 255)])
def test_compare_measures_small_integers_without_wrap_around(left, right):
    result = judge(np.array([left], np.uint8), np.array([right], np.uint8))
    assert result.outputs["y"].max_abs == abs(left - right)


def test_compare_reports_known_figures():
    output = judge(f32(3, 4, 0), f32(3, 4, 1), atol=2).outputs["y"]
    assert output.max_abs == 1 and output.rms == pytest.approx(1 / math.sqrt(3))
    assert output.mean_abs == pytest.approx(1 / 3)
    assert output.worst_index == (2,) and output.worst_values == ("0.0", "1.0")
    assert output.scale == 4 and output.allowed == 2
    assert output.cosine == pytest.approx(25 / (5 * math.sqrt(26)))
    assert output.snr_db == pytest.approx(10 * math.log10(25 / 1))
    assert output.smallest_atol == 1 and output.smallest_rtol == math.inf


def test_compare_counts_ulp():
    one = f32(1)
    up = one
    for _ in range(5):
        up = np.nextafter(up, f32(2))
    assert judge(one, up).outputs["y"].max_ulp == 5


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("value", [1.0, 0.1, 1e-7, 3e4, 0.0])
def test_ulp_of_is_numpy_spacing(dtype, value):
    number = np.abs(np.array(value, dtype))
    assert ulp_of(number.astype(np.float64), dtype) == float(np.spacing(number))


def test_ulp_of_bfloat16_is_the_step_of_its_bits():
    value = np.array([1.5], ml_dtypes.bfloat16)
    following = (value.view(np.uint16) + 1).view(ml_dtypes.bfloat16)
    assert ulp_of(value.astype(np.float64), "bfloat16") == following.astype(np.float64) - value.astype(np.float64)


@given(
    hnp.arrays(np.float64, 4, elements=st.floats(-1e9, 1e9, allow_subnormal=False)),
    hnp.arrays(np.float64, 4, elements=st.floats(-1e9, 1e9, allow_subnormal=False)),
)
def test_smallest_tolerances_are_smallest(left, right):
    output = judge(left, right).outputs["y"]
    assert judge(left, right, atol=output.smallest_atol).passed
    if math.isfinite(output.smallest_rtol):
        assert judge(left, right, rtol=output.smallest_rtol).passed
    if output.smallest_atol > 0:
        assert not judge(left, right, atol=float(np.nextafter(output.smallest_atol, 0))).passed
        assert not judge(
            left, right, rtol=output.smallest_rtol * (1 - 1e-9) if output.smallest_rtol < math.inf else 1e300
        ).passed


def test_explicit_tolerance_is_numpys_sum():
    reference, candidate = f32(100), f32(101.5)
    assert judge(reference, candidate, atol=0.5, rtol=0.01).passed
    assert not judge(reference, candidate, atol=0.4, rtol=0.01).passed
    assert not judge(reference, candidate, rtol=0.01).passed, "one of two given: the other is zero"
    assert not judge(reference, candidate, atol=0.5).passed


def test_explicit_tolerance_never_excuses_integers():
    assert not judge(np.array([1]), np.array([2]), atol=5, rtol=5).passed


def test_tolerance_by_name_and_wildcard():
    reference = {"head.a": f32(1), "head.b": f32(1), "c": f32(1)}
    candidate = {"head.a": f32(1.1), "head.b": f32(1.1), "c": f32(1)}
    assert compare(reference, candidate, atol={"head.*": 0.2}).passed
    assert not compare(reference, candidate, atol={"head.*": 0.2, "head.b": 0.01}).passed, "the exact name counts first"
    assert not compare(reference, candidate, atol={"head.a": 0.2}).passed


def test_tolerance_may_be_a_numpy_number():
    assert judge(f32(1), f32(1.5), atol=np.float32(0.5)).passed


@pytest.mark.parametrize("tolerance", [-1.0, math.nan, "1", {"y": -1}])
def test_tolerance_must_be_a_number(tolerance):
    with pytest.raises(InputError, match="must be a number"):
        judge(f32(1), f32(1), atol=tolerance)


def test_tolerance_for_unknown_output_suggests():
    with pytest.raises(InputError, match="did you mean 'logits'"):
        compare({"logits": f32(1)}, {"logits": f32(1)}, atol={"logit": 1})


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_default_tolerance_follows_the_dtype(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    rtol = RELATIVE_TOLERANCE[dtype]
    one = np.ones(1, kind)
    assert judge(one, (one.astype(np.float64) * (1 + rtol)).astype(kind)).passed
    assert not judge(one, (one.astype(np.float64) * (1 + 3 * rtol)).astype(kind)).passed


def test_argmax_ties_pass_through_the_values_they_select():
    logits = f32(1, 5, 5, 0)[None]
    reference = {"logits": logits, "best": np.array([1])}
    assert compare(reference, reference | {"best": np.array([2])}, indices={"best": "logits"}).passed
    assert not compare(reference, reference | {"best": np.array([2])}).passed, "only on request"
    for wrong in (0, 3, 4, -1):
        assert not compare(reference, reference | {"best": np.array([wrong])}, indices={"best": "logits"}).passed


@pytest.mark.parametrize("index", [-1, 4, 2**40])
def test_index_outside_of_its_values_fails_even_where_all_are_tied(index):
    reference = {"logits": np.zeros((1, 4)), "best": np.array([0])}
    assert compare(reference, reference | {"best": np.array([3])}, indices={"best": "logits"}).passed
    assert not compare(reference, reference | {"best": np.array([index])}, indices={"best": "logits"}).passed


def test_allowance_judges_maximum_and_root_mean_square():
    reference, spread = np.zeros(100), np.full(100, 0.5)
    single = np.eye(1, 100)[0]
    both = Allowance(atol=0.9, rms=0.2)
    assert not compare_output("y", reference, single, both).passed, "one element is too far off"
    assert compare_output("y", reference, single * 0.8, both).passed
    result = compare_output("y", reference, spread, both)
    assert not result.passed and "root mean square" in result.reason
    assert compare_output("y", reference, spread, Allowance(atol=0.9)).passed


def test_distance_is_measured_from_the_truth_where_there_is_one():
    reference, candidate, truth = np.array([1.0]), np.array([2.0]), np.array([2.5])
    result = compare_output("y", reference, candidate, Allowance(0.6), truth)
    assert result.passed and result.max_abs == 0.5
    assert result.smallest_atol == 1.0, "an explicit tolerance is measured from the reference itself"


def test_argmax_along_another_axis():
    values = np.array([[1.0, 2.0], [1.0, 0.0]])
    reference = {"values": values, "best": np.array([0, 0])}
    pairing = {"best": ("values", 0)}
    assert compare(reference, reference | {"best": np.array([1, 0])}, indices=pairing).passed
    assert not compare(reference, reference | {"best": np.array([0, 1])}, indices=pairing).passed


TOP = {"values": f32(9, 7, 7, 3)[None], "index": np.array([[4, 1, 2, 8]])}


@pytest.mark.parametrize("index", [[4, 2, 1, 8], [4, 1, 2, 9]])
def test_topk_ties_may_fall_either_way(index):
    assert compare(TOP, TOP | {"index": np.array([index])}, indices={"index": "values"}).passed


@pytest.mark.parametrize("index", [[1, 4, 2, 8], [5, 1, 2, 8], [4, 1, 1, 8], [4, 1, 2, -1], [4, 1, 2, 4]])
def test_topk_other_values_fail(index):
    assert not compare(TOP, TOP | {"index": np.array([index])}, indices={"index": "values"}).passed


def test_indices_dtype_still_counts():
    candidate = TOP | {"index": TOP["index"].astype(np.int32)}
    assert "dtype" in compare(TOP, candidate, indices={"index": "values"}).reason


def test_indices_of_unknown_values_raise():
    with pytest.raises(InputError, match="'value'"):
        compare(TOP, TOP | {"index": np.array([[4, 1, 2, 9]])}, indices={"index": "value"})


def test_compare_leaves_its_arguments_alone():
    reference, candidate = f32(np.nan, 1, np.inf), f32(1, 2, 3)
    before = reference.tobytes(), candidate.tobytes()
    judge(reference, candidate)
    assert (reference.tobytes(), candidate.tobytes()) == before


def test_reasons_are_plain_text():
    assert json.dumps(judge(f32(1), f32(2)).reason)
