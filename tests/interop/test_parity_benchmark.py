"""The benchmark of planted faults, in small: floors under what it measures, so that a worse comparator shows here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    target = tmp_path_factory.mktemp("bench") / "figures.json"
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.parity"]
    run = subprocess.run(
        [*command, "--quick", "--workers", "1", "--json", target], cwd=ROOT, capture_output=True, text=True
    )
    assert target.is_file(), run.stderr[-2000:]
    return json.loads(target.read_text())


def test_quick_benchmark_plants_faults_of_many_kinds(figures):
    assert figures["planted"] >= 50
    assert figures["kinds"] >= 15
    assert figures["visible"] >= 30


def test_quick_benchmark_finds_and_locates_nearly_all(figures):
    assert figures["detection"] >= 0.97
    assert figures["exact"] >= 0.9


def test_quick_benchmark_fails_no_right_export(figures):
    assert figures["right_runs"] >= 20
    assert figures["false_alarms"] == 0


@pytest.fixture
def small():
    """Two layers with a weight, a bias, an activation and a symbolic batch."""
    weight = np.arange(16, dtype=np.float32).reshape(4, 4) / 7
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("Add", ["m", "b"], ["a"], "add"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Softmax", ["r"], ["y"], "softmax", axis=-1),
    ]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy")
    constants = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(weight[0] + 1, "b")]
    graph = helper.make_graph(nodes, "small", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("kind", FAULTS)
def test_fault_changes_the_model_and_names_its_own_nodes(small, kind):
    before = small.SerializeToString(deterministic=True)
    nodes = FAULTS[kind](small, np.random.default_rng(0))
    if nodes is None:
        assert small.SerializeToString(deterministic=True) == before
        return
    assert small.SerializeToString(deterministic=True) != before
    assert nodes
    assert nodes <= {node.name for node in small.graph.node}
    onnx.checker.check_model(small)


def test_most_kinds_fit_even_a_small_model(small):
    fitting = 0
    for kind in FAULTS.values():
        model = onnx.ModelProto()
        model.CopyFrom(small)
        fitting += kind(model, np.random.default_rng(0)) is not None
    assert len(FAULTS) >= 30
    assert fitting >= 15
