"""Made inputs: seeded, of the asked sizes and dtypes, and holding what each family promises."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import interop
from interop.errors import InputError
from interop.parity.inputs import (
    FAMILIES,
    FULL,
    base_symbols,
    default_sizes,
    evaluate_dim,
    is_complete,
    make_case,
    make_suite,
)
from interop.parity.vocabulary import module_ranges, onnx_ranges
from interop.parity.witness import ModuleWitness
from interop.signature import Signature, TensorSpec


def signature(*specs):
    return Signature(tuple(TensorSpec(*spec) for spec in specs), ())


IMAGE = signature(("image", "float32", ("batch", 3, "side", "side")))
MANY = signature(
    ("x", "float32", ("batch", 40)),
    ("tokens", "int64", ("batch", 40)),
    ("mask", "bool", ("batch", 40)),
    ("half", "bfloat16", (40,)),
    ("wave", "complex64", (40,)),
    ("byte", "uint8", (40,)),
    ("words", "string", (2,)),
    ("scalar", "float64", ()),
)
SIZES = {"batch": 2}


@pytest.mark.parametrize("family", FAMILIES)
def test_case_fits_the_signature(family):
    case = make_case(MANY, family, SIZES)
    described = {
        name: ("string" if value.dtype == object else value.dtype.name, value.shape)
        for name, value in case.tensors.items()
    }
    assert MANY.check(described) == SIZES
    assert list(case.tensors) == list(MANY.input_names)


@pytest.mark.parametrize("family", FAMILIES)
def test_same_seed_same_values(family):
    first, again, other = (make_case(MANY, family, SIZES, seed=seed).tensors for seed in (1, 1, 2))
    assert all(raw(first[name]) == raw(again[name]) for name in first)
    assert any(raw(first[name]) != raw(other[name]) for name in first)


def raw(values):
    return values.tolist() if values.dtype == object else values.tobytes()


def test_values_of_an_input_depend_on_no_other_input():
    alone = make_case(signature(("x", "float32", ("batch", 40))), "normal", SIZES)
    assert np.array_equal(alone.tensors["x"], make_case(MANY, "normal", SIZES).tensors["x"])


def values(family, count=4000):
    return make_case(signature(("x", "float32", (count,))), family, {}).tensors["x"]


def test_families_hold_what_they_promise():
    assert abs(values("normal").mean()) < 0.1 and values("normal").min() < -2
    assert values("uniform").min() >= 0 and values("uniform").max() < 1
    assert (values("negative") <= 0).all() and values("negative").min() < -5
    zeros = values("zeros")
    assert (zeros == 0).all() and 0 < np.signbit(zeros).mean() < 1
    assert len(np.unique(values("ties"))) == 9 and (values("ties") % 1 == 0.5).any()
    assert np.abs(values("large")).max() > 300
    assert 0 < np.abs(values("tiny")).max() < 1e-2
    special = values("nonfinite")
    assert np.isnan(special).any() and np.isposinf(special).any() and np.isneginf(special).any()
    assert np.isfinite(special).mean() > 0.8
    assert "nonfinite" not in FULL


@pytest.mark.parametrize("family", FULL)
def test_integers_stay_in_their_range(family):
    spec = signature(("tokens", "int64", (3000,)))
    tokens = make_case(spec, family, {}, {"tok*": (5, 1005)}).tensors["tokens"]
    assert tokens.min() >= 5 and tokens.max() < 1005
    if family == "normal":
        assert tokens.max() > 950 and tokens.min() < 55, "the whole range"
    if family == "large":
        assert tokens.min() >= 900


def test_exact_range_counts_before_wildcard():
    spec = signature(("a", "int64", (500,)), ("b", "int64", (500,)))
    tensors = make_case(spec, "normal", {}, {"*": (0, 10), "b": (90, 91)}).tensors
    assert tensors["a"].max() <= 9 and (tensors["b"] == 90).all()


def test_integers_without_a_range_are_valid_everywhere():
    assert set(make_case(signature(("i", "int32", (99,))), "normal", {}).tensors["i"]) == {0, 1}


def test_empty_range_is_an_error():
    with pytest.raises(InputError, match="low < high"):
        make_case(signature(("i", "int32", (9,))), "normal", {}, {"i": (3, 3)})


def test_masks_hold_both_values():
    mask = make_case(MANY, "normal", SIZES).tensors["mask"]
    assert mask.dtype == bool and 0 < mask.mean() < 1


def test_bfloat16_is_the_ml_dtypes_type():
    assert make_case(MANY, "normal", SIZES).tensors["half"].dtype == ml_dtypes.bfloat16


def test_suite_has_three_sizes_and_then_families():
    cases = list(make_suite(IMAGE, families=FULL))
    shapes = [case.tensors["image"].shape for case in cases]
    assert len(set(shapes[:3])) == 3 and 1 in {shape[0] for shape in shapes[:3]}
    assert len(cases) == 3 + len(FULL) - 1
    assert len({case.name for case in cases}) == len(cases)
    assert all(shape[2] == shape[3] for shape in shapes), "one symbol, one size"


def test_sizes_start_from_the_example():
    assert default_sizes(["batch", "side"], {"side": 32}) == [
        {"batch": 2, "side": 32},
        {"batch": 3, "side": 34},
        {"batch": 1, "side": 32},
    ]
    assert default_sizes([]) == [{}]
    assert default_sizes(["batch"], {"batch": 1}) == [{"batch": 1}, {"batch": 2}]


def test_empty_batch_on_request():
    assert make_case(IMAGE, "normal", {"batch": 0, "side": 4}).tensors["image"].shape == (0, 3, 4, 4)


@pytest.mark.parametrize(
    ("expression", "size"), [("n", 6), ("2*n", 12), ("n + 1", 7), ("n//4", 1), ("n*m - 3", 15), ("n % 4", 2)]
)
def test_derived_dims_are_computed(expression, size):
    assert evaluate_dim(expression, {"n": 6, "m": 3}) == size


@pytest.mark.parametrize("expression", ["k", "n**99", "__import__('os')", "n.real", "n//0", "n +"])
def test_other_expressions_are_errors(expression):
    with pytest.raises(InputError, match="has no size"):
        evaluate_dim(expression, {"n": 6})


def test_symbols_of_expressions_are_found_once():
    spec = signature(("x", "float32", ("2*n", "n", "free text!")))
    assert base_symbols(spec) == ("n", "free text!")
    assert make_case(spec, "normal", {"n": 3, "free text!": 4}).tensors["x"].shape == (6, 3, 4)


def test_unknown_dims_cannot_be_made():
    spec = signature(("x", "float32", (None, 3)))
    assert not is_complete(spec) and is_complete(IMAGE)
    with pytest.raises(InputError, match="give inputs="):
        make_case(spec, "normal", {})


def test_unknown_family_is_an_error():
    with pytest.raises(InputError, match="normal"):
        list(make_suite(IMAGE, families=["norml"]))


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, 4)
        self.places = nn.Embedding(7, 4)

    def forward(self, tokens, places, length):
        return self.words(tokens) + self.places(places) * length


def test_vocabulary_is_read_off_embedding_modules():
    tensors = {
        "tokens": np.array([[0, 1, 1, 0]]),
        "places": np.array([[1, 1, 0, 1]]),
        "length": np.array([3]),
    }
    model = Lookup()
    assert module_ranges(ModuleWitness(model), tensors, None) == {"tokens": (0, 1000), "places": (0, 7)}
    assert not model.words._forward_pre_hooks, "the module is left as it was"


def test_vocabulary_is_read_off_onnx_gather(tmp_path):
    table = helper.make_tensor("table", TensorProto.FLOAT, [50, 1], np.zeros(50, np.float32))
    nodes = [
        helper.make_node("Cast", ["tokens"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "wide"], ["y"]),
        helper.make_node("Gather", ["table", "column"], ["z"], axis=1),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT32, [3]) for n in ("tokens", "column")]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "z")]
    path = tmp_path / "lookup.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [table])), path)
    assert onnx_ranges(path) == {"tokens": (0, 50)}
    assert onnx_ranges(tmp_path) == {} and onnx_ranges(None) == {}


class Rare(nn.Module):
    """Right on normal inputs in float32, wrong where the exporter's formula gives up."""

    def forward(self, x):
        return nn.functional.logsigmoid(x)


class Function(interop.Runtime):
    name = "function"
    framework = "numpy"

    def __init__(self, answer):
        spec = (TensorSpec("x", "float32", ("batch", 50)),)
        super().__init__(Signature(spec, (TensorSpec("y", "float32", ("batch", 50)),)))
        self.answer = answer

    @classmethod
    def open(cls, model, **options):
        raise NotImplementedError

    def _execute(self, inputs, owner):
        with np.errstate(all="ignore"):
            return {"y": self.answer(inputs["x"])}


def naive_logsigmoid(x):
    return np.log(1 / (1 + np.exp(-x)))


def stable_logsigmoid(x):
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def test_large_inputs_find_what_normal_ones_miss():
    assert not interop.check(Rare(), Function(naive_logsigmoid), families=["large"]).passed
    assert interop.check(Rare(), Function(stable_logsigmoid), families=FULL).passed


def test_zeros_find_a_lost_sign():
    class Angle(nn.Module):
        def forward(self, x):
            return torch.atan2(x, -torch.ones_like(x))

    def lossy(x):
        return np.arctan2(x + np.float32(0), np.float32(-1))

    assert interop.check(Angle(), Function(lossy)).passed
    assert not interop.check(Angle(), Function(lossy), families=["zeros"]).passed


def test_nonfinite_inputs_find_a_dropped_nan():
    class Top(nn.Module):
        def forward(self, x):
            return x.amax(-1, keepdim=True).expand(-1, 50).clone()

    right = Function(lambda x: np.broadcast_to(x.max(-1, keepdims=True), x.shape).copy())
    wrong = Function(lambda x: np.broadcast_to(np.nanmax(x, -1, keepdims=True), x.shape).copy())
    assert interop.check(Top(), wrong).passed
    assert interop.check(Top(), right, families=["normal", "nonfinite"]).passed
    assert not interop.check(Top(), wrong, families=["normal", "nonfinite"]).passed


def test_second_size_finds_a_frozen_dim():
    class Mean(nn.Module):
        def forward(self, x):
            return x - x.sum(0) / x.shape[0]

    wrong = Function(lambda x: x - x.sum(0) / np.float32(2))
    report = interop.check(Mean(), wrong)
    assert [result.passed for result in report.cases] == [True, False, False]
