"""TensorFlow Serving's JSON: expected texts are those of its REST documentation, or written by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from interop.errors import InputError
from interop.integrations import _serving_json as messages
from interop.signature import Signature, TensorSpec


def _specs(**dtypes: str) -> dict[str, TensorSpec]:
    return {name: TensorSpec(name, dtype, None) for name, dtype in dtypes.items()}


def _signature(**dtypes: str) -> Signature:
    return Signature(tuple(_specs(**dtypes).values()), ())


def test_columns_and_rows_are_those_of_the_documentation():
    arrays = {"tag": np.array(["foo", "bar"], dtype=object), "value": np.array([[1.5, 2], [3, -4]], np.float32)}
    columns = {"inputs": {"tag": ["foo", "bar"], "value": [[1.5, 2.0], [3.0, -4.0]]}}
    rows = {"instances": [{"tag": "foo", "value": [1.5, 2.0]}, {"tag": "bar", "value": [3.0, -4.0]}]}
    assert messages.write_inputs(arrays, "columns") == columns
    assert messages.write_inputs(arrays, "rows") == rows


@pytest.mark.parametrize(
    ("answer", "specs"),
    [
        ({"outputs": [1, 2]}, {"y": "int64"}),
        ({"outputs": {"y": [1, 2]}}, {"y": "int64"}),
        ({"predictions": [1, 2]}, {"y": "int64"}),
        ({"predictions": [{"y": 1, "z": True}, {"y": 2, "z": False}]}, {"y": "int64", "z": "bool"}),
        ({"outputs": {"y": [1, 2], "z": [True, False]}}, {"y": "int64", "z": "bool"}),
    ],
)
def test_every_form_of_an_answer_is_read(answer, specs):
    outputs = messages.read_outputs(answer, _specs(**specs))
    np.testing.assert_array_equal(outputs["y"], np.int64([1, 2]), strict=True)
    assert "z" not in specs or outputs["z"].tolist() == [True, False]


@pytest.mark.parametrize("dtype", [name for name in messages.JSON_DTYPES if name not in ("string", "bool")])
def test_the_ends_of_each_type_survive_as_text(dtype):
    limits = np.finfo(dtype) if "float" in dtype else np.iinfo(dtype)
    array = np.array([[limits.min, limits.max, 1]], dtype)
    text = json.dumps(messages.write_inputs({"x": array}, "columns"))
    inputs, layout = messages.read_inputs(json.loads(text), _signature(x=dtype))
    assert layout == "columns"
    np.testing.assert_array_equal(inputs["x"], array, strict=True)


def test_floats_have_enough_digits_and_specials_their_words():
    array = np.float32([0.1, np.nextafter(np.float32(0.1), np.float32(1)), np.nan, np.inf, -np.inf])
    text = json.dumps(messages.write_inputs({"x": array}, "columns"))
    assert '"x": [0.10000000149011612, 0.10000000894069672, NaN, Infinity, -Infinity]' in text
    read = messages.read_inputs(json.loads(text), _signature(x="float32"))[0]["x"]
    assert read.tobytes() == array.tobytes()
    short = messages.read_outputs({"outputs": [0.1, 1e-45]}, _specs(y="float32"))["y"]  # the server's shortest digits
    assert short.tobytes() == np.float32([0.1, 1e-45]).tobytes()


def test_bytes_are_base64_and_text_is_text():
    strings = np.array([[b"\xff\x00", "grün"]], dtype=object)
    message = messages.write_inputs({"x": strings}, "columns")
    assert message == {"inputs": {"x": [[{"b64": "/wA="}, "grün"]]}}
    read = messages.read_inputs({"inputs": [[{"b64": "/wA="}, "grün"]]}, _signature(x="string"))[0]["x"]
    assert read.tolist() == [[b"\xff\x00", "grün".encode()]]
    assert messages.read_inputs({"inputs": {"b64": "YQ=="}}, _signature(x="string"))[0]["x"][()] == b"a"


def test_an_empty_tensor_keeps_the_shape_that_the_signature_knows():
    spec = {"y": TensorSpec("y", "float32", ("batch", 10))}
    assert messages.read_outputs({"outputs": []}, spec)["y"].shape == (0, 10)
    with pytest.raises(InputError, match=r"\(0, 3\): nested lists lose"):
        messages.write_inputs({"x": np.zeros((0, 3), np.float32)}, "columns")
    assert messages.write_inputs({"x": np.zeros((2, 0), np.float32)}, "columns") == {"inputs": {"x": [[], []]}}


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        ([1.5], "int64", "1.5 is no int64"),
        ([True], "int32", "True is no int32"),
        ([1], "bool", "1 is no bool"),
        (["1"], "float32", "'1' is no float32"),
        ([300], "uint8", "300"),
        ([1e39], "float32", "overflow"),
        ([[1], [2, 3]], "int64", "different lengths"),
        ([1, [2]], "int64", "different"),
        ([None], "float64", "None"),
        ([1], "string", "neither a string"),
        ([{"b64": "*"}], "string", "cannot be read"),
        ([1], "float16", "carries no float16"),
    ],
)
def test_what_would_change_on_the_way_is_an_error(value, dtype, said):
    with pytest.raises(InputError, match=said):
        messages.read_inputs({"inputs": {"x": value}}, _signature(x=dtype))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ([], "a request is a JSON object"),
        ({}, "a request is a JSON object"),
        ({"inputs": 1, "instances": [1]}, "a request is a JSON object"),
        ({"inputs": {"x": 1}}, r"the inputs are \['x', 'y'\], got \['x'\]"),
        ({"inputs": 1}, "without names"),
        ({"instances": 1}, "rows are a list"),
        ({"instances": [{"x": 1}, {"y": 2}]}, "without names"),
    ],
)
def test_a_request_without_its_inputs_is_an_error(message, said):
    with pytest.raises(InputError, match=said):
        messages.read_inputs(message, _signature(x="int64", y="int64"))


def test_rows_need_one_first_axis():
    with pytest.raises(InputError, match="layout='columns'"):
        messages.write_inputs({"x": np.zeros(2), "y": np.zeros(3)}, "rows")
    with pytest.raises(InputError, match="layout='columns'"):
        messages.write_inputs({"x": np.float32(1)}, "rows")
    with pytest.raises(InputError, match="float16, which the REST protocol cannot carry"):
        messages.write_inputs({"x": np.zeros(2, np.float16)}, "columns")


def test_an_answer_by_rows_and_by_columns_is_the_documented_one():
    one = {"y": np.int64([[1], [2]])}
    assert messages.write_outputs(one, "columns") == {"outputs": [[1], [2]]}
    assert messages.write_outputs(one, "rows") == {"predictions": [[1], [2]]}
    two = one | {"z": np.array([True, False])}
    assert messages.write_outputs(two, "columns") == {"outputs": {"y": [[1], [2]], "z": [True, False]}}
    assert messages.write_outputs(two, "rows") == {"predictions": [{"y": [1], "z": True}, {"y": [2], "z": False}]}


def test_metadata_of_the_documented_form_are_read():
    dims = [{"size": "-1", "name": ""}, {"size": "3", "name": ""}]
    info = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": dims, "unknown_rank": False}, "name": "x:0"}
    unknown = {"dtype": "DT_INT64", "tensor_shape": {"dim": [], "unknown_rank": True}, "name": "y:0"}
    found = {"serving_default": {"inputs": {"x": info}, "outputs": {"y": unknown}, "method_name": ""}}
    answer = {"model_spec": {}, "metadata": {"signature_def": {"signature_def": found}}}
    signature = messages.read_metadata(answer, "serving_default")
    assert signature.inputs == (TensorSpec("x", "float32", (None, 3)),)
    assert signature.outputs == (TensorSpec("y", "int64", None),)
    written = messages.write_metadata(signature, "m", "s")
    assert messages.read_metadata(written, "s") == signature
    with pytest.raises(InputError, match="no signature 'z'; there are s"):
        messages.read_metadata(written, "z")
