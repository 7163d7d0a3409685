"""TensorFlow Serving's messages: TensorFlow itself reads and writes the tensors, the rest is read by its wire format."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from interop import ConversionError
from interop.dtypes import dtype_of
from interop.integrations import _serving_messages as messages
from tests.wire import fields, text, the

DTYPES = list(messages._DTYPES)
LISTED = [name for name in DTYPES if name != "string"]


def _array(name, shape=(2, 3)):
    if name == "string":
        return np.array([[b"a", b"", "größe".encode()], [b"\xff", b"b", b"c"]], dtype=object)
    values = np.random.default_rng(0).integers(0, 7, shape)
    return (values / 2 * (1 + 2j) if "complex" in name else values).astype(dtype_of(name).numpy)


@pytest.mark.parametrize("name", DTYPES)
def test_tensorflow_s_kernel_reads_a_tensor(name):
    array = _array(name)
    message = messages.tensor_of(array)
    assert message.dtype == tf.dtypes.as_dtype(name).as_datatype_enum
    parsed = tf.io.parse_tensor(message.SerializeToString(), tf.dtypes.as_dtype(name))
    np.testing.assert_array_equal(parsed.numpy(), array)
    assert parsed.shape == array.shape


@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_that_tensorflow_wrote_is_read(name):
    array = _array(name)
    written = [tf.make_tensor_proto(array).SerializeToString()]
    if "float8" not in name and "int4" not in name:  # TensorFlow has no kernel that writes those
        written.append(tf.io.serialize_tensor(tf.constant(array)).numpy())
    for data in written:
        got = messages.read_tensor(messages.TensorProto.FromString(data))
        np.testing.assert_array_equal(got, array, strict=True)


@pytest.mark.parametrize("name", LISTED)
def test_elements_in_a_typed_list_are_read_as_tensorflow_reads_them(name):
    flat = _array(name).reshape(-1)
    field = messages._DTYPES[name][1]
    if field == "float8_val":
        values = flat.tobytes()
    elif field == "half_val":
        values = flat.view(np.uint16).tolist()
    elif "complex" in field:
        values = flat.view(flat.real.dtype).tolist()
    else:
        values = flat.tolist()
    theirs = tf.make_tensor_proto(_array(name))
    theirs.tensor_content = b""
    if field == "float8_val":
        theirs.float8_val = values
    else:
        del getattr(theirs, field)[:]
        getattr(theirs, field).extend(values)
    expected = tf.io.parse_tensor(theirs.SerializeToString(), tf.dtypes.as_dtype(name)).numpy()
    np.testing.assert_array_equal(expected, _array(name), strict=True)  # the witness says what was meant
    got = messages.read_tensor(messages.TensorProto.FromString(theirs.SerializeToString()))
    np.testing.assert_array_equal(got, expected, strict=True)


def test_the_last_listed_element_fills_the_rest():
    theirs = tensor_pb2.TensorProto(dtype=1, float_val=[1.0, 2.5])
    theirs.tensor_shape.dim.add(size=4)
    got = messages.read_tensor(messages.TensorProto.FromString(theirs.SerializeToString()))
    np.testing.assert_array_equal(got, tf.make_ndarray(theirs), strict=True)
    assert got.tolist() == [1.0, 2.5, 2.5, 2.5]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
def test_scalars_and_empty_tensors_keep_their_shape(shape):
    array = np.ones(shape, np.float16)
    message = messages.tensor_of(array)
    theirs = tensor_pb2.TensorProto.FromString(message.SerializeToString())
    assert theirs.HasField("tensor_shape") and not theirs.tensor_shape.unknown_rank
    np.testing.assert_array_equal(tf.make_ndarray(theirs), array, strict=True)
    np.testing.assert_array_equal(messages.read_tensor(message), array, strict=True)


def test_big_endian_and_strided_arrays_are_written_little_endian_and_dense():
    array = np.arange(6, dtype=">i4").reshape(2, 3)[:, ::-1]
    assert (
        tf.io.parse_tensor(messages.tensor_of(array).SerializeToString(), tf.int32).numpy().tolist() == array.tolist()
    )


def test_a_request_has_the_public_field_numbers():
    request = messages.request_of("m", {"x": np.float32([1, 2])}, signature="embed", version=7)
    found = fields(request.SerializeToString())
    assert set(found) == {1, 2}
    spec = fields(the(found, 1))
    assert (text(spec, 1), text(spec, 3)) == ("m", "embed")
    assert fields(the(spec, 2)) == {1: [7]}  # google.protobuf.Int64Value
    entry = fields(the(found, 2))
    assert text(entry, 1) == "x"
    assert tf.make_ndarray(tensor_pb2.TensorProto.FromString(the(entry, 2))).tolist() == [1, 2]
    assert messages.request_of("m", {}).model_spec.HasField("version") is False


def test_a_response_is_read_by_the_public_field_numbers():
    tensor = tf.make_tensor_proto(np.int64([5, 6])).SerializeToString()
    entry = b"\x0a\x01y\x12" + bytes([len(tensor)]) + tensor  # key: 1, value: 2
    spec = b"\x0a\x01m"
    response = b"\x0a" + bytes([len(entry)]) + entry + b"\x12" + bytes([len(spec)]) + spec  # outputs: 1, model_spec: 2
    read = messages.PredictResponse.FromString(response)
    assert read.model_spec.name == "m"
    assert messages.read_tensor(read.outputs["y"]).tolist() == [5, 6]


def test_a_version_and_a_label_exclude_each_other():
    spec = messages.ModelSpec(version_label="stable")
    assert fields(spec.SerializeToString()) == {4: [b"stable"]}
    spec.version.value = 3
    assert spec.version_label == "" and spec.WhichOneof("version_choice") == "version"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"dtype": 20}, "type number 20"),
        ({"tensor_content": b"123"}, "3 raw bytes"),
        ({"tensor_content": b"1234"}, r"shape \[2\] and holds 1 elements"),
        ({"float_val": [1, 2, 3]}, r"shape \[2\] and holds 3 elements"),
        ({}, r"shape \[2\] and holds 0 elements"),
    ],
)
def test_a_damaged_tensor_is_an_error(damage, said):
    message = messages.TensorProto(dtype=1)
    message.tensor_shape.dim.add(size=2)
    message.MergeFrom(messages.TensorProto(**damage))
    with pytest.raises(ConversionError, match=said):
        messages.read_tensor(message)


def test_a_shape_is_not_believed_before_the_data():
    message = messages.TensorProto(dtype=1, float_val=[1.0])
    message.tensor_shape.dim.add(size=-1)
    with pytest.raises(ConversionError, match="-1"):
        messages.read_tensor(message)


def test_a_dtype_that_the_protocol_lacks_is_an_error_with_those_that_it_has():
    with pytest.raises(ConversionError, match="no float8_e8m0fnu; it takes float32, float64"):
        messages.tensor_of(np.zeros(2, dtype_of("float8_e8m0fnu").numpy))


def test_the_generated_code_agrees_and_lives_in_the_same_process():
    apis = pytest.importorskip("tensorflow_serving.apis", reason="pip install --no-deps tensorflow-serving-api")
    from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

    assert apis is not None
    theirs = (
        model_pb2.ModelSpec,
        predict_pb2.PredictRequest,
        predict_pb2.PredictResponse,
        prediction_log_pb2.PredictionLog,
    )
    mine = (messages.ModelSpec, messages.PredictRequest, messages.PredictResponse, messages.PredictionLog)
    for own, other in zip(mine, theirs):
        assert own.DESCRIPTOR.full_name == other.DESCRIPTOR.full_name
        for field in own.DESCRIPTOR.fields:
            known = other.DESCRIPTOR.fields_by_name[field.name]
            assert (field.number, field.type, field.is_repeated) == (known.number, known.type, known.is_repeated)
    request = messages.request_of("m", {"x": _array("float32")}, version=2)
    read = predict_pb2.PredictRequest.FromString(request.SerializeToString())
    assert read.model_spec.version.value == 2
    np.testing.assert_array_equal(tf.make_ndarray(read.inputs["x"]), _array("float32"))
