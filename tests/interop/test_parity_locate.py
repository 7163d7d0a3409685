"""The first difference: where a fault was planted is where it is found, with and without a right export at hand."""

import shutil
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import interop
from interop.errors import InputError
from interop.parity import ParityReport, locate
from interop.parity.graph import Store, execute, inputs_of, open_graph, segment_of
from interop.parity.origin import origin_of

BATCH = {0: torch.export.Dim("batch", min=1)}


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.out(self.norm(x)))


class Net(nn.Module):
    """Two equal blocks, so that a module path has to be right, and a head."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Inner(), Inner()])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return torch.tanh(self.head(x))


@pytest.fixture(scope="module")
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net().eval()


@pytest.fixture(scope="module")
def net_onnx(net, tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            net, (torch.randn(2, 8),), dynamic_shapes=(BATCH,), dynamo=True, verbose=False, external_data=False
        )
    program.save(path)
    return path


@pytest.fixture
def rows():
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(3))


def planted(source, target, change):
    model = onnx.load(source)
    wrong = change(model.graph)
    onnx.save(model, target)
    return target, wrong


def scaled_weight(graph):
    """The second block's linear weight, one element off by 0.1 %."""
    tensor = next(item for item in graph.initializer if item.name == "blocks.1.out.weight")
    values = numpy_helper.to_array(tensor).copy()
    values.flat[int(np.abs(values).argmax())] *= np.float32(1.001)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return {node.name for node in graph.node if tensor.name in node.input}


def smaller_epsilon(graph):
    node = next(node for node in graph.node if node.op_type == "LayerNormalization")
    next(item for item in node.attribute if item.name == "epsilon").f = 1e-3
    return {node.name}


def softsign(graph):
    node = next(node for node in graph.node if node.op_type == "Tanh")
    node.op_type = "Softsign"
    return {node.name}


def half_inserted(graph):
    position = [node.op_type for node in graph.node].index("LayerNormalization")
    name = graph.node[position].output[0]
    graph.node[position].output[0] = "before"
    graph.node.insert(position + 1, helper.make_node("Cast", ["before"], ["half"], "down", to=TensorProto.FLOAT16))
    graph.node.insert(position + 2, helper.make_node("Cast", ["half"], [name], "up", to=TensorProto.FLOAT))
    return {"down"}


def frozen_batch(graph):
    position = len(graph.node) - 1
    name = graph.node[position].output[0]
    graph.node[position].output[0] = "before"
    graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "frozen"))
    graph.node.append(helper.make_node("Reshape", ["before", "frozen"], [name], "freeze"))
    return {"freeze"}


FAULTS = [scaled_weight, smaller_epsilon, softsign, half_inserted, frozen_batch]


@pytest.mark.parametrize("change", FAULTS)
def test_fault_is_located_at_the_node_with_a_right_export(net, net_onnx, rows, tmp_path, change):
    wrong, nodes = planted(net_onnx, tmp_path / "wrong.onnx", change)
    found = locate(net, wrong, rows, twin=net_onnx)
    assert found.node in nodes
    assert found.reason


@pytest.mark.parametrize("change", FAULTS)
def test_fault_is_located_in_the_group_by_torch_alone(net, net_onnx, rows, tmp_path, change, monkeypatch):
    monkeypatch.delitem(sys.modules, "exporters", raising=False)
    wrong, nodes = planted(net_onnx, tmp_path / "wrong.onnx", change)
    found = locate(net, wrong, rows)
    assert nodes <= set(found.nodes)
    assert len(found.nodes) <= 4


@pytest.mark.parametrize("change", FAULTS[:4])
def test_onnx_reference_needs_no_torch_module(net_onnx, rows, tmp_path, change):
    wrong, nodes = planted(net_onnx, tmp_path / "wrong.onnx", change)
    assert locate(net_onnx, wrong, rows).node in nodes


@pytest.mark.parametrize("seed", range(2))
def test_right_export_has_no_difference_beyond_its_noise(net, net_onnx, seed):
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed))
    assert locate(net_onnx, net_onnx, rows) is None
    assert locate(net, net_onnx, rows, seed=seed) is None


def test_first_difference_names_module_operator_and_line(net, net_onnx, tmp_path, rows):
    wrong, _ = planted(net_onnx, tmp_path / "wrong.onnx", scaled_weight)
    report = interop.check(net, wrong, inputs=rows)
    found = report.first_difference
    line = Inner.forward.__code__.co_firstlineno + 1
    assert (found.module, found.torch_operator) == ("blocks.1.out", "aten.linear.default")
    assert found.source == f"test_parity_locate.py:{line}"
    assert found.figures.max_abs > found.figures.allowed > 0
    assert found.node in report.summary
    assert found.node in str(report)
    errors = {layer.value: layer.error for layer in found.layers}
    before = [layer for layer in found.layers if layer.module.startswith("blocks.0")]
    assert errors[found.value] > 10 * max(layer.error for layer in before)


def test_first_difference_survives_json(net, net_onnx, tmp_path, rows):
    wrong, _ = planted(net_onnx, tmp_path / "wrong.onnx", softsign)
    report = interop.check(net, wrong, inputs=rows)
    again = ParityReport.from_json(report.to_json())
    assert again == report
    assert again.first_difference.evidence is None
    with pytest.raises(InputError, match=r"call interop\.check again"):
        again.first_difference.reproduction(tmp_path / "none")


@pytest.mark.parametrize("change", [softsign, scaled_weight, half_inserted])
def test_reproduction_shows_the_difference_and_its_cure(net, net_onnx, tmp_path, rows, change):
    wrong, _ = planted(net_onnx, tmp_path / "wrong.onnx", change)
    script = locate(net, wrong, rows, twin=net_onnx).reproduction(tmp_path / "case")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (run.returncode, run.stderr.strip()) == (1, "it differs")
    assert len(script.read_text().splitlines()) <= 13
    model = onnx.load(script.parent / "model.onnx")
    assert len(model.graph.node) <= 3
    if change is softsign:
        model.graph.node[0].op_type = "Tanh"
        onnx.save(model, script.parent / "model.onnx")
        assert subprocess.run([sys.executable, script], capture_output=True).returncode == 0


def test_passing_check_has_no_difference(net, net_onnx, rows):
    report = interop.check(net, net_onnx, inputs=rows)
    assert report.passed
    assert (report.first_difference, report.blame, report.witnesses) == (None, "", ())


def test_locate_false_looks_for_nothing(net, net_onnx, tmp_path, rows):
    wrong, _ = planted(net_onnx, tmp_path / "wrong.onnx", softsign)
    report = interop.check(net, wrong, inputs=rows, locate=False, witnesses=False)
    assert not report.passed
    assert (report.first_difference, report.witnesses) == (None, ())


def test_candidate_that_is_no_onnx_has_no_inner_values(net, rows):
    assert locate(net, net, rows) is None


def test_wrong_file_is_blamed_on_what_wrote_it(net, net_onnx, tmp_path, rows):
    wrong, _ = planted(net_onnx, tmp_path / "wrong.onnx", softsign)
    report = interop.check(net, wrong, inputs=rows, locate=False)
    assert report.blame.startswith("the exporter")
    assert [result.passed for result in report.witnesses] == [False, False]


def test_witnesses_on_request_agree_about_a_right_file(net, net_onnx, rows):
    report = interop.check(net, net_onnx, inputs=rows, witnesses=True)
    assert report.passed
    assert [result.passed for result in report.witnesses] == [True, True]
    assert "reference evaluator" in report.witnesses[1].candidate


def test_runtime_that_stands_alone_is_blamed():
    from interop.parity.blame import EVALUATOR, UNOPTIMISED, blame, blame_tensorflow

    assert "optimisations are off" in blame("m", {UNOPTIMISED: True, EVALUATOR: True})
    assert "ONNX Runtime stands alone" in blame("m", {UNOPTIMISED: False, EVALUATOR: True})
    assert blame("m", {UNOPTIMISED: False, EVALUATOR: False}).startswith("the exporter, or")
    assert blame("m", {}) == ""
    assert blame_tensorflow("m", [("onnxruntime", True)]).startswith("the converter")
    assert blame_tensorflow("m", [("onnxruntime", False)]).startswith("the exporter")
    assert blame_tensorflow("m", [], reloaded=True).startswith("the live model")
    assert blame_tensorflow("m", []) == ""


def test_segment_stops_at_known_values(net_onnx):
    graph = open_graph(net_onnx)
    last = graph.outputs[0]
    assert len(segment_of(graph, last, {})) == len(graph.nodes)
    known = set(inputs_of(graph.nodes[-1]))
    assert segment_of(graph, last, dict.fromkeys(known)) == [len(graph.nodes) - 1]


def test_large_weights_stay_outside_and_values_are_onnx_runtimes_own(tmp_path):
    """With external data the weights are memory maps; the result is NumPy's."""
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64]) for name in "xy")
    graph = helper.make_graph([node], "g", [given], [made], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    opened = open_graph(tmp_path / "m.onnx")
    assert isinstance(opened.weights["w"], np.memmap)
    x = np.ones((2, 64), np.float32)
    np.testing.assert_allclose(execute(opened, {"x": x}).values["y"], x @ weight, rtol=1e-5, atol=1e-5)


def test_store_puts_what_does_not_fit_into_files():
    store = Store(limit=10_000)
    arrays = {f"v{number}": np.full(3000, number, np.float32) for number in range(4)}
    for name, values in arrays.items():
        store[name] = values
    assert isinstance(store["v3"], np.memmap)
    assert all(np.array_equal(store[name], values) for name, values in arrays.items())


def test_a_node_that_raises_is_named_and_the_others_still_run():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"], "bad"),
        helper.make_node("Neg", ["a"], ["c"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "bc"]
    graph = helper.make_graph(nodes, "g", [given], made, [numpy_helper.from_array(np.array([3]), "shape")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    done = execute(open_graph(model), {"x": np.arange(-2, 2, dtype=np.float32)})
    assert list(done.errors) == [1]
    np.testing.assert_array_equal(done.values["c"], [0, 0, 0, -1])


def test_origin_reads_torchs_metadata(net_onnx):
    graph = open_graph(net_onnx)
    norm = [node for node in graph.nodes if node.op_type == "LayerNormalization"][1]
    origin = origin_of(norm)
    assert (origin.module, origin.torch_operator) == ("blocks.1.norm", "aten.layer_norm.default")
    assert origin.source.startswith("test_parity_locate.py:")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def failed_page(net, net_onnx, folder, rows):
    wrong, _ = planted(net_onnx, folder / "wrong.onnx", softsign)
    report = interop.check(net, wrong, inputs=rows)
    return report, report.to_html()


def test_page_shows_the_error_along_the_graph_and_the_modules(net, net_onnx, tmp_path, rows):
    report, page = failed_page(net, net_onnx, tmp_path, rows)
    found = report.first_difference
    assert page.count("<circle") >= len(found.layers) + 1
    assert "<polyline" in page
    assert found.source in page
    assert "blocks" in page
    assert "<script" not in page
    assert "http" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_page_is_drawn_by_a_browser(net, net_onnx, tmp_path, rows):
    """In the picture stand the red of the verdict, the blue of the curve, and the green of right modules."""
    from PIL import Image

    _, page = failed_page(net, net_onnx, tmp_path, rows)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    flags += ["--window-size=1200,2400", f"--screenshot={tmp_path / 'page.png'}"]
    command = [CHROMIUM, *flags, (tmp_path / "page.html").as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("RGB")).reshape(-1, 3).astype(int)
    for colour in ((194, 39, 27), (91, 126, 201), (46, 184, 77)):
        assert (np.abs(pixels - colour).max(1) < 30).sum() > 50, colour


def test_tensorflow_candidate_is_also_asked_after_it_was_written_and_loaded(net):
    exporters = pytest.importorskip("exporters")
    pytest.importorskip("tensorflow")
    exported = exporters.export_model(net, "tensorflow", inputs=(torch.zeros(2, 8),), verify=False)
    report = interop.check(net, exported, inputs=torch.ones(3, 8), witnesses=True)
    assert report.passed
    assert [result.passed for result in report.witnesses] == [True]
    assert "loaded again" in report.witnesses[0].candidate
    assert exported.path is None
