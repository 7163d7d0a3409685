"""Ray Tune over export and runtime options: the search space, the figures, the Pareto front, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from interop.cli import main
from interop.errors import InputError
from interop.integrations.ray_tune import Choice, Trial, TuneReport, Variant, choices, distance, measure_choice, search
from interop.parity.compare import compare
from tests.interop.runtime_models import info

pytest.importorskip("ray.tune", reason="Ray Tune is not installed")

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

    def forward(self, x):
        return self.layers(x)

    def example_inputs(self):
        return torch.linspace(-1, 1, 256).reshape(4, 64)
"""


def _trial(latency: float, error: float, threads: int, problem: str = "") -> Trial:
    return Trial(Choice(threads=threads), latency, error, error, problem)


def test_the_front_is_what_no_other_trial_beats():
    quick, exact, between, worse, equal, failed = trials = (
        _trial(1.0, 0.1, 1),
        _trial(3.0, 0.0, 2),
        _trial(2.0, 0.01, 3),
        _trial(2.5, 0.05, 4),
        _trial(3.0, 0.0, 5),
        _trial(0.0, 0.0, 6, "it failed"),
    )
    assert TuneReport(trials).pareto == (quick, between, exact, equal)
    assert worse not in TuneReport(trials).pareto and failed not in TuneReport(trials).pareto
    assert TuneReport((failed,)).pareto == ()
    data = json.loads(TuneReport((quick, worse, Trial(Choice(), problem="no"))).to_json())["trials"]
    assert [row["pareto"] for row in data] == [True, True, False]
    assert data[2]["latency"] is None and data[2]["problem"] == "no"


def test_a_grid_has_every_combination_and_a_sample_none_twice():
    space = {"precision": ["float32", "int8"], "threads": [1, 2, 4], "opset": [None, 20]}
    grid = choices(space)
    assert len(set(grid)) == len(grid) == 12
    sample = choices(space, samples=5, seed=1)
    assert len(set(sample)) == 5 and set(sample) < set(grid)
    assert sample == choices(space, samples=5, seed=1) != choices(space, samples=5, seed=2)
    assert choices(space, samples=100) == grid
    assert choices({"threads": [1, 1]}) == [Choice(threads=1)]


@pytest.mark.parametrize(
    ("space", "samples", "said"),
    [
        ({"thread": [1]}, None, r"got \['thread'\]"),
        ({"threads": []}, None, "nothing to choose"),
        ({"optimisation": ["most"]}, None, "most"),
        ({"threads": [1]}, 0, "at least 1"),
    ],
)
def test_a_space_without_meaning_is_an_error(space, samples, said):
    with pytest.raises(InputError, match=said):
        choices(space, samples)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ({"y": np.float32([1.0, 10.0])}, 0.0),
        ({"y": np.float32([1.0, 10.5])}, 0.05),
        ({"y": np.float32([1.0, np.nan])}, math.inf),
        ({"y": np.float32([[1.0, 10.0]])}, math.inf),
        ({"y": np.float64([1.0, 10.0])}, math.inf),
        ({"z": np.float32([1.0, 10.0])}, math.inf),
    ],
)
def test_the_distance_is_relative_to_the_scale_of_the_output(candidate, expected):
    assert distance(compare({"y": np.float32([1.0, 10.0])}, candidate)) == pytest.approx(expected)


def _model(factor: float) -> bytes:
    node = helper.make_node("Mul", ["x", "f"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [info("x", TensorProto.FLOAT, ["n"])],
        [info("y", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor("f", TensorProto.FLOAT, [1], [factor])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


def test_a_measured_choice_tells_time_and_difference():
    x = {"x": np.float32([1, 2, 4])}
    trial = measure_choice(
        Choice(threads=1, optimisation="basic"), Variant(None, "", _model(2.5)), x, {"y": x["x"] * 2}, 0.02
    )
    assert trial.problem == "" and 0 < trial.latency < 1
    assert trial.error == trial.measured == pytest.approx(0.25)
    noise = measure_choice(Choice(), Variant(None, "", _model(2.0000002)), x, {"y": x["x"] * 2}, 0.02)
    assert noise.error == 0 < noise.measured < 1e-6
    wrong = measure_choice(Choice(provider="None"), Variant(None, "", _model(2)), x, {"y": x["x"]}, 0.02)
    assert "providers ['None']" in wrong.problem and math.isinf(wrong.latency)


def test_a_choice_without_a_file_is_an_error_and_one_that_could_not_be_made_a_failed_trial():
    with pytest.raises(InputError, match=r"missing: .*'None float16'"):
        search([Choice(precision="float16")], [Variant(None, "float32")], {}, {})
    report = search([Choice()], [Variant(None, "float32", problem="no such operator")], {}, {})
    assert report.trials == (Trial(Choice(), problem="no such operator"),)


def test_the_command_prints_the_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "tuned_net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    words = ["tune", "tuned_net.py:Net", "--precision", "float32", "--precision", "int8", "--threads", "1"]
    words += ["--optimisation", "all", "--optimisation", "none", "--seconds", "0.05", "--json", "figures.json"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    trials = json.loads((tmp_path / "figures.json").read_text())["trials"]
    assert [(row["choice"]["precision"], row["choice"]["optimisation"]) for row in trials] == [
        ("float32", "all"), ("float32", "none"), ("int8", "all"), ("int8", "none"),
    ]  # fmt: skip
    assert all(row["problem"] == "" and 0 < row["latency"] < 1 for row in trials)
    assert all(row["error"] == 0 and row["measured"] < 1e-5 for row in trials[:2])
    assert all(1e-4 < row["error"] < 0.2 for row in trials[2:])  # int8 is another function
    front = [row for row in trials if row["pareto"]]
    assert any(row["choice"]["precision"] == "float32" for row in front)
    lines = shown.splitlines()
    assert lines[0].split()[:5] == ["opset", "precision", "threads", "optimisation", "provider"]
    assert len(lines) == 1 + len(front) + 2
    assert f"{len(front)} of 4 trials" in lines[-1]


def test_the_command_says_what_it_does_not_know(capsys: pytest.CaptureFixture[str]):
    assert main(["tune", "none.onnx", "--optimisation", "most"]) == 2
    assert "most" in capsys.readouterr().err
    assert main(["tune", "none.onnx"]) == 2
    assert "no file none.onnx" in capsys.readouterr().err
