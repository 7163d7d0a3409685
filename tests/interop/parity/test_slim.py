"""Weights are taken off a file by their places in it, and what is left is the same model."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from interop.errors import ModelFileError
from interop.parity.graph import _chunks, open_graph, run_model, submodel
from interop.parity.noise import BLOCK, move
from interop.parity.slim import slim_file, slim_graph, slim_proto

WEIGHT = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)


@pytest.fixture
def model():
    initializers = [
        numpy_helper.from_array(WEIGHT, "weight"),
        numpy_helper.from_array(np.arange(20000), "indices"),
        numpy_helper.from_array(np.ones(128, np.float32), "small"),
        helper.make_tensor("listed", TensorProto.FLOAT, [40000], np.arange(40000.0)),
        helper.make_tensor("text", TensorProto.STRING, [2], ["a", "b"]),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["m"], "first"),
        helper.make_node("Add", ["m", "small"], ["y"], "second"),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 256), ("y", 128))
    ]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_slim_file_is_the_model_without_its_large_weights(model, tmp_path):
    onnx.save(model, tmp_path / "m.onnx")
    proto, weights = slim_file(tmp_path / "m.onnx")
    assert set(weights) == {"weight", "indices"}
    np.testing.assert_array_equal(weights["weight"], WEIGHT)
    np.testing.assert_array_equal(weights["indices"], np.arange(20000))
    assert all(isinstance(values, np.memmap) for values in weights.values())
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            tensor.raw_data = np.ascontiguousarray(weights[tensor.name]).tobytes()
    assert proto.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_slim_proto_and_slim_graph_hold_the_same(model):
    onnx_ir = pytest.importorskip("onnx_ir")
    before = model.SerializeToString(deterministic=True)
    for proto, weights in (slim_proto(model), slim_graph(onnx_ir.from_proto(model))):
        np.testing.assert_array_equal(weights["weight"], WEIGHT)
        assert "weight" not in {tensor.name for tensor in proto.graph.initializer}
        assert [node.name for node in proto.graph.node] == ["first", "second"]
    assert model.SerializeToString(deterministic=True) == before


def test_parts_of_a_slim_file_compute_what_numpy_does(model, tmp_path):
    onnx.save(model, tmp_path / "m.onnx")
    graph = open_graph(tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((3, 256)).astype(np.float32)
    found = run_model(*submodel(graph, graph.nodes, {"x": x}, {}))
    np.testing.assert_allclose(found["y"], x.astype(float) @ WEIGHT + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_truncated_file_is_an_error(model, tmp_path, size):
    onnx.save(model, tmp_path / "m.onnx")
    content = (tmp_path / "m.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(content[:-size])
    with pytest.raises(ModelFileError):
        slim_file(tmp_path / "cut.onnx")


def test_weight_of_other_size_than_its_shape_is_an_error(model, tmp_path):
    model.graph.initializer[0].dims[0] = 1 << 40
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelFileError, match="bytes and the shape"):
        slim_file(tmp_path / "m.onnx")


def test_chunks_cover_every_node_once(model, tmp_path, monkeypatch):
    onnx.save(model, tmp_path / "m.onnx")
    graph = open_graph(tmp_path / "m.onnx")
    assert [list(part) for part in _chunks(graph)] == [[0, 1]]
    monkeypatch.setattr("interop.parity.graph.CHUNK_BYTES", 1)
    assert [list(part) for part in _chunks(graph)] == [[0], [1]]


def test_large_arrays_are_moved_by_an_ulp_too():
    values = np.full((4, BLOCK // 4 + 1), 3.0, np.float32)
    moved = move(values, np.random.default_rng(0))
    assert moved.shape == values.shape and moved.dtype == values.dtype
    assert set(np.unique(moved)) == {np.nextafter(np.float32(3), np.float32(n)) for n in (0, 3, 9)}
