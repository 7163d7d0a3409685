"""An optimisation at fault: the runtime is blamed, and only where the file itself is right.

No wrong optimisation of ONNX Runtime is at hand that every version has, so its sessions are wrapped: one that optimises gives
wrong numbers, one that does not is left alone. Verdict, witnesses and search are the real ones.
"""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import interop
from interop.parity.blame import UNOPTIMISED
from tests.interop.parity.nets import Net, rows, seeded, to_onnx


@pytest.fixture(scope="module")
def net():
    return seeded(Net)


@pytest.fixture(scope="module")
def path(net, tmp_path_factory):
    return to_onnx(net, (rows(4, 8),), tmp_path_factory.mktemp("net") / "net.onnx")


@pytest.fixture
def wrong_optimiser(net, path, monkeypatch):
    """A candidate whose session was optimised wrongly: the last bias is lost."""
    model = onnx.load(path)
    bias = next(one for one in model.graph.initializer if one.name == "head.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(np.zeros(3, np.float32), bias.name))
    from interop.runtimes import load

    candidate, wrong = load(path), load(model)
    right = type(candidate).run
    monkeypatch.setattr(
        type(candidate), "run", lambda self, inputs, **more: right(wrong if self is candidate else self, inputs, **more)
    )
    return candidate


def test_a_wrong_optimisation_is_the_runtimes_and_no_nodes_fault(net, wrong_optimiser):
    report = interop.check(net, wrong_optimiser, inputs=rows(4, 8))
    assert not report.passed
    assert report.blame.startswith("the runtime:")
    assert "once ONNX Runtime's graph optimisations are off" in report.blame
    assert report.first_difference.node == ""
    assert "optimisations off, nothing differs" in report.first_difference.reason
    verdicts = {result.candidate.partition(": ")[2]: result.passed for result in report.witnesses}
    assert verdicts[UNOPTIMISED]


def test_the_same_numbers_in_the_file_are_the_exporters_fault(net, path, tmp_path):
    model = onnx.load(path)
    bias = next(one for one in model.graph.initializer if one.name == "head.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(np.zeros(3, np.float32), bias.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    report = interop.check(net, tmp_path / "wrong.onnx", inputs=rows(4, 8))
    assert report.blame.startswith("the exporter")
    assert report.first_difference.module == "head"


def test_optimised_and_unoptimised_sessions_really_differ_in_what_they_run(path, tmp_path):
    """What the witness without optimisations is for: ONNX Runtime does rewrite this graph when it may."""
    counts = {}
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(tmp_path / f"{level.name}.onnx")
        options.log_severity_level = 4
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        counts[level.name] = len(onnx.load(options.optimized_model_filepath).graph.node)
    assert counts["ORT_ENABLE_ALL"] != counts["ORT_DISABLE_ALL"]
