"""What is logged is read back by TensorBoard's own reader."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import interop
from exporters import ExportedModel, export_model
from interop.errors import InputError, ModelFileError
from interop.integrations.tensorboard import log_graph, log_layers, log_parity, log_weights
from interop.parity.compare import compare
from interop.parity.report import CaseResult, ParityReport

pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.graph_pb2 import GraphDef
from torch.utils.tensorboard import SummaryWriter


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh())
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x))

    def example_inputs(self):
        return (torch.linspace(-1, 1, 8).reshape(2, 4),)


@pytest.fixture(scope="module")
def net() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net().eval()


@pytest.fixture(scope="module")
def exported(net) -> ExportedModel:
    return export_model(net, "onnx")


@pytest.fixture(scope="module")
def wrong(exported, tmp_path_factory) -> Path:
    """The export with one weight of the head off by a tenth."""
    path = exported.save(tmp_path_factory.mktemp("wrong") / "wrong.onnx")
    model = onnx.load(path)
    tensor = next(item for item in model.graph.initializer if item.name == "head.weight")
    values = numpy_helper.to_array(tensor).copy()
    values[1, 2] += np.float32(0.1)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def failed(net, wrong) -> ParityReport:
    return interop.check(net, wrong)


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    found.Reload()
    return found


def graph_of(folder: Path) -> GraphDef:
    return GraphDef.FromString(read(folder).Graph().SerializeToString())


def test_log_graph_puts_nodes_into_their_modules(exported, tmp_path, capsys):
    log_graph(tmp_path, exported)
    nodes = {node.name: node for node in graph_of(tmp_path).node}
    operators = {name.rpartition("/")[0]: node.op for name, node in nodes.items() if node.op in ("Gemm", "Tanh")}
    assert operators == {"body/0": "Gemm", "body/1": "Tanh", "head": "Gemm"}
    assert nodes["x"].op == "Placeholder"
    assert {"body/0/weight", "body/0/bias", "head/weight", "head/bias"} <= {
        n for n, x in nodes.items() if x.op == "Const"
    }
    assert [dim.size for dim in nodes["x"].attr["_output_shapes"].list.shape[0].dim] == [-1, 4]
    assert [dim.size for dim in nodes["head/weight"].attr["_output_shapes"].list.shape[0].dim] == [3, 6]
    assert capsys.readouterr().out == ""


def test_log_graph_joins_each_node_to_what_makes_its_inputs(wrong, tmp_path):
    log_graph(str(tmp_path), wrong)
    nodes = {node.name: node for node in graph_of(tmp_path).node}
    makers = {ref.partition(":")[0] for node in nodes.values() for ref in node.input}
    assert makers <= set(nodes)
    path, name = [], next(name for name in nodes if name.startswith("output/"))
    while nodes[name].input:
        name = nodes[name].input[0]
        path.append(nodes[name].op)
    assert path == ["Gemm", "Tanh", "Gemm", "Placeholder"]


def test_log_graph_shows_bodies_second_outputs_and_odd_names(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Neg", ["low part"], ["n"])], "b", [], [helper.make_tensor_value_info("n", 1, [2])]
    )
    nodes = [
        helper.make_node("Split", ["x"], ["high", "low part"], "split!", num_outputs=2),
        helper.make_node("If", ["c"], ["y"], "split!", then_branch=body, else_branch=body),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, [4]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, [2])])
    log_graph(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    found = {node.name: node for node in graph_of(tmp_path).node}
    [split] = [node for node in found.values() if node.op == "Split"]
    [branch] = [node for node in found.values() if node.op == "If"]
    negations = [node for node in found.values() if node.op == "Neg"]
    assert split.name != branch.name
    assert [list(node.input) for node in negations] == [[f"{split.name}:1"]] * 2
    assert {node.name for node in negations} <= set(branch.input)
    assert {node.name.split("/")[-2] for node in negations} == {"then_branch", "else_branch"}


def test_log_parity_writes_the_error_of_every_layer(failed, tmp_path):
    log_parity(tmp_path, failed, step=7)
    found, layers = read(tmp_path), failed.first_difference.layers
    assert layers
    assert [event.value for event in found.Scalars("layers/error")] == pytest.approx([layer.error for layer in layers])
    assert [event.step for event in found.Scalars("layers/local")] == list(range(len(layers)))
    worst = max(layers, key=lambda layer: layer.local)
    [event] = found.Scalars(f"layer/{worst.value}/local")
    assert (event.step, event.value) == (7, pytest.approx(worst.local))
    assert worst.module == "head"


def test_log_layers_writes_small_errors_of_an_export_that_passes(net, exported, tmp_path):
    layers = log_layers(tmp_path, net, exported, net.example_inputs(), step=4)
    assert [layer.module for layer in layers] == ["body.0", "body.1", "head"]
    found = read(tmp_path)
    assert [event.value for event in found.Scalars("layers/error")] == pytest.approx([layer.error for layer in layers])
    assert max(event.value for event in found.Scalars("layers/error")) < 1e-6
    assert found.Scalars(f"layer/{layers[0].value}/error")[0].step == 4


def test_log_layers_writes_the_error_of_a_weight_that_is_off(net, wrong, tmp_path):
    layers = log_layers(tmp_path, net, wrong, net.example_inputs())
    with torch.no_grad():
        hidden = net.body(*net.example_inputs())
        expected = 0.1 * hidden[:, 2].abs().max() / net.head(hidden).abs().max()
    [head] = [layer for layer in layers if layer.module == "head"]
    [event] = read(tmp_path).Scalars(f"layer/{head.value}/local")
    assert event.value == pytest.approx(float(expected), rel=1e-4)


def test_log_parity_writes_figures_and_counts_of_differences(failed, net, wrong, tmp_path):
    log_parity(tmp_path, failed, step=3)
    found, output = read(tmp_path), failed.outputs["output"]
    assert [event.value for event in found.Scalars("parity/passed")] == [0.0]
    [event] = found.Scalars("parity/output/max_abs")
    assert (event.step, event.value) == (3, pytest.approx(output.max_abs))
    [event] = found.Histograms("difference/output")
    assert event.histogram_value.num == output.size


def test_histogram_of_differences_counts_decades(tmp_path):
    """Two of eight elements off by 3e-4 and 3e-2 of the scale, the others equal."""
    reference = np.ones(8)
    candidate = reference + np.array([0, 0, 3e-4, 0, 0, 3e-2, 0, 0])
    outputs = compare({"y": reference}, {"y": candidate}, atol=1.0).outputs
    log_parity(tmp_path, ParityReport("r", ("c",), (CaseResult("c", "case", True, outputs=outputs),)))
    [event] = read(tmp_path).Histograms("difference/y")
    value = event.histogram_value
    counts = {limit: count for limit, count in zip(value.bucket_limit, value.bucket) if count}
    assert counts[-3.0] == 1  # 1e-4 <= 3e-4 < 1e-3
    assert counts[-1.0] == 1
    assert sum(counts.values()) == 8
    assert min(counts) <= -12.5


def test_log_weights_of_module_onnx_and_savedmodel_agree(net, exported, tmp_path):
    log_weights(tmp_path / "torch", net)
    log_weights(tmp_path / "onnx", exported)
    log_weights(tmp_path / "tensorflow", export_model(net, "tensorflow", options={"training": True}, verify=False))
    expected = {f"weight/{name}": value.double() for name, value in net.state_dict().items()}
    for folder in ("torch", "onnx", "tensorflow"):
        found = read(tmp_path / folder)
        assert set(found.Tags()["histograms"]) == set(expected)
        for tag, values in expected.items():
            histogram = found.Histograms(tag)[0].histogram_value
            assert (histogram.num, histogram.min, histogram.max) == (values.numel(), values.min(), values.max())
            assert math.isclose(histogram.sum, float(values.sum()), abs_tol=1e-9)


def test_log_weights_shows_how_far_each_weight_is_off(net, wrong, tmp_path):
    log_weights(tmp_path, wrong, step=2, reference=net)
    found = read(tmp_path)
    [event] = found.Histograms("weight_error/head.weight")
    assert event.step == 2
    assert event.histogram_value.max == pytest.approx(0.1, rel=1e-5)
    assert found.Histograms("weight_error/head.bias")[0].histogram_value.max == 0


def test_a_writer_of_a_training_loop_stays_open(net, tmp_path):
    with SummaryWriter(str(tmp_path)) as writer:
        log_weights(writer, net, step=1)
        writer.add_scalar("loss", 0.5, 1)
        log_weights(writer, net, step=2)
    assert [event.step for event in read(tmp_path).Histograms("weight/head.bias")] == [1, 2]
    with pytest.raises(InputError, match="closed"):
        log_weights(writer, net)


def test_what_is_no_graph_no_weights_and_no_place_is_an_error(net, tmp_path):
    with pytest.raises(InputError, match="is not ONNX"):
        log_graph(tmp_path / "a", net)
    with pytest.raises(InputError, match="shows no floating-point weights"):
        log_weights(tmp_path / "a", torch.nn.Tanh())
    with pytest.raises(InputError, match="share no weight"):
        log_weights(tmp_path / "a", net, reference=torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="SummaryWriter"):
        log_weights(3, net)
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x0a\xff\xff")
    with pytest.raises(ModelFileError):
        log_graph(tmp_path / "a", tmp_path / "broken.onnx")
    assert not (tmp_path / "a").exists()
