"""The command line: every command, every exit status, every kind of bad input."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import flatbuffers
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from ai_edge_litert import schema_py_generated as litert_schema
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import interop
from exporters import export_model
from interop.cli import app, main
from interop.cli._common import explain_error, human_bytes, working
from interop.cli.export import parse_dynamic, place_arguments
from interop.errors import InputError, InteropError, MissingExtraError, ModelFileError
from interop.specs import is_spec, resolve

ROOT = Path(__file__).resolve().parents[2]
WEIGHT = np.array([[1, -2, 0.5, 3], [-1, 0.25, 2, -0.5], [0, 1, -1, 1]], np.float32)
BIAS = np.array([0.5, -0.25, 0], np.float32)
INPUT = np.array([[1, 2, 3, 4], [-1, 0.5, -2, 0]], np.float32)

NET = """
import torch

print("a module that prints")
WEIGHT = torch.tensor({weight})
BIAS = torch.tensor({bias})


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.linear.load_state_dict({{"weight": WEIGHT, "bias": BIAS}})

    def forward(self, x):
        return torch.relu(self.linear(x))

    def example_inputs(self):
        return (torch.ones(2, 4),)


class Zoo:
    net = Net()


def build():
    return Net().eval()


def build_sized(size):
    return Net()


def build_badly():
    raise ValueError("the weights are gone")


def build_number():
    return 3


net = build()
number = 3
"""


def _onnx_model(scale: float = 1.0) -> onnx.ModelProto:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(WEIGHT * np.float32(scale), "w"), numpy_helper.from_array(BIAS, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="by hand")
    model.ir_version = 10
    helper.set_model_props(model, {"torch class": "net.Net"})
    return model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model in several forms, and its inputs."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "net.py").write_text(NET.format(weight=WEIGHT.tolist(), bias=BIAS.tolist()))
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").touch()
    (folder / "pack" / "model.py").write_text("from net import build\n")
    (folder / "raises.py").write_text("raise RuntimeError('no\\nGPU')\n")
    (folder / "exits.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "needs.py").write_text("import a_library_that_is_not_here\n")
    (folder / "syntax.py").write_text("def (:\n")
    onnx.save(_onnx_model(), folder / "good.onnx")
    onnx.save(_onnx_model(1.01), folder / "bad.onnx")
    (folder / "cut.onnx").write_bytes((folder / "good.onnx").read_bytes()[:-40])
    (folder / "empty.onnx").touch()
    (folder / "text.onnx").write_text("this is no model\n")
    (folder / "folder").mkdir()
    np.savez(folder / "x.npz", x=INPUT)
    np.savez(folder / "wrong.npz", z=INPUT)
    np.savez(folder / "wide.npz", x=np.ones((2, 5), np.float32))
    np.savez(folder / "double.npz", x=INPUT.astype(np.float64))
    np.savez(folder / "objects.npz", x=np.array([{}], dtype=object))
    np.save(folder / "one.npy", INPUT)
    (folder / "cut.npz").write_bytes((folder / "x.npz").read_bytes()[:100])
    torch.save({"weight": torch.from_numpy(WEIGHT)}, folder / "weights.pt")
    return folder


@pytest.fixture(autouse=True)
def own_modules(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in the folder, and forget what a SPEC imported."""
    monkeypatch.chdir(place)
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(place) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def _interop(*words: str, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "interop", *words]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=500, check=False, **options
    )  # type: ignore[call-overload,no-any-return]  # any of run's options


def _error(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Run a command that has to fail with status 2 and two lines; give the lines."""
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    lines = captured.err.replace("a module that prints\n", "").splitlines()
    assert captured.out == ""
    assert len(lines) == 2, captured.err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("next: ")
    return lines[0].removeprefix("error: "), lines[1].removeprefix("next: ")


# ---------------------------------------------------------------------------------------------------- help and errors


@pytest.mark.parametrize("words", [[], ["export"], ["check"], ["run"], ["inspect"], ["doctor"]])
def test_help_shows_usage(words: list[str]) -> None:
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output
    assert "--help" in result.output


def test_no_arguments_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "inspect" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["export", "--help"], ["check", "--help"], ["doctor", "--help"]]
)
def test_help_and_version_import_no_framework_and_are_quick(words: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom interop.cli import main\n"
        f"status = main({words!r})\n"
        "heavy = {'torch', 'tensorflow', 'onnx', 'onnxruntime', 'onnx_ir', 'onnxscript', 'jax', 'keras', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\nsys.exit(status)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.5, times  # processor time, because other work on the machine is not the command's


def test_debug_shows_the_traceback_with_the_same_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debug", "inspect", "raises.py:net"]) == 2
    errors = capsys.readouterr().err
    assert "Traceback" in errors
    assert "RuntimeError: no\nGPU" in errors


@pytest.mark.parametrize(
    ("words", "what", "step"),
    [
        (["frobnicate"], "No such command", "interop --help"),
        (["inspect"], "Missing argument", "interop inspect --help"),
        (["check", "a.onnx"], "Missing argument", "interop check --help"),
        (["check", "a.onnx", "b.onnx", "--atol", "much"], "--atol", "interop check --help"),
        (["check", "a.onnx", "b.onnx", "--atol", "-1"], "--atol", "interop check --help"),
        (["run", "good.onnx"], "--inputs", "interop run --help"),
        (["inspect", "good.onnx", "--frob"], "--frob", "interop inspect --help"),
        (["inspect", "none.onnx"], "no file none.onnx", "file.py:attribute"),
        (["inspect", "net.py"], "does not say which model", "net.py:Net"),
        (["inspect", "none.py:net"], "no file none.py", "file.py:attribute"),
        (["inspect", "none.module:net"], "no module 'none'", "folder that holds none"),
        (["inspect", "pack.none:net"], "no module 'pack.none'", "folder that holds pack"),
        (["inspect", "net.py:Nett"], "no attribute 'Nett'", "Net"),
        (["inspect", "net.py:Zoo.nett"], "no attribute 'Zoo.nett'", "Zoo"),
        (["inspect", "net.py:number"], "is a int", "file.py:attribute"),
        (
            ["inspect", "net.py:build_sized"],
            "cannot be called without arguments: missing a required argument: 'size'",
            "without",
        ),
        (["inspect", "net.py:build_badly"], "raised ValueError when it was called: the weights are gone", "--debug"),
        (["inspect", "net.py:build_number"], "returned a int", "nn.Module"),
        (["inspect", "raises.py:net"], "raises.py raised RuntimeError when it was imported: no GPU", "--debug"),
        (["inspect", "raises:net"], "raises raised RuntimeError when it was imported: no GPU", "--debug"),
        (["inspect", "exits.py:net"], "raised SystemExit when it was imported: 3", "__main__"),
        (["inspect", "needs.py:net"], "a_library_that_is_not_here", "install or correct that import"),
        (["inspect", "needs:net"], "a_library_that_is_not_here", "install or correct that import"),
        (["inspect", "syntax.py:net"], "raised SyntaxError", "--debug"),
        (["inspect", "weights.pt"], "is a pickle", "file.py:function"),
        (["check", "net.py:net", "weights.pt"], "is a pickle", "file.py:function"),
        (["inspect", "cut.onnx"], "not an ONNX model, or a truncated one", "interop inspect"),
        (["inspect", "text.onnx"], "not an ONNX model", "interop inspect"),
        (["inspect", "empty.onnx"], "empty", "interop inspect"),
        (["inspect", "folder"], "not a SavedModel", "interop inspect"),
        (["run", "folder", "--inputs", "x.npz"], "folder without saved_model.pb", "interop inspect"),
        (["run", "cut.onnx", "--inputs", "x.npz"], "truncated", "interop inspect"),
        (["run", "good.onnx", "--inputs", "none.npz"], "no file none.npz", "numpy.savez"),
        (["run", "good.onnx", "--inputs", "one.npy"], "without a name", "numpy.savez"),
        (["run", "good.onnx", "--inputs", "objects.npz"], "Object arrays cannot be loaded", "numpy.savez"),
        (["run", "good.onnx", "--inputs", "cut.npz"], "cannot be read as .npz", "numpy.savez"),
        (["run", "good.onnx", "--inputs", "good.onnx"], "cannot be read as .npz", "numpy.savez"),
        (["run", "good.onnx", "--inputs", "wrong.npz"], "missing ['x']", "interop inspect MODEL"),
        (["run", "good.onnx", "--inputs", "wide.npz"], "expects 4 at axis 1", "interop inspect MODEL"),
        (["run", "good.onnx", "--inputs", "double.npz"], "expects float32, got float64", "interop inspect MODEL"),
        (
            ["run", "good.onnx", "--inputs", "x.npz", "--runtime", "magic"],
            "no runtime is called 'magic'",
            "onnxruntime, tensorflow",
        ),
        (["run", "good.onnx", "--inputs", "x.npz", "--out", "nowhere/y.npz"], "no folder nowhere", "make it"),
        (["check", "net.py:net", "good.onnx", "--json", "nowhere/r.json"], "no folder nowhere", "make it"),
        (["check", "net.py:net", "none.onnx"], "no file none.onnx", "file.py:attribute"),
        (["check", "net.py:net", "cut.onnx"], "truncated", "interop inspect"),
        (["export", "net.py:net", "--out", "o"], "--to", "interop export --help"),
        (["export", "net.py:net", "--to", "onnx"], "--out", "interop export --help"),
        (["export", "net.py:net", "--to", "onyx", "--out", "o"], "no format is called 'onyx'", "onnx, tensorflow"),
        (["export", "net.py:net", "--to", "onnx", "--out", "x.npz"], "cannot write to x.npz", "--out"),
        (["export", "net.py:net", "--to", "onnx", "--out", "/proc/o"], "cannot write to /proc/o", "--out"),
        (["export", "good.onnx", "--to", "onnx", "--out", "."], "good.onnx is the model itself", "--name"),
        (["export", "good.onnx", "--to", "onnx", "--out", "o", "--opset", "18"], "keeps its own", "leave it out"),
        (
            ["export", "good.onnx", "--to", "onnx", "--out", "o", "--dynamic", "x:0=n"],
            "torch models only",
            "leave it out",
        ),
        (["export", "good.onnx", "--to", "torch", "--out", "o", "--inputs", "wrong.npz"], "missing ['x']", "inspect"),
        (["export", "cut.onnx", "--to", "torch", "--out", "o"], "truncated", "interop inspect"),
        (["export", "folder", "--to", "onnx", "--out", "o"], "is not a model that can be exported", "export --help"),
        (["export", "none.keras", "--to", "onnx", "--out", "o"], "no file none.keras", "file.py:attribute"),
        (["export", "net.py:net", "--to", "onnx", "--out", "o", "--dynamic", "x"], "--dynamic x", "x:0=batch"),
        (["export", "net.py:net", "--to", "tensorflow", "--out", "o", "--opset", "18"], "--opset 18", "leave it out"),
        (
            ["export", "net.py:net", "--to", "onnx", "--out", "o", "--inputs", "wrong.npz"],
            "do not fit forward(x)",
            "x=...",
        ),
    ],
)
def test_bad_input_is_two_lines(capsys: pytest.CaptureFixture[str], words: list[str], what: str, step: str) -> None:
    said, following = _error(capsys, *words)
    assert what in said
    assert step in following


def test_bad_input_leaves_nothing_behind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (["export", "net.py:none", "--to", "onnx"], ["export", "weights.pt", "--to", "onnx"]):
        _error(capsys, *words, "--out", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_unwritable_file_keeps_what_was_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "y.npz").mkdir()
    said, _ = _error(capsys, "run", "good.onnx", "--inputs", "x.npz", "--out", str(tmp_path / "y.npz"))
    assert "cannot write" in said
    assert [path.name for path in tmp_path.iterdir()] == ["y.npz"]


@pytest.mark.parametrize(
    ("error", "what", "step"),
    [
        (MissingExtraError("jax", "jax", "to try"), "jax is needed to try", "install"),
        (ModelFileError("m.onnx: odd\nfile"), "m.onnx: odd file", "interop inspect"),
        (InputError("input 'x'"), "input 'x'", "interop inspect"),
        (InteropError("anything"), "anything", "--debug"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero", "--debug"),
        (KeyError(), "KeyError", "--debug"),
    ],
)
def test_every_error_has_a_next_step(error: Exception, what: str, step: str) -> None:
    said, following = explain_error(error)
    assert what in said
    assert step in following
    assert "\n" not in said + following


# --------------------------------------------------------------------------------------------------------------- SPECs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("package.module:name", True),
        ("module:a.b", True),
        ("folder/file.py:name", True),
        ("C:/file.py:name", True),
        ("C:\\models\\net.onnx", False),
        ("model.onnx", False),
        ("module:", False),
        (":name", False),
        ("not a module:name", False),
        ("module:not-a-name", False),
    ],
)
def test_is_spec_tells_specs_from_paths(text: str, expected: bool) -> None:
    assert is_spec(text) is expected


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").touch()
    assert not is_spec("a:b")


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("net.py:net", "net"),
        ("net.py:Net", "Net"),
        ("net.py:build", "build"),
        ("net.py:Zoo.net", "net"),
        ("net:build", "build"),
        ("pack.model:build", "build"),
        ("./pack/../net.py:build", "build"),
    ],
)
def test_resolve_gives_the_module_that_a_spec_names(spec: str, name: str) -> None:
    target = resolve(spec)
    assert target.name == name
    assert isinstance(target.value, torch.nn.Module)
    expected = np.maximum(INPUT @ WEIGHT.T + BIAS, 0)
    np.testing.assert_allclose(target.value(torch.from_numpy(INPUT)).detach().numpy(), expected, rtol=1e-6)


def test_a_file_called_like_a_library_does_not_replace_it(place: Path, tmp_path: Path) -> None:
    (tmp_path / "onnx.py").write_text((place / "net.py").read_text())
    checked = _interop("check", str(tmp_path / "onnx.py:build"), "good.onnx", cwd=place)
    assert checked.returncode == 0, checked.stderr


def test_resolve_reads_an_exported_program(tmp_path: Path) -> None:
    program = torch.export.export(resolve("net.py:build").value, (torch.ones(2, 4),))
    torch.export.save(program, tmp_path / "net.pt2")
    target = resolve(str(tmp_path / "net.pt2"))
    assert target.name == "net"
    assert isinstance(target.value, torch.export.ExportedProgram)


def test_trust_reads_a_pickle_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "whole.pt"
    torch.save(torch.nn.Linear(4, 3), path)
    assert "pickle" in _error(capsys, "inspect", str(path))[0]
    assert main(["inspect", str(path), "--trust"]) == 0
    assert "Linear 1" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------- commands


def test_run_writes_and_shows_the_outputs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "good.onnx", "--inputs", "x.npz", "--out", str(tmp_path / "y.npz")]) == 0
    expected = np.maximum(INPUT @ WEIGHT.T + BIAS, 0)
    with np.load(tmp_path / "y.npz", allow_pickle=False) as written:
        assert written.files == ["y"]
        np.testing.assert_allclose(written["y"], expected, rtol=1e-6)
    row = capsys.readouterr().out.splitlines()[1].split(maxsplit=2)
    assert row[:2] == ["y", "float32"]
    assert row[2].startswith("[2, 3]")
    assert f"{expected[0, 0]:.6g}" in row[2]
    assert [path.name for path in tmp_path.iterdir()] == ["y.npz"]


def test_run_takes_a_spec_and_keeps_its_prints_off_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "net.py:build", "--inputs", "x.npz"]) == 0
    captured = capsys.readouterr()
    assert "[2, 3]" in captured.out
    assert "a module that prints" not in captured.out
    assert "a module that prints" in captured.err


def test_run_restores_dtypes_that_npz_loses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "same",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.save(model, tmp_path / "same.onnx")
    np.savez(tmp_path / "x.npz", x=np.array([1.5, -3], ml_dtypes.bfloat16))
    assert main(["run", str(tmp_path / "same.onnx"), "--inputs", str(tmp_path / "x.npz")]) == 0
    out = capsys.readouterr().out
    assert "bfloat16" in out
    assert "1.5, -3" in out


def test_check_passes_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "net.py:build", "good.onnx"]) == 0
    out = capsys.readouterr().out
    assert "good.onnx" in out
    assert "FAIL" not in out


def test_check_fails_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "net.py:build", "good.onnx", "bad.onnx", "--inputs", "x.npz"]) == 1
    rows = [line for line in capsys.readouterr().out.splitlines() if "batch 0  " in line]
    assert [("good.onnx" in row, "FAIL" in row) for row in rows] == [(True, False), (False, True)]


def test_check_fails_with_status_1_under_typer_itself() -> None:
    assert CliRunner().invoke(app, ["check", "good.onnx", "bad.onnx"]).exit_code == 1


def test_check_tolerances_decide(capsys: pytest.CaptureFixture[str]) -> None:
    difference = np.abs(np.maximum(INPUT @ WEIGHT.T + BIAS, 0) - np.maximum(INPUT @ (WEIGHT * 1.01).T + BIAS, 0)).max()
    words = ["check", "good.onnx", "bad.onnx", "--inputs", "x.npz"]
    assert main([*words, "--atol", str(difference * 1.01)]) == 0
    assert main([*words, "--atol", str(difference * 0.9)]) == 1
    assert main([*words, "--rtol", "0.02"]) == 0


def test_check_writes_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["check", "net.py:build", "bad.onnx", "--inputs", "x.npz"]
    assert main([*words, "--json", str(tmp_path / "report.json")]) == 1
    assert capsys.readouterr().out
    assert main([*words, "--json", "-"]) == 1
    for text in (capsys.readouterr().out, (tmp_path / "report.json").read_text()):
        data = json.loads(text)
        assert data["passed"] is False
        assert data["candidates"] == ["bad.onnx"]


def test_inspect_says_what_an_onnx_file_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "good.onnx", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["format"] == "ONNX"
    assert data["file_bytes"] == Path("good.onnx").stat().st_size
    assert data["operators"] == {"Gemm": 1, "Relu": 1}
    assert data["opsets"] == {"ai.onnx": 18}
    assert (data["parameters"], data["tensors"], data["parameter_bytes"]) == (15, 2, 60)
    assert data["metadata"] == {"producer": "by hand", "IR version": "10", "torch class": "net.Net"}
    assert data["signature"]["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}]
    assert main(["inspect", "good.onnx"]) == 0
    text = capsys.readouterr().out
    for line in ("x: float32[batch, 4]", "y: float32[batch, 3]", "15 in 2 tensors, 60 B", "ai.onnx 18", "net.Net"):
        assert line in text


def test_inspect_counts_in_branches_and_functions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = [helper.make_tensor_value_info("o", TensorProto.FLOAT, [2])]
    constant = numpy_helper.from_array(np.ones(2, np.float32), "o")
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["o"])], "then", [], out)
    orelse = helper.make_graph([], "else", [], out, [constant])
    nodes = [
        helper.make_node("If", ["c"], ["h"], then_branch=then, else_branch=orelse),
        helper.make_node("Twice", ["h"], ["y"], domain="own"),
    ]
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=10), tmp_path / "m.onnx")
    assert main(["inspect", str(tmp_path / "m.onnx"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["operators"] == {"If": 1, "Neg": 1, "own.Twice": 1, "Add": 1}
    assert (data["parameters"], data["tensors"], data["parameter_bytes"]) == (2, 1, 8)
    assert data["opsets"] == {"ai.onnx": 18, "own": 1}
    assert data["signature"]["outputs"][0]["shape"] is None


def test_inspect_reads_a_torch_module_and_a_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["inspect", "net.py:build", "--json"]) == 0
    module = json.loads(capsys.readouterr().out)
    assert module["operators"] == {"Linear": 1}
    program = torch.export.export(resolve("net.py:build").value, (torch.ones(2, 4),))
    torch.export.save(program, tmp_path / "net.pt2")
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "net.pt2"), "--json"]) == 0
    archive = json.loads(capsys.readouterr().out)
    assert archive["operators"] == {"aten.linear.default": 1, "aten.relu.default": 1}
    assert archive["signature"]["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 4]}]
    for data in (module, archive):
        assert (data["parameters"], data["tensors"], data["parameter_bytes"]) == (15, 2, 60)


def test_inspect_reads_a_savedmodel(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import tensorflow as tf

    class Net(tf.Module):  # type: ignore[misc]  # tf.Module is untyped
        def __init__(self) -> None:
            self.weight = tf.Variable(WEIGHT.T)

        @tf.function
        def __call__(self, x):  # type: ignore[no-untyped-def]  # tf.function reads annotations as type constraints
            return {"y": tf.nn.relu(x @ self.weight)}

    net = Net()
    signature = net.__call__.get_concrete_function(tf.TensorSpec([None, 4], tf.float32, name="x"))
    tf.saved_model.save(net, str(tmp_path / "net"), signatures={"serving_default": signature})
    assert main(["inspect", str(tmp_path / "net"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["operators"] == {"MatMul": 1, "Relu": 1}
    assert (data["parameters"], data["tensors"], data["parameter_bytes"]) == (12, 1, 48)
    assert data["metadata"]["TensorFlow"] == tf.__version__
    (tmp_path / "net" / "saved_model.pb").write_bytes(b"\x0a\xff damaged")
    assert main(["inspect", str(tmp_path / "net")]) == 2
    assert "damaged" in capsys.readouterr().err


def test_inspect_reads_a_litert_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "net.tflite"
    export_model(resolve("net.py:build").value, "litert", path=file, inputs=torch.ones(2, 4), verify=False)
    capsys.readouterr()
    assert main(["inspect", str(file), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["format"] == "LiteRT"
    assert data["file_bytes"] == file.stat().st_size
    assert data["operators"] == {"FULLY_CONNECTED": 1}  # with the ReLU in it
    assert (data["parameters"], data["tensors"], data["parameter_bytes"]) == (15, 2, 60)
    assert data["signature"]["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}]
    assert data["metadata"].keys() == {"schema version", "description", "min_runtime_version"}
    model = litert_schema.ModelT.InitFromPackedBuf(file.read_bytes(), 0)
    for entry in model.metadata:
        entry.buffer = 10**6  # which the interpreter does not look at
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    file.write_bytes(builder.Output())
    assert main(["inspect", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"].keys() == {"schema version", "description"}
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert main(["inspect", str(file)]) == 2
    assert "LiteRT cannot load it" in capsys.readouterr().err


def test_inspect_reads_a_libtorch_project_and_none_of_its_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = {"AOTI_DEVICE_KEY": "cpu", "AOTI_MACHINE": "x86_64", "AOTI_CPU_ISA": "AVX2", "AOTI_COMPUTE_CAPABILITY": ""}
    with zipfile.ZipFile(tmp_path / "model.pt2", "w") as archive:
        archive.writestr("model/data/aotinductor/model/c.wrapper_metadata.json", json.dumps(said))
        archive.writestr("model/data/aotinductor/model/c.wrapper.so", b"no code at all")
    signature = interop.load("good.onnx").signature
    (tmp_path / "tensor_interop.json").write_text(json.dumps({"signature": signature.to_json()}))
    assert main(["inspect", str(tmp_path), "--json"]) == 0, capsys.readouterr().err
    data = json.loads(capsys.readouterr().out)
    assert data["format"] == "LibTorch project"
    assert data["signature"] == signature.to_json()
    assert data["metadata"] == {"device": "cpu", "machine": "x86_64", "instructions": "AVX2"}
    assert data["operators"] is None and data["parameters"] is None
    assert main(["inspect", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "x: float32[batch, 4]" in text and "operators" not in text
    (tmp_path / "model.pt2").write_bytes(b"PK not really")
    assert main(["inspect", str(tmp_path)]) == 2
    assert "not an AOTInductor package" in capsys.readouterr().err


def test_doctor_prints_json_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--quick", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert any(package["name"] == "torch" and package["version"] for package in data["packages"])
    assert main(["doctor", "--quick"]) == 0
    assert "What you can do here" in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------------------- export


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["auto"], "auto"),
        (["none"], None),
        (["x:0=batch"], {"x": {0: "batch"}}),
        (["x:0=batch,2=time", "y:1=width", "x:3=more"], {"x": {0: "batch", 2: "time", 3: "more"}, "y": {1: "width"}}),
    ],
)
def test_parse_dynamic_gives_what_export_model_takes(words: list[str], expected: object) -> None:
    assert parse_dynamic(words) == expected


def test_export_writes_files_that_compute_the_same(place: Path, tmp_path: Path) -> None:
    """Its own process, as a user runs it; the witness for the values is NumPy."""
    import tensorflow as tf

    done = _interop(
        "export", "net.py:build", "--to", "onnx", "--to", "tensorflow", "--out", str(tmp_path / "o"), cwd=place
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "a module that prints\n"
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["build", "build.onnx"]
    for text in ("build.onnx", "x: float32[batch, 4]", "dynamic", "batch", "pass"):
        assert text in done.stdout
    assert "FAIL" not in done.stdout
    wide = np.vstack([INPUT, INPUT, INPUT])
    expected = np.maximum(wide @ WEIGHT.T + BIAS, 0)
    session = onnxruntime.InferenceSession(tmp_path / "o" / "build.onnx")
    np.testing.assert_allclose(session.run(None, {"x": wide})[0], expected, rtol=1e-6)
    serve = tf.saved_model.load(str(tmp_path / "o" / "build")).signatures["serving_default"]
    (found,) = serve(x=tf.constant(wide)).values()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_export_options_reach_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "net.py:Net", "--to", "onnx", "--out", str(tmp_path), "--name", "mine", "--inputs", "x.npz"]
    assert main([*words, "--dynamic", "none", "--opset", "19", "--no-verify"]) == 0
    model = onnx.load(tmp_path / "mine.onnx")
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [2, 4]
    assert [entry.version for entry in model.opset_import if entry.domain == ""] == [19]
    out = capsys.readouterr().out
    assert "no dimension" in out
    assert "verdict" not in out
    assert "evaluation mode" in out  # the class gives a model in training mode
    assert main([*words, "--dynamic", "x:0=rows"]) == 0
    model = onnx.load(tmp_path / "mine.onnx")
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.onnx"]


def test_export_of_another_function_is_status_1_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clock.py").write_text(
        "import time, torch\n\n\nclass Clock(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x * time.monotonic()\n"  # capture makes a constant of it
    )
    np.savez("x.npz", x=np.ones((2, 3), np.float32))
    words = ["export", "clock.py:Clock", "--to", "onnx", "--out", "o", "--inputs", "x.npz"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert "not the same function" in out
    assert list((tmp_path / "o").iterdir()) == []
    assert main([*words, "--no-verify"]) == 0
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["Clock.onnx"]


def test_export_errors_are_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.py").write_text(
        "import torch\n\n\nclass Unknown(torch.nn.Module):\n    def forward(self, anything):\n        return anything + 1\n"
        "\n\nclass Branch(torch.nn.Module):\n    def example_inputs(self):\n        return (torch.ones(2, 3),)\n\n"
        "    def forward(self, x):\n        return x if x.sum() > 0 else -x\n"
    )
    said, step = _error(capsys, "export", "odd.py:Unknown", "--to", "onnx", "--out", "o")
    assert "inputs" in said
    assert "--inputs" in step
    said, step = _error(capsys, "export", "odd.py:Branch", "--to", "onnx", "--out", "o")
    assert "odd.py" in said
    assert "--debug" in step
    assert list((tmp_path / "o").iterdir()) == []


class Two(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        return a - b if scale is None else (a - b) * scale


def test_place_arguments_goes_by_name_or_by_number() -> None:
    one, two, three = (np.full(2, value, np.float32) for value in (1, 2, 3))
    args, kwargs = place_arguments(Two(), {"scale": three, "b": two, "a": one})
    assert [float(value[0]) for value in args] == [1, 2]
    assert {name: float(value[0]) for name, value in kwargs.items()} == {"scale": 3}
    args, kwargs = place_arguments(Two(), {"arr_0": one, "arr_1": two})
    assert [float(value[0]) for value in args] == [1, 2]
    assert kwargs == {}


# --------------------------------------------------------------------------------------------------------- as a process


def test_process_streams_and_status(place: Path) -> None:
    fine = _interop("check", "net.py:build", "good.onnx", cwd=place)
    assert (fine.returncode, fine.stderr) == (0, "a module that prints\n")
    failed = _interop("check", "good.onnx", "bad.onnx", cwd=place)
    assert (failed.returncode, failed.stderr) == (1, "")
    wrong = _interop("run", "none.onnx", "--inputs", "x.npz", cwd=place)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.count("\n") == 2


def test_interrupt_ends_with_130_and_without_a_traceback(place: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time, pathlib\npathlib.Path('begun').touch()\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "interop", "inspect", "slow.py:net"]
    child = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what it puts in the background with this signal ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # no thread holds a lock for it
    )
    deadline = time.monotonic() + 100
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=100)
    assert child.returncode == 130
    assert "Traceback" not in errors
    assert out == ""


def test_closed_pipe_is_no_error(place: Path) -> None:
    command = f"{sys.executable} -m interop inspect good.onnx --json | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "141"


def test_a_terminal_shows_only_our_text(place: Path, tmp_path: Path) -> None:
    """TensorFlow's start-up notes come from C++ and go to the terminal itself."""
    import tensorflow as tf

    double = tf.function(lambda x: {"y": x * 2})
    module = tf.Module()
    signature = double.get_concrete_function(tf.TensorSpec([None, 4], tf.float32, name="x"))
    module.double = double
    tf.saved_model.save(module, str(tmp_path / "double"), signatures={"serving_default": signature})
    controller, terminal = os.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "dumb"}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    command = [sys.executable, "-m", "interop", "run", str(tmp_path / "double"), "--inputs", "x.npz"]
    child = subprocess.Popen(command, cwd=place, env=environment, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = _read_all(controller)
    assert child.wait(timeout=200) == 0
    lines = [line.strip() for line in shown.splitlines() if line.strip() and "running" not in line]
    assert [line.split()[0] for line in lines] == ["output", "y"], shown


def _read_all(descriptor: int) -> str:
    data = bytearray()
    with contextlib.suppress(OSError):  # Linux says so when the last writer has closed a terminal
        while chunk := os.read(descriptor, 4096):
            data += chunk
    os.close(descriptor)
    return data.decode()


def test_progress_shows_after_a_second_on_a_terminal_only(tmp_path: Path) -> None:
    code = (
        "import time\nfrom interop.cli._common import working, write_out\n"
        "with working('thinking hard'):\n    print('noise')\n    time.sleep(1.6)\nwrite_out('result\\n')\n"
        "with working('thinking little'):\n    pass\nwrite_out('end\\n')"
    )
    controller, terminal = os.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=terminal, env=environment, cwd=tmp_path
    )
    os.close(terminal)
    shown = _read_all(controller)
    out, _ = child.communicate(timeout=100)
    assert out == b"result\nend\n"
    assert "thinking hard" in shown
    assert "thinking little" not in shown
    assert "noise" in shown


def test_progress_is_silent_when_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with working("something"):
        time.sleep(0.01)
    assert capsys.readouterr() == ("", "")


def test_human_bytes_reads_well() -> None:
    sizes = [0, 999, 1000, 1536, 999_949, 999_950, 2_500_000_000]
    assert [human_bytes(size) for size in sizes] == ["0 B", "999 B", "1.0 kB", "1.5 kB", "999.9 kB", "1.0 MB", "2.5 GB"]
