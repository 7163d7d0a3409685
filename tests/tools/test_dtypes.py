"""The dtypes on the page of operators: a part of them is tried again, and a fault in a lowering is seen."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from exporters.tensorflow._table import TABLE
from tests.node_suite.cases import Case
from tools import dtypes, operators
from tools.dtypes import Tried

EVERY = 8  # all of them together take a minute and a half; writing the page tries them all


@pytest.fixture(scope="module")
def found():
    return dtypes.operators_with_cases()


@pytest.fixture(scope="module")
def on_page():
    return operators.dtypes_of_page(operators.PAGE.read_text(encoding="utf-8"))


def test_the_page_says_what_comes_of_trying(found, on_page):
    sample = sorted(found)[::EVERY]
    tried = {key: dtypes.dtypes_text(one) for key, one in dtypes.try_operators(sample).items()}
    said = {key: on_page.get(key, "") for key in sample}
    assert tried == said, "docs/operators.md is stale; run python -m tools.operators"
    assert sum(map(bool, tried.values())) > 20


def test_every_operator_with_a_case_of_one_tensor_node_has_dtypes(found, on_page):
    assert set(on_page) <= set(found)
    without = {operator for _, operator in set(found) - set(on_page)}
    assert all("Sequence" in operator or "Optional" in operator for operator in without), without


def test_the_dtypes_on_the_page_are_those_that_onnx_allows(found, on_page):
    for key, text in on_page.items():
        allowed = {dtype.name for dtype in dtypes._allowed(found[key][0])}
        words = text.replace("; not ", ", ").removeprefix("none, ").split(", ")
        names = [name for word in words for name in dtypes.GROUPS.get(word, (word,))]
        assert len(names) == len(set(names)) and set(names) <= allowed, key


def test_an_operator_that_is_not_served_takes_nothing(found, monkeypatch):
    resolve = type(TABLE).resolve
    monkeypatch.setattr(
        type(TABLE), "resolve", lambda self, opsets: {k: v for k, v in resolve(self, opsets).items() if k[1] != "Sqrt"}
    )
    assert dtypes.dtypes_text(dtypes.try_dtypes(found["ai.onnx", "Sqrt"])) == "none; not floats"


def _case(value, expected, elem_type=TensorProto.FLOAT, operator="Neg"):
    x, y = (helper.make_tensor_value_info(name, elem_type, [2]) for name in "xy")
    model = helper.make_model(
        helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 13)],
    )
    return Case("node/one", 1e-3, 1e-7, SimpleNamespace(model=model, data_sets=[([value], [expected])]))


def test_values_are_compared_with_the_suite_s_and_with_the_reference():
    x = np.float32([1, -2])
    tried = {one.dtype: one for one in dtypes.try_dtypes([_case(x, -x)])}
    assert set(tried) == {"float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64"}
    assert {one.witness for one in tried.values()} == {"suite", "reference"} and tried["float32"].witness == "suite"
    assert not any(one.problem for one in tried.values())
    wrong = {one.dtype: one for one in dtypes.try_dtypes([_case(x, x)])}
    assert "AssertionError" in wrong["float32"].problem and not wrong["int8"].problem


def test_a_lowering_that_is_wrong_in_one_dtype_is_seen(monkeypatch):
    reference = dtypes._reference

    def other(model, inputs):
        (result,) = reference(model, inputs)
        return [result + 1 if result.dtype == np.int16 else result]

    monkeypatch.setattr(dtypes, "_reference", other)
    x = np.float32([1, -2])
    assert dtypes.dtypes_text(dtypes.try_dtypes([_case(x, -x)])) == "floats, int8, int32, int64; not int16"


def test_a_cast_case_is_a_valid_model_of_the_new_dtype(found):
    for key in (("ai.onnx", "Pow"), ("ai.onnx", "ConstantOfShape"), ("ai.onnx", "EyeLike"), ("ai.onnx", "Where")):
        case = found[key][0]
        model = dtypes._cast_model(case, dtypes.dtype_of("int32"))
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        assert [value.type.tensor_type.elem_type for value in inferred.graph.output] == [TensorProto.INT32]
        (feed,) = [dtypes._cast_inputs(case, dtypes.dtype_of("int32"), inputs) for inputs, _ in case.data()]
        for value, array in zip(model.graph.input, feed):
            assert helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype) == value.type.tensor_type.elem_type


def test_what_cannot_be_cast_is_not_guessed(found):
    assert dtypes._cast_model(found["ai.onnx", "If"][0], dtypes.dtype_of("int32")) is None
    assert dtypes._cast_model(found["ai.onnx.ml", "LabelEncoder"][0], dtypes.dtype_of("int64")) is None
    assert dtypes._cast_model(found["ai.onnx", "Abs"][0], dtypes.dtype_of("bool")) is None  # onnx itself refuses it


@pytest.mark.parametrize(
    ("good", "bad", "text"),
    [
        (("float32", "int8"), (), "float32, int8"),
        (("float16", "bfloat16", "float32", "float64", "bool"), (), "floats, bool"),
        (("float32",), ("int8", "int16", "int32", "int64"), "float32; not ints"),
        ((), ("string",), "none; not string"),
        ((), (), ""),
    ],
)
def test_dtypes_that_go_together_have_one_word(good, bad, text):
    assert dtypes.dtypes_text([*(Tried(name) for name in good), *(Tried(name, "why") for name in bad)]) == text
