"""Tensors that the bare calls pass on wrong, or die of: each is resolved, copied or refused with words that help."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import ml_dtypes
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
import torch

from interop import ConversionError, CopyRequiredError, convert, explain, framework_of
from interop.frameworks import describe
from tests.interop.tensor_matrix import address_of, bytes_of

OTHERS = ("tensorflow", "numpy", "onnxruntime", "jax")


def check_refused(x: Any, to: str, words: str) -> None:
    for copy in (None, True, False):
        explained = explain(x, to, copy=copy)
        assert explained.outcome == "refuse"
        with pytest.raises(ConversionError, match=words) as caught:
            convert(x, to, copy=copy)
        assert type(caught.value) is explained.error
        assert str(caught.value) == str(explained)


def fake_tensor() -> torch.Tensor:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3, 4)


ODD_TORCH = {
    "fake": (fake_tensor, "real tensor"),
    "zero": (lambda: torch._efficientzerotensor((3, 4)), "no memory of its own"),
    "meta": (lambda: torch.ones(3, device="meta"), "real tensor"),
    "coo": (lambda: torch.eye(3).to_sparse(), "to_dense"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "to_dense"),
    "mkldnn": (lambda: torch.ones(3).to_mkldnn(), "to_dense"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "dequantize"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
    "jagged": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "jagged"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD_TORCH)
@pytest.mark.parametrize("to", [*OTHERS, "torch"])
def test_convert_refuses_torch_tensor_without_dense_memory(name: str, to: str) -> None:
    make, words = ODD_TORCH[name]
    check_refused(make(), to, words)


@pytest.mark.parametrize("to", OTHERS)
@pytest.mark.parametrize("dtype", [torch.bits8, torch.uint3, torch.int4, torch.float4_e2m1fn_x2])
def test_convert_refuses_torch_placeholder_dtype(dtype: torch.dtype, to: str) -> None:
    x = torch.ones(4, dtype=torch.uint8).view(dtype)
    check_refused(x, to, f"has no {dtype}")
    assert convert(x, "torch") is x


@pytest.mark.parametrize("to", OTHERS)
def test_convert_refuses_inside_torch_func(to: str) -> None:
    seen = []

    def body(x: torch.Tensor) -> torch.Tensor:
        seen.append(explain(x, to).outcome)
        with pytest.raises(ConversionError, match=r"torch\.func"):
            convert(x, to)
        return x.sum()

    convert(torch.ones(3), to)  # the shortcut is in place
    torch.vmap(body)(torch.ones(2, 3))
    torch.func.grad(body)(torch.ones(3))
    assert seen == ["refuse", "refuse"]


@pytest.mark.parametrize("to", OTHERS)
def test_convert_resolves_negation_of_scalar(to: str) -> None:
    x = torch.tensor(1 + 2j, dtype=torch.complex64).conj().imag
    assert x.is_neg() and x.is_contiguous()
    for _ in range(2):
        assert np.frombuffer(bytes_of(convert(x, to)), np.float32).item() == -2.0
    assert explain(x, to).outcome == "copy"
    with pytest.raises(CopyRequiredError, match="negation"):
        convert(x, to, copy=False)


@pytest.mark.parametrize("to", ["tensorflow", "numpy", "jax"])
def test_convert_resolves_conjugation(to: str) -> None:
    x = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj()
    for _ in range(2):
        assert np.frombuffer(bytes_of(convert(x, to)), np.complex64).tolist() == [1 - 2j, 3 + 4j]
    with pytest.raises(CopyRequiredError, match="conjugation"):
        convert(x, to, copy=False)


@pytest.mark.parametrize("to", OTHERS)
def test_convert_detaches_parameters(to: str) -> None:
    parameter = torch.nn.Parameter(torch.arange(16.0))
    result = convert(parameter, to, copy=False)
    assert address_of(result) == parameter.data_ptr()
    assert parameter.requires_grad and convert(parameter, "torch") is parameter


def test_convert_takes_the_primal_of_a_dual() -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.tensor([1.0, 2.0]), torch.ones(2))
        assert convert(dual, "numpy").tolist() == [1.0, 2.0]


def test_convert_copies_to_a_differentiable_clone_within_torch() -> None:
    x = torch.ones(3, requires_grad=True)
    copied = convert(x, "torch", copy=True)
    copied.sum().backward()
    assert copied.data_ptr() != x.data_ptr() and x.grad is not None and x.grad.tolist() == [1.0, 1.0, 1.0]


def test_convert_takes_tensor_subclass_with_memory() -> None:
    class Mine(torch.Tensor):
        pass

    x = torch.ones(3).as_subclass(Mine)
    assert address_of(convert(x, "numpy")) == x.data_ptr()


@pytest.mark.parametrize("to", ["numpy", "torch", "tensorflow", "onnxruntime", "jax"])
def test_convert_refuses_masked_array(to: str) -> None:
    check_refused(np.ma.masked_array([1.0, 2.0], [True, False]), to, "filled")


@pytest.mark.parametrize("to", ["torch", "tensorflow", "onnxruntime", "jax"])
@pytest.mark.parametrize(
    "array",
    [
        np.array([1, None], object),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.zeros(2, [("a", "f4"), ("b", "i4")]),
        np.ones(2, np.longdouble),
        np.zeros(2, "V4"),
    ],
    ids=["object", "datetime", "struct", "longdouble", "void"],
)
def test_convert_refuses_numpy_dtype_that_others_lack(array: Any, to: str) -> None:
    check_refused(array, to, "has no")


@pytest.mark.parametrize("to", ["torch", "tensorflow", "onnxruntime", "numpy"])
def test_convert_big_endian(to: str) -> None:
    array = np.arange(5, dtype=">f8")
    assert describe(array).dtype == "float64"
    if to == "numpy":
        assert convert(array, to) is array
        return
    for _ in range(2):
        assert np.frombuffer(bytes_of(convert(array, to)), np.float64).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(CopyRequiredError, match="byte order"):
        convert(array, to, copy=False)


@pytest.mark.parametrize("to", ["torch", "tensorflow", "onnxruntime"])
def test_convert_field_of_records(to: str) -> None:
    records = np.zeros(4, [("a", "i1"), ("b", "f4")])
    records["b"] = [1, 2, 3, 4]
    field = records["b"]
    assert field.strides == (5,)
    assert np.frombuffer(bytes_of(convert(field, to)), np.float32).tolist() == [1, 2, 3, 4]
    with pytest.raises(CopyRequiredError):
        convert(field, to, copy=False)


@pytest.mark.parametrize("to", ["torch", "tensorflow", "onnxruntime", "numpy"])
def test_convert_shares_single_elements_of_any_stride(to: str) -> None:
    records = np.zeros(2, [("a", "i1"), ("b", "f4")])
    records["b"] = 7
    rows = np.arange(32, dtype=np.float32).reshape(2, 16)
    for array in (records[:1]["b"], rows[:1][::-1], rows[:, None][:1, ::-1], rows[:, :1][:1, ::-1], rows[:0, ::-1]):
        aligned = array.size == 0 or array.ctypes.data % 64 == 0
        assert explain(array, to).outcome == ("view" if aligned or to != "tensorflow" else "copy")
        for _ in range(2):
            result = convert(array, to)
            assert bytes_of(result) == np.ascontiguousarray(array).tobytes()
            if array.size and to != "tensorflow":
                assert address_of(result) == array.ctypes.data


@pytest.mark.parametrize("to", ["torch", "tensorflow", "onnxruntime"])
def test_convert_never_aliases_readonly_memory(to: str) -> None:
    array = np.zeros(64, np.float32)
    array.flags.writeable = False
    result = convert(array, to)
    assert address_of(result) != array.ctypes.data
    if to == "torch":
        result.fill_(9)
    if to == "onnxruntime":
        result.update_inplace(np.full(64, 9, np.float32))
    assert array.sum() == 0
    with pytest.raises(CopyRequiredError, match="read-only"):
        convert(array, to, copy=False)
    assert convert(array, "numpy") is array


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("shape", [(4,), ()])
def test_convert_numpy_view_of_immutable_tensor_is_readonly(dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.ones(shape).astype(dtype)
    for tensor in (tf.constant(array), jnp.asarray(array)):
        for _ in range(2):
            view = convert(tensor, "numpy")
            assert not view.flags.writeable
            assert address_of(view) == address_of(tensor)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_convert_numpy_view_of_mutable_tensor_is_writable(dtype: str) -> None:
    x = torch.zeros(4).to(getattr(torch, dtype))
    convert(x, "numpy")[0] = 1
    assert x.float().tolist() == [1, 0, 0, 0]
    value = onnxruntime.OrtValue.from_dlpack(x)
    convert(value, "numpy")[1] = 1
    assert x.float().tolist() == [1, 1, 0, 0]


def test_convert_keeps_readonly_of_array_behind_ortvalue() -> None:
    array = np.ones(64, np.float32)
    array.flags.writeable = False
    value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
    assert not convert(value, "numpy").flags.writeable
    convert(value, "torch").fill_(9)
    assert array.sum() == 64
    with pytest.raises(CopyRequiredError, match="read-only"):
        convert(value, "torch", copy=False)


@pytest.mark.parametrize("to", ["torch", "onnxruntime"])
def test_convert_does_not_poison_scalar_constants(to: str) -> None:
    convert(tf.ones(3), to)  # the shortcut is in place
    result = convert(tf.constant(31.0), to)
    if to == "torch":
        result.fill_(99)
    else:
        result.update_inplace(np.array(99, np.float32))
    assert tf.constant(31.0).numpy() == 31.0
    assert "cached" in explain(tf.constant(31.0), to).reason


@pytest.mark.parametrize("make", [tf.Variable, keras.Variable], ids=["tf", "keras"])
@pytest.mark.parametrize("to", ["torch", "numpy", "onnxruntime", "jax"])
def test_convert_copies_variable(make: Any, to: str) -> None:
    variable = make(np.arange(16, dtype=np.float32))
    result = convert(variable, to)
    variable.assign(np.zeros(16, np.float32))
    assert np.frombuffer(bytes_of(result), np.float32).tolist() == list(range(16))
    assert explain(variable, to).outcome == "copy"
    with pytest.raises(CopyRequiredError, match="variable"):
        convert(variable, to, copy=False)


def test_convert_write_into_converted_variable_stays_outside() -> None:
    variable = tf.Variable([1.0, 2.0])
    convert(variable, "torch").fill_(9)
    assert variable.numpy().tolist() == [1, 2]


@pytest.mark.parametrize("make", [tf.Variable, keras.Variable], ids=["tf", "keras"])
def test_convert_reads_variable_within_tensorflow(make: Any) -> None:
    variable = make(np.arange(4, dtype=np.float32))
    tensor = convert(variable, "tensorflow")
    variable.assign(np.zeros(4, np.float32))
    assert isinstance(tensor, tf.Tensor) and tensor.numpy().tolist() == [0, 1, 2, 3]


ODD_TENSORFLOW = {
    "ragged": (lambda: tf.ragged.constant([[1.0], [1.0, 2.0]]), "ragged"),
    "sparse": (lambda: tf.sparse.eye(2), "to_dense"),
    "slices": (lambda: tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])), "convert_to_tensor"),
    "keras": (lambda: keras.Input((3,)), "symbolic"),
}


@pytest.mark.parametrize("name", ODD_TENSORFLOW)
@pytest.mark.parametrize("to", ["torch", "numpy", "onnxruntime", "tensorflow"])
def test_convert_refuses_tensorflow_value_that_is_not_dense(name: str, to: str) -> None:
    make, words = ODD_TENSORFLOW[name]
    check_refused(make(), to, words)


@pytest.mark.parametrize("to", ["torch", "numpy", "onnxruntime"])
def test_convert_refuses_symbolic_tensor(to: str) -> None:
    outcomes = []

    @tf.function
    def traced(x: Any) -> Any:
        outcomes.append(explain(x, to).outcome)
        with pytest.raises(ConversionError, match="symbolic"):
            convert(x, to)
        return x

    convert(tf.ones(3), to)
    traced(tf.ones(3))
    assert outcomes == ["refuse"]


@pytest.mark.parametrize("to", ["torch", "numpy", "onnxruntime"])
def test_convert_refuses_tensorflow_quantized(to: str) -> None:
    check_refused(tf.cast([1.0], tf.quint8), to, "quint8")


@pytest.mark.parametrize("shape", [(2,), (2, 2), (0,), ()])
def test_convert_strings_between_numpy_and_tensorflow(shape: tuple[int, ...]) -> None:
    words = np.array(["a", "é", "long enough word", ""], object)[: int(np.prod(shape))].reshape(shape)
    tensor = convert(words, "tensorflow")
    assert tensor.dtype == tf.string and tensor.shape == shape
    assert [item.decode() for item in tensor.numpy().ravel()] == words.ravel().tolist() if shape else True
    back = convert(tensor, "numpy")
    assert back.dtype == object and back.shape == shape
    assert [item.decode() for item in back.ravel()] == words.ravel().tolist()
    assert describe(tensor).dtype == describe(words).dtype == "string"


@pytest.mark.parametrize(
    "array", [np.array(["a", "é"]), np.array([b"a", b"b"]), np.array(["a"], np.dtypes.StringDType())]
)
def test_convert_numpy_string_dtypes_to_tensorflow(array: Any) -> None:
    expected = [item.encode() if isinstance(item, str) else item for item in array.tolist()]
    assert convert(array, "tensorflow").numpy().tolist() == expected
    with pytest.raises(CopyRequiredError):
        convert(array, "tensorflow", copy=False)


@pytest.mark.parametrize("to", ["torch", "onnxruntime", "jax"])
def test_convert_refuses_strings_elsewhere(to: str) -> None:
    for strings in (tf.constant(["a"]), tf.constant("a"), np.array(["a"]), np.array(["a"], object)):
        check_refused(strings, to, "string")


def test_convert_clones_strings_within_tensorflow() -> None:
    assert convert(tf.constant(["a", "b"]), "tensorflow", copy=True).numpy().tolist() == [b"a", b"b"]


@pytest.mark.parametrize("to", ["torch", "tensorflow", "onnxruntime", "numpy"])
def test_convert_numpy_scalar(to: str) -> None:
    scalar = np.float32(2.5)
    result = convert(scalar, to)
    assert np.frombuffer(bytes_of(result), np.float32).tolist() == [2.5] and framework_of(result) == to
    with pytest.raises(CopyRequiredError, match="scalar"):
        convert(scalar, to, copy=False)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_convert_never_narrows_into_jax(dtype: str) -> None:
    array = np.ones(3, dtype)
    check_refused(array, "jax", "jax_enable_x64")
    with jax.enable_x64(True):
        result = convert(array, "jax")
        assert result.dtype == dtype and result.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["float32", "bool", "bfloat16", "float8_e5m2", "int4"])
@pytest.mark.parametrize("to", ["torch", "tensorflow", "numpy", "onnxruntime"])
def test_convert_jax_round_trip(dtype: str, to: str) -> None:
    x = jnp.array([[0, 1, 2], [1, 0, 1]]).astype(dtype)
    if (dtype, to) == ("int4", "torch"):
        return check_refused(x, to, "int4")
    explained = explain(x, to)
    result = convert(x, to)
    assert (address_of(result) == address_of(x)) is (explained.outcome == "view")
    back = convert(result, "jax")
    assert back.dtype == x.dtype and np.asarray(back == x).all()
    assert address_of(convert(x, to, copy=True)) != address_of(x)
    return None


@pytest.mark.parametrize("to", ["torch", "numpy", "onnxruntime", "tensorflow"])
def test_convert_refuses_jax_tracer_and_keys(to: str) -> None:
    def body(x: Any) -> Any:
        check_refused(x, to, "tracer")
        return x

    jax.jit(body)(jnp.ones(3))
    check_refused(jax.random.key(0), to, "key_data")
    gone = jnp.ones(3) + 1
    gone.delete()
    check_refused(gone, to, "deleted")


def test_convert_refuses_ortvalue_that_is_no_tensor() -> None:
    from onnx import TensorProto, helper

    node = helper.make_node("SequenceConstruct", ["x"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    value = session.run_with_ort_values(["y"], {"x": onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))})[
        0
    ]
    for to in ("torch", "numpy", "tensorflow"):
        check_refused(value, to, "sequence")


def test_convert_reads_strings_of_ortvalue() -> None:
    from onnx import TensorProto, helper

    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    value = session.run_with_ort_values(["y"], {"x": onnxruntime.OrtValue.ortvalue_from_numpy(np.array([7, 12]))})[0]
    assert convert(value, "numpy").tolist() == ["7", "12"]
    assert convert(value, "tensorflow").numpy().tolist() == [b"7", b"12"]
    check_refused(value, "torch", "string")
    with pytest.raises(CopyRequiredError):
        convert(value, "numpy", copy=False)


def test_convert_of_row_of_matrix_is_aligned_for_tensorflow() -> None:
    matrix = torch.arange(60.0).reshape(4, 15)
    rows = [convert(row, "tensorflow") for row in matrix]
    assert [explain(row, "tensorflow").outcome for row in matrix] == ["view", "copy", "copy", "copy"]
    assert np.array_equal(tf.stack([row + 0 for row in rows]), matrix)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is present")
@pytest.mark.parametrize("to", ["numpy", "onnxruntime", "tensorflow", "jax"])
def test_convert_cuda_tensor(to: str) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.arange(1 << 20, device="cuda", dtype=torch.float32) * 2
        explained = explain(x, to)
        result = convert(x, to)
    if explained.outcome == "view":
        assert convert(result, "torch").data_ptr() == x.data_ptr()
    assert torch.equal(convert(result, "torch").cpu(), x.cpu())
