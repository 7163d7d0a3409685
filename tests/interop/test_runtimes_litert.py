"""The LiteRT runtime on files that TensorFlow's own converter wrote."""

from __future__ import annotations

import threading

import flatbuffers
import numpy as np
import pytest
import tensorflow as tf
import torch
from ai_edge_litert import schema_py_generated as schema

import interop
from interop.errors import InputError, InteropError, ModelFileError
from interop.runtimes.litert import LitertRuntime


class _Affine(tf.Module):
    @tf.function(
        input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x"), tf.TensorSpec([], tf.float32, name="scale")]
    )
    def affine(self, x, scale):
        return {"scaled": x * scale, "total": tf.reduce_sum(x)}

    @tf.function(input_signature=[tf.TensorSpec([2], tf.int64, name="n")])
    def double(self, n):
        return {"doubled": n + n}


def _content(*functions):
    module = _Affine()
    signatures = {name: getattr(module, name) for name in functions}
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=signatures)
        return tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=list(functions)).convert()


@pytest.fixture(scope="module")
def affine():
    return bytes(_content("affine"))


@pytest.fixture(scope="module")
def both():
    return bytes(_content("affine", "double"))


def _changed(content, change):
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_a_file_is_recognised_by_its_content(affine, tmp_path):
    path = tmp_path / "no_suffix"
    path.write_bytes(affine)
    runtime = interop.load(path)
    assert isinstance(runtime, LitertRuntime) and runtime.path == path
    found = {spec.name: (spec.dtype, spec.shape) for spec in runtime.signature.inputs}
    assert found == {"x": ("float32", (None, 3)), "scale": ("float32", ())}
    assert set(runtime.signature.output_names) == {"scaled", "total"}


@pytest.mark.parametrize("rows", [1, 4, 0, 2])
def test_inputs_of_any_number_of_rows_run(affine, rows):
    runtime = interop.load(affine, runtime="litert")
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    results = runtime.run({"x": x, "scale": np.float32(2)})
    np.testing.assert_array_equal(results["scaled"], x * 2)
    assert results["total"].shape == () and results["total"] == x.sum()


def test_answers_come_in_the_caller_s_framework_and_own_their_memory(affine):
    runtime = interop.load(affine, runtime="litert")
    x = torch.ones(2, 3)
    first = runtime.run({"x": x, "scale": torch.tensor(2.0)})["scaled"]
    second = runtime.run({"x": x, "scale": torch.tensor(5.0)})["scaled"]
    assert isinstance(first, torch.Tensor)
    assert first.eq(2).all() and second.eq(5).all()
    assert isinstance(runtime.run({"x": tf.ones([2, 3]), "scale": tf.constant(1.0)})["scaled"], tf.Tensor)
    transposed = torch.arange(6.0).reshape(3, 2).T
    torch.testing.assert_close(runtime.run({"x": transposed, "scale": torch.tensor(1.0)})["scaled"], transposed)


def test_inputs_that_do_not_fit_are_refused_by_name(affine):
    runtime = interop.load(affine, runtime="litert")
    with pytest.raises(InputError, match="'x' expects float32, got float64"):
        runtime.run({"x": np.ones((2, 3)), "scale": np.float32(1)})
    with pytest.raises(InputError, match="expects 3 at axis 1"):
        runtime.run({"x": np.ones((2, 4), np.float32), "scale": np.float32(1)})
    np.testing.assert_array_equal(runtime.run({"x": np.ones((2, 3), np.float32), "scale": np.float32(1)})["total"], 6)


def test_a_signature_is_chosen_by_name_where_there_are_several(both):
    runtime = interop.load(both, runtime="litert", signature="double")
    np.testing.assert_array_equal(runtime.run({"n": np.array([2, 3])})["doubled"], [4, 6])
    with pytest.raises(ModelFileError, match=r"no signature 'serving_default'; choose one of .*double"):
        interop.load(both, runtime="litert")


def test_a_file_without_signatures_runs_under_its_tensors_names(affine):
    def drop(model):
        model.signatureDefs = None

    runtime = interop.load(_changed(affine, drop), runtime="litert")
    names = {len(spec.shape): spec.name for spec in runtime.signature.inputs}
    x = np.ones((5, 3), np.float32)
    results = runtime.run({names[2]: x, names[0]: np.float32(4)})
    assert sorted(value.shape for value in results.values()) == [(), (5, 3)]
    assert sorted(float(value.sum()) for value in results.values()) == [15, 60]


def test_threads_do_not_mix_their_calls(affine):
    runtime = interop.load(affine, runtime="litert", threads=1)
    wrong = []

    def work(rows):
        x = np.full((rows, 3), rows, np.float32)
        for _ in range(50):
            if runtime.run({"x": x, "scale": np.float32(1)})["total"] != 3 * rows * rows:
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_truncated_files_are_refused(affine, tmp_path):
    lengths = [4, 7, 8, 9, 30, 64, *range(100, len(affine), 97), len(affine) - 1]
    for length in lengths:
        path = tmp_path / "m.tflite"
        path.write_bytes(affine[:length])
        with pytest.raises(ModelFileError):
            interop.load(path, runtime="litert")


def test_files_that_are_something_else_are_refused():
    with pytest.raises(ModelFileError, match="does not have the identifier TFL3"):
        interop.load(b"PK\x03\x04" + b"\0" * 64, runtime="litert")


def _writable(model):
    for graph in model.subgraphs:
        graph.inputs, graph.outputs = np.array(graph.inputs), np.array(graph.outputs)
        for operator in graph.operators:
            operator.inputs, operator.outputs = np.array(operator.inputs), np.array(operator.outputs)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda model: setattr(model.subgraphs[0].tensors[0], "buffer", 999), "out of range buffer 999"),
        (lambda model: setattr(model.subgraphs[0].operators[0], "opcodeIndex", 99), "opcode_index 99"),
        (lambda model: setattr(model.signatureDefs[0], "subgraphIndex", 7), "a signature calls graph 7, and it has 1"),
        (lambda model: setattr(model.signatureDefs[0].inputs[0], "tensorIndex", 999), "Invalid tensor index 999"),
        (lambda model: setattr(model.signatureDefs[0].inputs[0], "name", b"\xff"), "utf-8"),
        (lambda model: setattr(model, "subgraphs", []), "No subgraph"),
    ],
)
def test_a_damaged_file_is_refused(affine, change, problem):
    with pytest.raises(ModelFileError, match=problem):
        interop.load(_changed(affine, change), runtime="litert")


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.subgraphs[0].operators[0].inputs.__setitem__(0, 999),
        lambda model: model.subgraphs[0].outputs.__setitem__(0, -5),
    ],
)
def test_a_graph_that_names_tensors_it_does_not_have_fails_with_an_error(affine, change):
    runtime = interop.load(_changed(affine, lambda model: (_writable(model), change(model))), runtime="litert")
    with pytest.raises(InteropError, match="Invalid tensor index"):
        runtime.run({"x": np.ones((2, 3), np.float32), "scale": np.float32(1)})


def test_metadata_that_contradicts_the_graph_is_ignored_with_a_warning(affine):
    def lie(model):
        buffer, entry = schema.BufferT(), schema.MetadataT()
        buffer.data = np.frombuffer(b'{"names": {"inputs": {"a": "b"}, "outputs": {}}}', np.uint8)
        entry.name, entry.buffer = "tensor_interop", len(model.buffers)
        model.buffers.append(buffer)
        model.metadata = [*(model.metadata or []), entry]

    with pytest.warns(UserWarning, match="stored names are ignored"):
        runtime = interop.load(_changed(affine, lie), runtime="litert")
    assert set(runtime.signature.input_names) == {"x", "scale"}


def test_a_failure_inside_the_interpreter_is_an_error_and_the_next_call_works():
    class Reshape(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def __call__(self, x):
            return {"y": tf.reshape(x, [-1, 4])}

    module = Reshape()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.__call__.get_concrete_function()], module)
    runtime = interop.load(bytes(converter.convert()), runtime="litert")
    (name,) = runtime.signature.input_names
    with pytest.raises(InteropError, match="failed while it ran"):
        runtime.run({name: np.ones(6, np.float32)})
    assert next(iter(runtime.run({name: np.ones(8, np.float32)}).values())).shape == (2, 4)
