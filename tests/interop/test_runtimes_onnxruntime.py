"""ONNX models in ONNX Runtime: values, frameworks, memory, threads, and every kind of bad file."""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import threading
import time
import warnings

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper

import interop
from interop.errors import InputError, ModelFileError
from tests.interop.runtime_models import (
    Nested,
    Pair,
    identity_onnx,
    info,
    make_onnx,
    nested_inputs,
    nested_onnx,
    nested_signature,
    saved,
)


@pytest.fixture
def nested(tmp_path):
    return interop.load(saved(nested_onnx(nested_signature()), tmp_path))


def address(array) -> int:
    return array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data


# --- values and frameworks


def test_call_gives_the_nesting_and_values_of_the_torch_module(nested):
    x, batch = nested_inputs()
    expected, given = Nested()(x, batch), nested(x, batch)
    assert given.keys() == expected.keys() and isinstance(given["parts"], tuple)
    torch.testing.assert_close(given["total"], expected["total"], rtol=0, atol=0)
    torch.testing.assert_close(given["parts"], expected["parts"], rtol=0, atol=0)


def test_call_takes_positional_arguments_by_keyword(nested):
    x, batch = nested_inputs()
    torch.testing.assert_close(nested(x=x, batch=batch)["total"], nested(x, batch)["total"])


def test_call_builds_a_loaded_class_and_a_dict_for_an_unknown_one():
    x, batch = nested_inputs()
    known = interop.load(nested_onnx(nested_signature(f"{Pair.__module__}:Pair")))(x, batch)
    assert isinstance(known, Pair) and isinstance(known.parts, tuple)
    unknown = interop.load(nested_onnx(nested_signature("not_loaded_anywhere:Pair")))(x, batch)
    assert isinstance(unknown, dict) and list(unknown) == ["total", "parts"]


def test_a_class_name_in_a_file_imports_and_calls_nothing(tmp_path, monkeypatch):
    (tmp_path / "hostile_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    x, batch = nested_inputs()
    for name in (
        "hostile_module:Pair",
        "os:system",
        "builtins:exec",
        "subprocess:Popen",
        ":",
        "builtins:dict.fromkeys",
    ):
        result = interop.load(nested_onnx(nested_signature(name)))(x, batch)
        assert list(result) == ["total", "parts"]


@pytest.mark.parametrize("framework", ["torch", "numpy", "tensorflow"])
def test_outputs_come_back_in_the_framework_of_the_inputs(nested, framework):
    x, batch = nested_inputs()
    inputs = {"x": interop.convert(x, framework), "batch_k": interop.convert(batch["k"], framework)}
    outputs = nested.run(inputs)
    assert list(outputs) == ["total", "p0", "p1"]
    assert {interop.framework_of(value) for value in outputs.values()} == {framework}
    np.testing.assert_array_equal(np.asarray(outputs["total"]), (x * 2 + batch["k"]).numpy())


def test_mixed_frameworks_answer_in_that_of_the_first_input(nested):
    x, batch = nested_inputs()
    outputs = nested.run({"batch_k": batch["k"], "x": x.numpy()})
    assert isinstance(outputs["total"], np.ndarray)


def test_a_model_without_inputs_answers_in_numpy():
    model = make_onnx(
        [helper.make_node("Constant", [], ["y"], value=helper.make_tensor("v", TensorProto.INT64, [2], [3, 4]))],
        [],
        [info("y", TensorProto.INT64, [2])],
    )
    result = interop.load(model)()
    assert isinstance(result, np.ndarray) and result.tolist() == [3, 4]


def test_proto_bytes_path_and_ir_model_give_the_same(tmp_path):
    x, batch = nested_inputs()
    proto = nested_onnx()
    before = proto.SerializeToString()
    models = [proto, saved(proto, tmp_path), str(tmp_path / "m.onnx"), ir.serde.deserialize_model(proto)]
    for model in models:
        total, first, second = interop.load(model)(x, batch["k"])
        assert torch.equal(total, x * 2 + batch["k"]) and torch.equal(first, x - batch["k"])
        assert torch.equal(second, batch["k"] + 1)
    assert proto.SerializeToString() == before


def test_an_ir_model_with_external_tensors_runs_and_stays_as_it_was(tmp_path):
    weight = np.arange(300_000, dtype=np.float32).reshape(1, -1)
    path = _external_model(tmp_path, "w.bin", weight)
    model = ir.load(path)
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)
    x = torch.ones(2, weight.shape[1])
    torch.testing.assert_close(interop.load(model)(x), x + torch.from_numpy(weight))
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"],
)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_every_numpy_dtype_and_rank_passes_bit_for_bit(dtype, shape):
    onnx_type = interop.dtypes.dtype_of(dtype).onnx
    runtime = interop.load(identity_onnx(onnx_type, [f"d{axis}" for axis in range(len(shape))]))
    x = (torch.arange(int(np.prod(shape))).reshape(shape) % 2).to(getattr(torch, dtype))
    y = runtime(x)
    assert y.dtype == x.dtype and y.shape == x.shape and torch.equal(y, x)
    assert runtime(x.numpy()).dtype == x.numpy().dtype and runtime(x.numpy()).shape == shape


def test_bfloat16_crosses_in_both_directions():
    cast = make_onnx(
        [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), helper.make_node("Cast", ["f"], ["y"], to=16)],
        [info("x", TensorProto.BFLOAT16, ["n"])],
        [info("y", TensorProto.BFLOAT16, ["n"]), info("f", TensorProto.FLOAT, ["n"])],
    )
    runtime = interop.load(cast)
    x = torch.tensor([1.5, -2.25, float("inf"), 3e38], dtype=torch.bfloat16)
    y, f = runtime(x)
    assert y.dtype == torch.bfloat16 and torch.equal(y, x) and torch.equal(f, x.float())
    array = x.float().numpy().astype(ml_dtypes.bfloat16)
    assert runtime(array)[0].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    "odd", ["transposed", "strided", "negative", "conj", "neg bit", "grad", "expanded", "parameter"]
)
def test_odd_torch_and_numpy_layouts_give_right_values(odd):
    runtime = interop.load(identity_onnx(TensorProto.FLOAT, ("a", "b"), "Neg"))
    base = torch.arange(12.0).reshape(3, 4)
    x = {
        "transposed": base.T,
        "strided": base[::2, ::3],
        "negative": base.numpy()[::-1],
        "conj": torch.view_as_real(torch.complex(base, base).conj().resolve_conj())[..., 1],
        "neg bit": torch.complex(base, base).conj().imag,
        "grad": base.clone().requires_grad_(),
        "expanded": base[:1].expand(3, 4),
        "parameter": torch.nn.Parameter(base),
    }[odd]
    expected = -(x.detach().clone().numpy() if isinstance(x, torch.Tensor) else x)
    np.testing.assert_array_equal(np.asarray(runtime(x)), expected)


def test_foreign_byte_order_is_not_read_as_native():
    runtime = interop.load(identity_onnx(TensorProto.FLOAT, ("n",), "Neg"))
    assert runtime(np.array([1, 2], ">f4")).tolist() == [-1, -2]


def test_read_only_arrays_are_inputs_like_others():
    runtime = interop.load(identity_onnx(TensorProto.FLOAT, ("n",), "Neg"))
    x = np.ones(3, np.float32)
    x.setflags(write=False)
    assert runtime(x).tolist() == [-1, -1, -1]


def test_strings_and_sequences_go_as_onnx_runtime_has_them():
    model = make_onnx(
        [helper.make_node("Identity", ["t"], ["u"]), helper.make_node("SequenceConstruct", ["x", "x"], ["s"])],
        [info("t", TensorProto.STRING, ["n"]), info("x", TensorProto.FLOAT, [2])],
        [info("u", TensorProto.STRING, ["n"]), helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
    )
    runtime = interop.load(model)
    for text in (["a", "bb"], np.array(["a", "bb"]), np.array(["a", "bb"], dtype=object)):
        outputs = runtime.run({"t": text, "x": torch.ones(2)})
        assert outputs["u"].tolist() == ["a", "bb"]
        assert [type(item) for item in outputs["s"]] == [type(outputs["s"][0])] * 2
    back = make_onnx(
        [helper.make_node("SequenceLength", ["s"], ["n"])],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
        [info("n", TensorProto.INT64, [])],
    )
    assert int(interop.load(back).run({"s": [torch.ones(2), torch.ones(1), np.ones(3, np.float32)]})["n"]) == 3


# --- memory


def test_torch_outputs_are_onnx_runtimes_own_buffer(nested):
    x, batch = nested_inputs()
    nested.run({"x": x, "batch_k": batch["k"]})
    bound, produced = nested._local.ways[0], []
    give = bound._give

    def spy(take):
        produced.extend(value.data_ptr() for value in bound.binding.get_outputs())
        return give(take)

    bound._give = spy
    outputs = nested.run({"x": x + 1, "batch_k": batch["k"]})
    bound._give = give
    assert [address(value) for value in outputs.values()] == produced


def test_inputs_of_the_binding_route_share_memory():
    # a graph input that is also a graph output comes back in the caller's buffer, if it was shared at all
    model = make_onnx(
        [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT)],
        [info("x", TensorProto.BFLOAT16, ["n"])],
        [info("f", TensorProto.FLOAT, ["n"]), info("x", TensorProto.BFLOAT16, ["n"])],
    )
    runtime = interop.load(model)
    x = torch.ones(64, dtype=torch.bfloat16)
    binding = runtime.session.io_binding()
    runtime._bind_inputs(binding, {"x": x})
    for name in ("f", "x"):
        binding.bind_output(name, "cpu")
    runtime.session.run_with_iobinding(binding)
    assert binding.get_outputs()[1].data_ptr() == x.data_ptr()
    given = runtime.run({"x": x})["x"]
    assert torch.equal(given, x) and given.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.BFLOAT16])
def test_a_second_run_leaves_the_outputs_of_the_first_alone(dtype):
    model = make_onnx(
        [helper.make_node("Cast", ["x"], ["y"], to=dtype)],
        [info("x", TensorProto.INT32, ["n"])],
        [info("y", dtype, ["n"])],
    )
    runtime = interop.load(model)
    first = runtime(torch.full((1000,), 1, dtype=torch.int32))
    second = runtime(torch.full((1000,), 2, dtype=torch.int32))
    third = runtime(torch.full((10,), 3, dtype=torch.int32))
    assert [set(value.tolist()) for value in (first, second, third)] == [{1.0}, {2.0}, {3.0}]


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.BFLOAT16])
def test_outputs_outlive_the_runtime(dtype):
    model = make_onnx(
        [helper.make_node("Cast", ["x"], ["y"], to=dtype)],
        [info("x", TensorProto.INT32, ["n"])],
        [info("y", dtype, ["n"])],
    )
    results = []
    for value in range(4):
        runtime = interop.load(model)
        results.append(runtime(torch.full((100_000,), value, dtype=torch.int32)))
        del runtime
    assert [set(result.tolist()) for result in results] == [{0.0}, {1.0}, {2.0}, {3.0}]


def test_out_is_written_in_place_and_returned(nested):
    x, batch = nested_inputs()
    out = {"total": torch.empty(4, 3), "p1": np.empty((4, 3), np.float32)}
    where = {name: address(value) for name, value in out.items()}
    for shift in range(3):
        outputs = nested.run({"x": x + shift, "batch_k": batch["k"]}, out=out)
        assert outputs["total"] is out["total"] and outputs["p1"] is out["p1"]
        assert where == {name: address(value) for name, value in out.items()}
        assert torch.equal(out["total"], (x + shift) * 2 + batch["k"])
        assert torch.equal(outputs["p0"], x + shift - batch["k"])
        np.testing.assert_array_equal(out["p1"], (batch["k"] + 1).numpy())


def test_out_follows_the_buffers_of_each_call(nested):
    x, batch = nested_inputs()
    inputs = {"x": x, "batch_k": batch["k"]}
    first, second = ({name: torch.zeros(4, 3) for name in ("total", "p0", "p1")} for _ in range(2))
    nested.run(inputs, out=first)
    nested.run({"x": x + 1, "batch_k": batch["k"]}, out=second)
    assert torch.equal(first["total"], x * 2 + batch["k"]) and torch.equal(second["total"], (x + 1) * 2 + batch["k"])
    first["total"] = torch.zeros(4, 3)  # the same dict, another buffer
    nested.run(inputs, out=first)
    assert torch.equal(first["total"], x * 2 + batch["k"])


@pytest.mark.parametrize(
    ("buffer", "says"),
    [
        (torch.empty(4, 3, dtype=torch.float64), "float32"),
        (torch.empty(12), "dimensions"),
        (torch.empty(3, 4).T, "in place"),
        (torch.empty(4, 3, requires_grad=True), "requires grad"),
        (np.frombuffer(bytes(48), np.float32).reshape(4, 3), "read-only"),
        ([1.0], "torch or NumPy"),
        (torch.empty(5, 3), r"out\['total'\] has shape \[5, 3\], and these inputs give \[4, 3\]"),
    ],
)
def test_out_refuses_buffers_that_cannot_hold_the_output(nested, buffer, says):
    x, batch = nested_inputs()
    with pytest.raises(InputError, match=says):
        nested.run({"x": x, "batch_k": batch["k"]}, out={"total": buffer})
    outputs = nested.run({"x": x, "batch_k": batch["k"]}, out={"total": torch.empty(4, 3)})
    assert torch.equal(outputs["total"], x * 2 + batch["k"])


def test_out_follows_a_tensor_that_moves_to_other_memory(nested):
    x, batch = nested_inputs()
    buffer, other = torch.zeros(4, 3), torch.zeros(4, 3)
    nested.run({"x": x, "batch_k": batch["k"]}, out={"total": buffer})
    buffer.set_(other)
    nested.run({"x": x + 1, "batch_k": batch["k"]}, out={"total": buffer})
    assert torch.equal(other, (x + 1) * 2 + batch["k"])


def test_out_refuses_unknown_names(nested):
    x, batch = nested_inputs()
    good = {"total": torch.empty(4, 3), "p0": torch.empty(4, 3)}
    nested.run({"x": x, "batch_k": batch["k"]}, out=good)
    with pytest.raises(InputError, match="nope"):
        nested.run({"x": x, "batch_k": batch["k"]}, out=good | {"nope": torch.empty(4, 3)})
    with pytest.raises(InputError, match="nope"):
        nested.run({"x": x, "batch_k": batch["k"]}, out={"nope": torch.empty(4, 3)})


# --- threads


@pytest.mark.parametrize("route", ["torch", "numpy", "binding", "torch out", "numpy out", "changing shapes"])
def test_sixteen_threads_get_their_own_answers(route):
    dtype = TensorProto.BFLOAT16 if route == "binding" else TensorProto.FLOAT
    model = make_onnx(
        [helper.make_node("Cast", ["x"], ["y"], to=dtype)],
        [info("x", TensorProto.INT32, ["n"])],
        [info("y", dtype, ["n"])],
    )
    runtime = interop.load(model, threads=1)
    wrong, together = [], threading.Barrier(16)

    def work(me: int) -> None:
        buffer = {"torch out": torch.empty(64), "numpy out": np.empty(64, np.float32)}.get(route)
        together.wait()
        for turn in range(50):
            value, count = me * 4 + turn % 4, 8 + turn % 5 if route == "changing shapes" else 64
            x = torch.full((count,), value, dtype=torch.int32)
            given = x.numpy() if route in ("numpy", "binding") else x
            y = runtime.run({"x": given}, out=None if buffer is None else {"y": buffer})["y"]
            if len(y) != count or {float(item) for item in y} != {float(value)}:
                wrong.append((me, turn))

    threads = [threading.Thread(target=work, args=(me,)) for me in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- inputs that do not fit


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch_k": None}, "missing.*batch_k"),
        ({"batchk": torch.ones(4, 3)}, "did you mean 'batch_k'"),
        ({"x": torch.ones(4, 3, dtype=torch.float64)}, "'x' expects float32, got float64"),
        ({"x": torch.ones(12)}, "2 dimensions, got 1"),
        ({"x": torch.ones(4, 5)}, r"expects 3 at axis 1, got shape \(4, 5\)"),
        ({"batch_k": torch.ones(2, 3)}, r"rows is 4 in this call"),
        ({"x": [[1.0]]}, "must be a tensor"),
        ({"x": None}, "must be a tensor"),
    ],
)
def test_bad_inputs_are_named_with_expected_and_given(nested, change, says):
    inputs = {"x": torch.ones(4, 3), "batch_k": torch.ones(4, 3)} | change
    if says.startswith("missing"):
        del inputs["batch_k"]
    for _ in range(2):  # a check that was remembered must not let it pass
        with pytest.raises(InputError, match=says):
            nested.run(inputs)


def test_symbols_are_sized_anew_on_each_call(nested):
    for rows in (4, 1, 7):
        x, batch = nested_inputs(rows)
        assert nested(x, batch)["total"].shape == (rows, 3)


def test_wrong_counts_and_nesting_are_refused(nested):
    x, batch = nested_inputs()
    for args in ((x,), (x, batch, x), (x, batch["k"]), (x, {"q": x})):
        with pytest.raises(InputError):
            nested(*args)


def test_unknown_keywords_are_refused(nested):
    with pytest.raises(InputError):
        nested(*nested_inputs(), z=torch.ones(1))


# --- options


def test_spinning_is_off_and_threads_pass_through():
    runtime = interop.load(identity_onnx(TensorProto.FLOAT), threads=3)
    options = runtime.session.get_session_options()
    assert options.intra_op_num_threads == 3
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"


def test_session_options_are_used_as_they_are():
    options = ort.SessionOptions()
    options.log_severity_level = 4
    runtime = interop.load(identity_onnx(TensorProto.FLOAT), session_options=options)
    assert runtime.session.get_session_options().log_severity_level == 4
    with pytest.raises(InputError, match="not both"):
        interop.load(identity_onnx(TensorProto.FLOAT), session_options=options, threads=1)


def test_unknown_providers_and_options_are_refused():
    with pytest.raises(InputError, match=r"NopeProvider.*CPUExecutionProvider"):
        interop.load(identity_onnx(TensorProto.FLOAT), providers=["NopeProvider"])
    with pytest.raises(InputError, match=r"nope.*threads"):
        interop.load(identity_onnx(TensorProto.FLOAT), nope=1)
    with pytest.raises(InputError, match="at least 1"):
        interop.load(identity_onnx(TensorProto.FLOAT), threads=0)


# --- stored signatures


HOSTILE = [
    "",
    "{",
    "null",
    "[]",
    "3",
    '{"inputs": 3, "outputs": []}',
    "[" * 100_000,
    '{"inputs": [], "outputs": []}',
    '{"a":' * 5000 + "1" + "}" * 5000,
]


def _changed(**change) -> str:
    return json.dumps(nested_signature().to_json() | change)


def _with_length(keys) -> str:
    """Results with a length of something that is no tensor beside it."""
    children = [{"leaf": name} for name in ("total", "p0", "p1")]
    return _changed(
        results={
            "object": [*children, {"length": [], "keys": keys}],
            "keys": ["total", "p0", "p1", "length"],
            "type": "",
        }
    )


HOSTILE += [
    _changed(inputs=[{"name": "x", "dtype": "float32", "shape": ["rows", 3]}]),
    _changed(outputs=[{"name": n, "dtype": "int64", "shape": ["rows", 3]} for n in ("total", "p0", "p1")]),
    _changed(outputs=[{"name": n, "dtype": "float32", "shape": ["rows", 4]} for n in ("total", "p0", "p1")]),
    _changed(outputs=[{"name": n, "dtype": "float32", "shape": ["rows"]} for n in ("total", "p0", "p1")]),
    _changed(outputs=[{"name": n, "dtype": "nope", "shape": None} for n in ("total", "p0", "p1")]),
    _changed(outputs=[{"name": n, "dtype": "float32", "shape": [{}]} for n in ("total", "p0", "p1")]),
    _changed(results={"leaf": "other"}),
    _changed(results={"dict": [{"leaf": "total"}], "keys": [["unhashable"]]}),
    _changed(results={"dict": [{"leaf": "total"}], "keys": ["a", "b"]}),
    _changed(results={"dict": "total", "keys": ["a"]}),
    _changed(results={"tuple": 5}),
    _changed(arguments={"leaf": "x"}),
    _changed(arguments={"list": [{"leaf": "x"}, {"leaf": "batch_k"}]}),
    _changed(arguments={"tuple": [{"leaf": "x"}, {"leaf": "x"}]}),
    _changed(keywords={"dict": [{"leaf": "x"}], "keys": [1]}),
    _changed(parameter_names=7),
    _with_length([]),
    _with_length(["nowhere"]),
    _with_length(["length"]),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_or_stale_stored_signature_is_ignored_with_a_warning(text):
    with pytest.warns(UserWarning, match="stored signature is ignored"):
        runtime = interop.load(nested_onnx(text=text))
    x, batch = nested_inputs()
    total, _, _ = runtime(x, batch["k"])
    assert torch.equal(total, x * 2 + batch["k"])


def test_stored_symbols_name_what_the_graph_left_open():
    proto = nested_onnx(nested_signature())
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].Clear()
    runtime = interop.load(proto)
    assert [spec.shape for spec in runtime.signature.inputs] == [("rows", 3)] * 2


# --- files


def test_a_missing_file_a_folder_and_an_empty_file_are_refused(tmp_path):
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "folder").mkdir()
    for name, says in (("none.onnx", "no such file"), ("empty.onnx", "empty"), ("folder", "saved_model.pb")):
        with pytest.raises(ModelFileError, match=says) as caught:
            interop.load(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(ModelFileError):
        interop.load(tmp_path / "folder", runtime="onnxruntime")


@pytest.mark.parametrize("content", [b"not a model at all", b"\x00" * 64, b"\xff" * 64, b"<html></html>", b'{"a": 1}'])
@pytest.mark.parametrize("name", ["m.onnx", "model.bin"])
def test_garbage_is_refused(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=name):
        interop.load(tmp_path / name)


def test_every_truncation_of_a_file_is_refused_or_runs_whole(tmp_path):
    data = nested_onnx(nested_signature()).SerializeToString()
    refused = 0
    for length in range(1, len(data), 97):
        (tmp_path / "m.onnx").write_bytes(data[:length])
        try:
            runtime = interop.load(tmp_path / "m.onnx")
        except ModelFileError:
            refused += 1
        else:  # a cut between two trailing fields is a model without them
            assert runtime.signature.output_names == ("total", "p0", "p1")
    assert refused > 5


def test_a_model_that_onnx_runtime_rejects_is_a_model_file_error(tmp_path):
    path = saved(identity_onnx(TensorProto.FLOAT, op="NoSuchOperator"), tmp_path)
    with pytest.raises(ModelFileError, match="NoSuchOperator"):
        interop.load(path)


def _external_model(folder, location: str, weight=None, entries: dict[str, str] | None = None, nest=None):
    """``y = x + w`` with ``w`` in an external file."""
    folder.mkdir(exist_ok=True)
    weight = np.ones((1, 4), np.float32) if weight is None else weight
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=weight.shape, data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": location} | (entries or {})).items():
        tensor.external_data.add(key=key, value=value)
    if location == "w.bin":
        (folder / location).write_bytes(weight.tobytes())
    width = weight.shape[1]
    inputs, outputs = [info("x", TensorProto.FLOAT, ["n", width])], [info("y", TensorProto.FLOAT, ["n", width])]
    if nest is None:
        model = make_onnx([helper.make_node("Add", ["x", "w"], ["y"])], inputs, outputs, [tensor])
    else:
        model = nest(tensor, inputs, outputs)
    return saved(model, folder)


def _in_constant(tensor, inputs, outputs):
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("Add", ["x", "w"], ["y"])]
    return make_onnx(nodes, inputs, outputs)


def _in_branch(tensor, inputs, outputs):
    node = helper.make_node("Add", ["x", "w"], ["b"])
    branch = helper.make_graph([node], "b", [], [info("b", TensorProto.FLOAT, None)], [tensor])
    yes = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
    deep = helper.make_graph(
        [helper.make_node("If", ["c"], ["d"], then_branch=branch, else_branch=branch)],
        "d",
        [],
        [info("d", TensorProto.FLOAT, None)],
    )
    return make_onnx([yes, helper.make_node("If", ["c"], ["y"], then_branch=deep, else_branch=deep)], inputs, outputs)


def _in_function(tensor, inputs, outputs):
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("Add", ["a", "w"], ["b"])]
    function = helper.make_function("local", "F", ["a"], ["b"], nodes, [helper.make_opsetid("", 18)])
    model = make_onnx([helper.make_node("F", ["x"], ["y"], domain="local")], inputs, outputs)
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(function)
    return model


def _in_sparse(tensor, inputs, outputs):
    indices = helper.make_tensor("i", TensorProto.INT64, [4], [0, 1, 2, 3])
    tensor.dims[:] = [4]
    model = make_onnx([helper.make_node("Add", ["x", "w"], ["y"])], inputs, outputs)
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [1, 4]))
    return model


def test_external_data_beside_the_model_is_read(tmp_path):
    runtime = interop.load(_external_model(tmp_path / "m", "w.bin"))
    assert torch.equal(runtime(torch.zeros(2, 4)), torch.ones(2, 4))


@pytest.mark.parametrize("nest", [None, _in_constant, _in_branch, _in_function, _in_sparse])
@pytest.mark.parametrize(
    "location",
    ["/etc/hostname", "../secret.bin", "a/../../secret.bin", "..\\secret.bin", "C:\\secret.bin", "\\\\host\\x"],
)
def test_external_data_outside_the_folder_is_refused_before_onnx_runtime_sees_the_file(
    tmp_path, monkeypatch, nest, location
):
    monkeypatch.setattr(ort, "InferenceSession", lambda *args, **kwargs: pytest.fail("opened"))
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    with pytest.raises(ModelFileError, match="folder"):
        interop.load(_external_model(tmp_path / "m", location, nest=nest))


def test_links_that_leave_the_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ort, "InferenceSession", lambda *args, **kwargs: pytest.fail("opened"))
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    path = _external_model(tmp_path / "m", "link.bin")
    (tmp_path / "m" / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ModelFileError, match="is a link to"):
        interop.load(path)
    path = _external_model(tmp_path / "n", "sub/secret.bin")
    (tmp_path / "n" / "sub").symlink_to(tmp_path)
    with pytest.raises(ModelFileError, match="is a link to"):
        interop.load(path)


def test_links_inside_the_folder_are_followed(tmp_path):
    path = _external_model(tmp_path / "m", "link.bin")
    (tmp_path / "m" / "real.bin").write_bytes(np.ones((1, 4), np.float32).tobytes())
    (tmp_path / "m" / "link.bin").symlink_to("real.bin")
    assert interop.load(path)(torch.zeros(1, 4)).tolist() == [[1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("location", "entries"),
    [
        ("missing.bin", {}),
        ("", {}),
        (".", {}),
        ("*/_ORT_MEM_ADDR_/*", {"offset": "4096", "length": "16"}),
        ("w.bin", {"offset": "8", "length": "16"}),
        ("w.bin", {"offset": "-4"}),
        ("w.bin", {"length": "many"}),
        ("w.bin", {"length": "99999999999999999999"}),
    ],
)
def test_missing_or_short_external_data_is_refused(tmp_path, monkeypatch, location, entries):
    monkeypatch.setattr(ort, "InferenceSession", lambda *args, **kwargs: pytest.fail("opened"))
    with pytest.raises(ModelFileError, match=r"m\.onnx"):
        interop.load(_external_model(tmp_path / "m", location, entries=entries))


def test_a_proto_in_memory_cannot_name_files(tmp_path):
    path = _external_model(tmp_path / "m", "w.bin")
    with pytest.raises(ModelFileError, match="load it by its path"):
        interop.load(onnx.load(path, load_external_data=False))


def test_failures_inside_the_model_are_errors_of_ours():
    model = make_onnx(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        [info("x", TensorProto.FLOAT, ["n"]), info("s", TensorProto.INT64, [1])],
        [info("y", TensorProto.FLOAT, ["m"])],
    )
    runtime = interop.load(model)
    with pytest.raises(interop.InteropError, match=r"Reshape|reshape"):
        runtime.run({"x": torch.ones(4), "s": torch.tensor([3])})
    assert runtime.run({"x": torch.ones(4), "s": torch.tensor([4])})["y"].tolist() == [1, 1, 1, 1]


def test_the_cost_of_a_call_stays_near_the_raw_call(nested):
    """A loose bound (three times) that a per-call slow path would break; the benchmark measures it properly."""
    x, batch = nested_inputs()
    inputs, feed = {"x": x, "batch_k": batch["k"]}, {"x": x.numpy(), "batch_k": batch["k"].numpy()}

    def cost(call) -> float:
        best = float("inf")
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(100):
                call()
            best = min(best, time.perf_counter() - start)
        return best

    nested.run(inputs)
    assert cost(lambda: nested.run(inputs)) < 3 * cost(lambda: nested.session.run(None, feed))


def test_an_oversized_proto_goes_through_a_temporary_folder_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("interop.runtimes._onnx_model._PROTOBUF_LIMIT", 1 << 20)
    weight = np.arange(600_000, dtype=np.float32)
    model = make_onnx(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [info("x", TensorProto.FLOAT, [600_000])],
        [info("y", TensorProto.FLOAT, [600_000])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    before = model.SerializeToString()
    written = []
    save = ir.save
    monkeypatch.setattr(ir, "save", lambda *args, **kwargs: (written.append(args[1]), save(*args, **kwargs)))
    runtimes = [interop.load(model), interop.load(ir.serde.deserialize_model(model))]
    assert len(written) == 2 and list(tmp_path.iterdir()) == []
    for runtime in runtimes:
        np.testing.assert_array_equal(runtime(np.ones(600_000, np.float32)), weight + 1)
    assert model.SerializeToString() == before


def test_damaged_files_never_crash_or_surprise(tmp_path):
    data, generator = nested_onnx(nested_signature()).SerializeToString(), random.Random(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 6)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        (tmp_path / "m.onnx").write_bytes(damaged)
        with warnings.catch_warnings(), contextlib.suppress(interop.InteropError):
            warnings.simplefilter("ignore")
            refused += 1
            runtime = interop.load(tmp_path / "m.onnx")
            refused -= 1
            runtime(torch.ones(2, 3), {"k": torch.ones(2, 3)})
    assert 75 < refused < 150
