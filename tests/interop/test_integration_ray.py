"""Checks spread over Ray: merged reports, workers that die, jobs that raise."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interop.cli import main
from interop.errors import InputError
from interop.integrations import ray as ray_integration
from interop.integrations.ray import Job, check_many, merge_reports
from interop.parity.report import CaseResult, ParityReport

ray = pytest.importorskip("ray", reason="Ray is not installed")

NET = """
import os, signal
import torch


class Net(torch.nn.Module):
    def __init__(self, factor=2.0, act=None):
        super().__init__()
        self.factor, self.act = factor, act

    def forward(self, x):
        if self.act is not None:
            self.act()
        return x * self.factor


def build():
    return Net()


def slip():
    return Net(2.001)


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _count():
    with open("tries.txt", "a") as file:
        file.write("x")


def dies():
    def die():
        _count()
        _die()
    return Net(act=die)


def dies_once():
    def die_once():
        if not os.path.exists("died.txt"):
            open("died.txt", "w").close()
            _die()
    return Net(act=die_once)


def hangs():
    import time
    return Net(act=lambda: time.sleep(1000))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    (folder / "nets.py").write_text(NET)
    return folder


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One cluster for all tests, started as ``check_many`` starts its own: that takes seconds."""
    before = dict(os.environ)
    with ray_integration.cluster(ray, None, 2):
        assert ray.cluster_resources()["CPU"] == 2
        yield
        assert ray.is_initialized()  # check_many uses what is there, and leaves it
    assert not ray.is_initialized()
    assert {name: os.environ.get(name) for name in ray_integration._LOCAL_ENVIRONMENT} == {
        name: before.get(name) for name in ray_integration._LOCAL_ENVIRONMENT
    }


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def _batch(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)}


def test_shards_of_data_are_one_report() -> None:
    jobs = (Job("nets.py:build", ("nets.py:build",), f"shard {n}", {"inputs": _batch(n)}) for n in range(5))
    report = check_many(jobs)
    assert report.passed
    assert [case.case for case in report.cases] == [f"shard {n}: batch 0" for n in range(5)]
    assert report.candidates == ("nets.py:build",)
    assert "numpy" in report.versions


def test_models_are_judged_apart_and_a_raising_one_leaves_the_others() -> None:
    pairs = [
        ("nets.py:build", "nets.py:build"),
        ("nets.py:build", "nets.py:slip"),
        ("nets.py:build", "nets.py:nothing"),
        ("none.onnx", "nets.py:build"),
    ]
    report = check_many(pairs, inputs=_batch(0))
    assert [case.passed for case in report.cases] == [True, False, False, False]
    assert report.cases[1].outputs["output"].max_abs == pytest.approx(np.abs(_batch(0)["x"]).max() * 1e-3, rel=1e-2)
    assert "no attribute 'nothing'" in report.cases[2].error
    assert "no file none.onnx" in report.cases[3].error
    assert [case.case.partition(":")[0] for case in report.cases] == ["job 1", "job 2", "job 3", "job 4"]


def test_a_worker_that_dies_once_is_tried_again(place: Path) -> None:
    report = check_many([Job("nets.py:build", ("nets.py:dies_once",), "a", {"inputs": _batch(1)})])
    assert (place / "died.txt").exists()
    assert report.passed
    assert "its worker died" in report.skipped["a: try 1"]


def test_a_worker_that_always_dies_is_a_failed_job(place: Path) -> None:
    jobs = [
        Job("nets.py:build", ("nets.py:dies",), "bad", {"inputs": _batch(1)}),
        Job("nets.py:build", ("nets.py:build",), "good", {"inputs": _batch(1)}),
    ]
    report = check_many(jobs)
    assert not report.passed
    assert {case.candidate: case.passed for case in report.cases} == {"nets.py:dies": False, "nets.py:build": True}
    assert "its worker died" in report.cases[0].error
    assert "tried 2 times" in report.cases[0].error
    assert (place / "tries.txt").read_text() == "xx"


def test_isolated_candidates_do_not_take_the_worker_along() -> None:
    report = check_many([("nets.py:build", "nets.py:hangs")], inputs=_batch(0), timeout=2)
    assert "no answer within 2 s" in report.cases[0].error


def test_the_command_line_spreads_candidates_and_batches(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(2):
        np.savez(place / f"x{n}.npz", **_batch(n))
    words = ["check", "nets.py:build", "nets.py:build", "nets.py:slip", "--inputs", "x0.npz", "--inputs", "x1.npz"]
    assert main([*words, "--ray", "local", "--json", str(tmp_path / "r.json")]) == 1
    data = json.loads((tmp_path / "r.json").read_text())
    assert [(case["candidate"], case["case"], case["passed"]) for case in data["cases"]] == [
        ("nets.py:build", "x0.npz: batch 0", True),
        ("nets.py:build", "x1.npz: batch 0", True),
        ("nets.py:slip", "x0.npz: batch 0", False),
        ("nets.py:slip", "x1.npz: batch 0", False),
    ]
    assert main([*words[:3], "--inputs", "x0.npz", "--ray", "local"]) == 0
    assert main(["check", "nets.py:build", "none.onnx", "--ray", "local"]) == 2


@pytest.mark.parametrize(
    ("jobs", "message"),
    [([], "at least one job"), ([("a.onnx",)], "job 1 is a Job or"), ([Job("a.onnx", ())], "job 1 is a Job or")],
)
def test_no_job_is_an_error(jobs: list[tuple[str, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_many(jobs)


def test_a_time_out_is_for_candidates_that_can_be_loaded_elsewhere() -> None:
    with pytest.raises(InputError, match=r"job 1: with timeout= .* got a object"):
        check_many([("nets.py:build", object())], timeout=2)


def _report(*passed: bool, candidate: str = "c", reference: str = "r") -> ParityReport:
    cases = tuple(CaseResult(candidate, f"batch {n}", one, "" if one else "differs") for n, one in enumerate(passed))
    return ParityReport(reference, (candidate,), cases, {} if cases else {"normal": "the reference fails"})


@pytest.mark.parametrize(
    ("reports", "passed", "cases"),
    [
        ([_report(True), _report(True, True)], True, 3),
        ([_report(True), _report(True, False)], False, 3),
        ([_report(True), _report()], False, 2),  # nothing was compared: no pass
        ([_report(True, candidate="d"), _report()], False, 2),
    ],
)
def test_merged_reports_pass_only_where_all_do(reports: list[ParityReport], passed: bool, cases: int) -> None:
    merged = merge_reports((f"shard {n}", report) for n, report in enumerate(reports))
    assert merged.passed is passed
    assert len(merged.cases) == cases
    assert ParityReport.from_json(merged.to_json()).passed is passed


def test_merged_reports_keep_who_is_to_blame() -> None:
    second = replace(_report(False), blame="the exporter", witnesses=_report(False).cases)
    merged = merge_reports([("a", _report(True)), ("b", second), ("c", replace(second, blame="the runtime"))])
    assert merged.blame == "the exporter"
    assert [case.case for case in merged.witnesses] == ["b: batch 0", "c: batch 0"]


def test_merged_reports_name_what_they_share() -> None:
    assert merge_reports([("a", _report(True)), ("b", _report(True))]).reference == "r"
    assert merge_reports([("a", _report(True)), ("b", _report(True, reference="s"))]).reference == "2 references"
