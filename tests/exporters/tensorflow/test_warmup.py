"""The warm-up file of TensorFlow Serving, read by its wire format: field numbers are those of the public .proto files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tensorflow as tf
import torch
from onnx import TensorProto, helper
from tensorflow.core.framework import tensor_pb2
from torch import nn

from exporters import OptionsError, export_model
from tests.wire import fields, text, the

PLACE = "assets.extra/tf_serving_warmup_requests"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out = nn.Embedding(10, 4), nn.Linear(4, 2)

    def forward(self, tokens, scale):
        pooled = self.table(tokens).mean(1)
        return {"pooled": pooled, "scores": self.out(pooled) * scale}


EXAMPLE = (torch.tensor([[1, 2, 9], [3, 4, 0]]), torch.tensor(2.0))


def _requests(path):
    """``(model, signature, {input: array})`` of each record."""
    found = []
    for record in tf.data.TFRecordDataset(str(path)):
        log = fields(record.numpy())
        assert set(log) == {6}  # predict_log
        request = fields(the(fields(the(log, 6)), 1))  # its request
        spec = fields(the(request, 1))  # model_spec: name, signature_name
        assert set(spec) == {1, 3} and set(request) <= {1, 2}
        entries = [fields(entry) for entry in request.get(2, [])]  # inputs: a map
        arrays = {
            text(entry, 1): tf.make_ndarray(tensor_pb2.TensorProto.FromString(the(entry, 2))) for entry in entries
        }
        found.append((text(spec, 1), text(spec, 3), arrays))
    return found


def test_warmup_writes_the_example_for_each_serving_signature_and_they_run(tmp_path):
    model = Model().eval()
    options = {"warmup": 2, "version": 4, "signatures": {"pool": "pooled"}, "training": True}
    export_model(model, "tensorflow", inputs=EXAMPLE, path=tmp_path / "words", options=options)
    requests = _requests(tmp_path / "words" / "4" / PLACE)
    assert [(name, signature, set(arrays)) for name, signature, arrays in requests] == [
        *[("words", "serving_default", {"tokens", "scale"})] * 2,
        *[("words", "pool", {"tokens"})] * 2,
    ]
    loaded = tf.saved_model.load(str(tmp_path / "words" / "4"))
    with torch.no_grad():
        expected = model(*EXAMPLE)
    for _, signature, arrays in requests:
        np.testing.assert_array_equal(arrays["tokens"], EXAMPLE[0].numpy(), strict=True)
        results = loaded.signatures[signature](**{name: tf.constant(array) for name, array in arrays.items()})
        for name, result in results.items():
            np.testing.assert_allclose(result, expected[name].numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(requests[0][2]["scale"], np.float32(2), strict=True)


def test_true_is_one_request_and_the_default_is_no_file(tmp_path):
    export_model(Model().eval(), "tensorflow", inputs=EXAMPLE, path=tmp_path / "m", options={"warmup": True})
    assert len(_requests(tmp_path / "m" / PLACE)) == 1
    export_model(Model().eval(), "tensorflow", inputs=EXAMPLE, path=tmp_path / "m")
    assert not (tmp_path / "m" / PLACE).exists()


def test_names_are_those_of_the_signature_in_the_file(tmp_path):
    nodes = [
        helper.make_node("Cast", ["/x"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["input.1", "c"], ["y"]),
    ]
    given = [
        helper.make_tensor_value_info("input.1", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("/x", TensorProto.BFLOAT16, [3]),
    ]
    graph = helper.make_graph(nodes, "names", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    export_model(model, "tensorflow", path=tmp_path / "m", options={"warmup": True}, verify=False)
    (_, _, arrays), *rest = _requests(tmp_path / "m" / PLACE)
    function = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    specs = function.structured_input_signature[1]
    assert rest == [] and set(arrays) == set(specs) == {"input_1", "x"}
    assert {name: array.dtype for name, array in arrays.items()} == {
        name: spec.dtype.as_numpy_dtype for name, spec in specs.items()
    }
    assert function(**{name: tf.constant(array) for name, array in arrays.items()})["y"].shape == (2, 3)


def test_a_request_on_which_the_model_fails_is_an_error_before_a_file_is_written(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]> one (int64[n] i) => (float[n] y) { y = Gather(table, i) }""")
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.float32([7]), "table")
    )  # made-up indices are 0 and 1
    with pytest.raises(
        OptionsError, match=r"'serving_default' fails on the warm-up request.*export with an example.*not in \[0, 1\)"
    ):
        export_model(model, "tensorflow", path=tmp_path / "m", options={"warmup": True}, verify=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("warmup", [-1, 1001, "yes", 2.0])
def test_warmup_is_a_number_of_requests(warmup):
    with pytest.raises(OptionsError, match="number of requests up to 1000"):
        export_model(Model().eval(), "tensorflow", inputs=EXAMPLE, options={"warmup": warmup})


def test_more_requests_than_the_server_reads_are_an_error():
    options = {"warmup": 501, "signatures": {"pool": "pooled"}}
    with pytest.raises(OptionsError, match="1002 requests for 2 signatures; the server reads 1000"):
        export_model(Model().eval(), "tensorflow", inputs=EXAMPLE, options=options)


def test_a_sequence_input_has_no_request():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]> s (seq(float[2]) x) => (float[m] y) { y = ConcatFromSequence<axis = 0>(x) }""")
    with pytest.raises(OptionsError, match=r"for tensors only; this model takes x \(sequence\)"):
        export_model(model, "tensorflow", options={"warmup": True}, verify=False)
