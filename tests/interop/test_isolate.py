"""Candidates in processes of their own: crashes, hangs and orderly errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import interop
from interop.errors import InputError, InteropError, ModelFileError
from interop.parity import isolate
from interop.parity.isolate import Isolated, IsolationError, check_isolated

WEIGHT = np.array([[1, -2, 0.5], [-1, 0.25, 2]], np.float32)
X = np.array([[1, 2, 3], [-1, 0.5, -2]], np.float32)

NET = """
import ctypes, os, signal, sys, time
import torch

WEIGHT = torch.tensor({weight})


class Net(torch.nn.Module):
    def __init__(self, act=None):
        super().__init__()
        self.act = act
        self.register_buffer("weight", WEIGHT)

    def forward(self, x):
        print("computing")
        if self.act is not None:
            self.act(x)
        return x @ self.weight.T


class Nested(torch.nn.Module):
    def forward(self, pair, *, scale):
        return {{"sum": (pair[0] + pair[1]) * scale, "first": pair[0]}}

    def example_inputs(self):
        return ((torch.ones(2), torch.ones(2)),)

    def example_kwargs(self):
        return {{"scale": torch.ones(2)}}


def good():
    return Net()


def nested():
    return Nested()


def segfault():
    return Net(lambda x: ctypes.string_at(0))


def segfault_on_large():
    return Net(lambda x: ctypes.string_at(0) if x.shape[0] > 2 else None)


def leaves():
    def leave(x):
        print("I have had enough", file=sys.stderr, flush=True)
        os._exit(0)
    return Net(leave)


def raises():
    def fail(x):
        raise KeyError("no such expert")
    return Net(fail)


def starts_another():
    def start(x):
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        with open(os.environ["CHILD_FILE"], "w") as file:
            file.write(str(child))
        time.sleep(1000)
    return Net(start)
"""


LOADING = """
import os, signal, time


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps():
    time.sleep(1000)
"""


def _onnx(path: Path, weight: np.ndarray = WEIGHT) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["w"], ["wt"]), helper.make_node("MatMul", ["x", "wt"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("isolate")
    (folder / "nets.py").write_text(NET.format(weight=WEIGHT.tolist()))
    (folder / "loading.py").write_text(LOADING)
    _onnx(folder / "good.onnx")
    _onnx(folder / "bad.onnx", WEIGHT * np.float32(1.01))
    (folder / "text.onnx").write_text("this is no model\n")
    return folder


class Net(torch.nn.Module):
    def forward(self, x):
        return x @ torch.from_numpy(WEIGHT).T


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_isolated_runs_a_file_and_speaks_like_a_runtime(place: Path) -> None:
    runtime = Isolated(place / "good.onnx")
    assert interop.load(runtime) is runtime
    assert runtime.path == place / "good.onnx"
    assert runtime.signature.input_names == ("x",)
    np.testing.assert_allclose(runtime.run({"x": X})["y"], X @ WEIGHT.T, rtol=1e-6)
    answer = runtime.run({"x": torch.from_numpy(X)})["y"]
    assert isinstance(answer, torch.Tensor)
    with pytest.raises(InputError, match="expects float32"):
        runtime.run({"x": X.astype(np.float64)})
    runtime.close()
    np.testing.assert_allclose(runtime.run({"x": X})["y"], X @ WEIGHT.T, rtol=1e-6)
    runtime.close()


def test_a_file_called_like_a_library_does_not_replace_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnx.py").write_text("raise RuntimeError('not the library')\n")
    monkeypatch.chdir(tmp_path)
    np.testing.assert_allclose(Isolated(place / "good.onnx").run({"x": X})["y"], X @ WEIGHT.T, rtol=1e-6)


def test_isolated_tells_right_from_wrong(place: Path) -> None:
    report = check_isolated(Net(), place / "good.onnx", place / "bad.onnx", inputs={"x": X})
    assert {result.candidate: result.passed for result in report.cases} == {
        "good.onnx": True,
        "bad.onnx": False,
    }
    assert report.first_difference is None  # looking for it would run the candidate in this process
    assert interop.check(Net(), Isolated(place / "good.onnx"), inputs={"x": X}).passed


def test_a_torch_module_goes_by_the_names_of_the_reference(place: Path) -> None:
    assert check_isolated(place / "good.onnx", f"{place}/nets.py:good").passed


def test_a_nested_module_says_its_nesting_in_its_process(place: Path) -> None:
    class Nested(torch.nn.Module):
        def forward(self, pair, *, scale):
            return {"sum": (pair[0] + pair[1]) * scale, "first": pair[0]}

    inputs = {"pair": (torch.rand(2), torch.rand(2)), "scale": torch.rand(2)}
    report = check_isolated(Nested(), f"{place}/nets.py:nested", inputs=inputs)
    assert report.passed, report
    assert set(report.outputs) == {"sum", "first"}


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("segfault", "SIGSEGV"),
        ("raises", "KeyError: 'no such expert'"),
    ],
)
def test_what_ends_is_a_failed_candidate(place: Path, model: str, reason: str) -> None:
    report = check_isolated(Net(), f"{place}/nets.py:{model}", inputs={"x": X})
    assert not report.passed
    (case,) = report.cases
    assert reason in case.reason
    assert reason in case.error


def test_a_crash_on_some_inputs_leaves_the_others_judged(place: Path) -> None:
    batches = [{"x": X}, {"x": np.concatenate([X, X])}, {"x": X + 1}]
    report = check_isolated(Net(), f"{place}/nets.py:segfault_on_large", inputs=batches)
    assert [case.passed for case in report.cases] == [True, False, True]
    assert "SIGSEGV" in report.cases[1].reason


def test_a_model_that_dies_again_and_again_is_not_started_for_ever(place: Path) -> None:
    runtime = Isolated(f"{place}/nets.py:leaves")
    for reason in (
        "exit status 0; its last words: I have had enough",
        "exit status 0",
        "died 2 times in a row",
        "died 2 times in a row",
    ):
        with pytest.raises(IsolationError, match=reason):
            runtime.run({"x": X})


def test_a_death_while_loading_is_a_failed_candidate(place: Path, tmp_path: Path) -> None:
    words = (place / "good.onnx", f"{place}/loading.py:dies")
    report = check_isolated(Net(), *words, inputs={"x": X}, save=tmp_path / "run")
    assert [(case.candidate, case.passed) for case in report.cases] == [
        ("good.onnx", True),
        ("loading.py:dies", False),
    ]
    assert "SIGKILL" in report.cases[1].reason
    assert not interop.replay(tmp_path / "run").passed


def test_a_death_while_loading_fails_although_no_inputs_can_be_made(place: Path) -> None:
    report = check_isolated(Net(), f"{place}/loading.py:dies")
    assert not report.passed
    assert "SIGKILL" in report.summary


def test_a_model_that_hangs_while_it_loads_is_ended(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "LOADING_S", 4.0)
    runtime = Isolated(f"{place}/loading.py:sleeps", timeout=1)
    assert "no answer within 4 s" in runtime.failure


def test_a_time_out_ends_what_the_model_started(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHILD_FILE", str(tmp_path / "pid"))
    report = check_isolated(Net(), f"{place}/nets.py:starts_another", inputs={"x": X}, timeout=3)
    assert "no answer within 3 s" in report.cases[0].error
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(child)


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("none.onnx", InteropError, "no file"),
        ("text.onnx", ModelFileError, "text.onnx"),
        ("nets.py:nothing", InteropError, "no attribute 'nothing'"),
    ],
)
def test_an_orderly_error_of_loading_is_that_error(
    place: Path, model: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        Isolated(f"{place}/{model}")


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_out_is_above_zero(place: Path, seconds: float) -> None:
    with pytest.raises(InputError, match="above 0"):
        Isolated(place / "good.onnx", timeout=seconds)


def test_every_dtype_crosses_unchanged(tmp_path: Path) -> None:
    arrays = {
        "bfloat16": np.array([1.5, -0.0, np.nan], ml_dtypes.bfloat16),
        "float8": np.array([[0.5], [2]], ml_dtypes.float8_e4m3fn),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(7, np.int64),
        "mask": np.array([True, False]),
        "complex": np.array([1 + 2j], np.complex64),
        "text": np.array([["a", "ü"]], dtype=object),
    }
    described = json.loads(json.dumps(isolate._write_tensors(tmp_path / "t.npz", arrays)))
    found = isolate._read_tensors(tmp_path / "t.npz", described)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes() if array.dtype != object else (found[name] == array).all()


def test_the_process_and_its_files_end_with_the_one_that_asked(place: Path) -> None:
    code = (
        "from interop.parity.isolate import Isolated\n"
        f"runtime = Isolated({str(place / 'good.onnx')!r})\n"
        "print(runtime._process._process.pid, runtime._folder.name)\n"
    )
    root = str(Path(__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": root},
    )
    pid, folder = run.stdout.split()
    assert not _alive(int(pid))
    assert not Path(folder).exists()
