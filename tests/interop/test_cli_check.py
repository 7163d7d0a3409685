"""``interop check``: what it asks, where the report goes, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import onnx
import pytest
import typer
import yaml
from onnx import TensorProto, helper, numpy_helper

from interop.cli import check as check_command
from interop.cli import main
from interop.cli._check_options import families_of, parse_sizes, parse_tolerance, read_batches, spread_sizes
from interop.cli._common import CliError
from interop.cli._reports import _explain

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("normal", "uniform", "negative", "zeros", "ties", "large", "tiny")
X = np.arange(12, dtype=np.float32).reshape(4, 3) - 5

NET = """
import os, torch


class Net(torch.nn.Module):
    def forward(self, x):
        return x * 2, x - 1


class Dies(Net):
    def forward(self, x):
        os._exit(7)


class Hangs(Net):
    def forward(self, x):
        import time
        time.sleep(1000)


net, dies, hangs = Net(), Dies(), Hangs()
"""


def _model(scale: float = 2.0, clip: float | None = None, dims: tuple[object, ...] = ("batch", 3)) -> onnx.ModelProto:
    """``double = x * scale, less = x - 1``; with ``clip``, values of ``double`` beyond it are cut off."""
    nodes = [helper.make_node("Mul", ["x", "scale"], ["m"]), helper.make_node("Sub", ["x", "one"], ["less"])]
    constants = [numpy_helper.from_array(np.float32(scale), "scale"), numpy_helper.from_array(np.float32(1), "one")]
    if clip is None:
        nodes.append(helper.make_node("Identity", ["m"], ["double"]))
    else:
        nodes.append(helper.make_node("Clip", ["m", "low", "high"], ["double"]))
        constants += [
            numpy_helper.from_array(np.float32(sign * clip), name) for sign, name in ((-1, "low"), (1, "high"))
        ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(dims))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims)) for name in ("double", "less")],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    return model


def _bfloat16_model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ["batch", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    return model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    (folder / "nets.py").write_text(NET)
    onnx.save(_model(), folder / "good.onnx")
    onnx.save(_model(2.002), folder / "bad.onnx")
    onnx.save(_model(clip=50), folder / "clipped.onnx")
    onnx.save(_model(dims=(4, 3)), folder / "fixed.onnx")
    onnx.save(_bfloat16_model(), folder / "half.onnx")
    np.savez(folder / "x.npz", x=X)
    np.savez(folder / "y.npz", x=X[:2] * 0)
    np.savez(folder / "uneven.npz", x=X, z=X[:2])
    np.savez(folder / "half.npz", x=X.astype(ml_dtypes.bfloat16))
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def _report(*words: str, status: int, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(["check", *words, "--json", "-"]) == status
    return json.loads(capsys.readouterr().out)


def _cases(*words: str, status: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [case["case"] for case in _report(*words, status=status, capsys=capsys)["cases"]]


def _refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["check", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 2, captured.err
    return captured.err


# ----------------------------------------------------------------------------------------------------------- inputs


def test_all_families_are_made_and_find_what_normal_values_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("good.onnx", "clipped.onnx")
    report = _report(*words, status=1, capsys=capsys)
    assert {case["case"].split()[0] for case in report["cases"]} == set(FAMILIES)
    assert [case["case"].split()[0] for case in report["cases"] if not case["passed"]] == ["large"]
    cases = _cases(*words, "--quick", status=0, capsys=capsys)
    assert {case.split()[0] for case in cases} == {"normal"}


def test_nonfinite_values_are_made_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    cases = _cases("good.onnx", "good.onnx", "--quick", "--nonfinite", status=0, capsys=capsys)
    assert [case for case in cases if case.startswith("nonfinite")] == ["nonfinite batch=2"]


def test_sizes_are_those_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    report = _report("good.onnx", "good.onnx", "--quick", "--sizes", "batch=1,5,0", status=0, capsys=capsys)
    assert [case["outputs"]["less"]["shape"] for case in report["cases"]] == [[1, 3], [5, 3], [0, 3]]


def test_the_seed_makes_the_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    def worst(seed: int) -> float:
        words = ("good.onnx", "bad.onnx", "--quick", "--seed", str(seed))
        report = _report(*words, status=1, capsys=capsys)
        assert report["seed"] == seed
        return report["cases"][0]["outputs"]["double"]["max_abs"]

    assert worst(3) == worst(3) != worst(4)


def test_each_inputs_file_is_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    report = _report("good.onnx", "bad.onnx", "--inputs", "x.npz", "--inputs", "y.npz", status=1, capsys=capsys)
    assert [(case["case"], case["passed"]) for case in report["cases"]] == [("batch 0", False), ("batch 1", True)]
    assert report["cases"][0]["outputs"]["double"]["max_abs"] == pytest.approx(np.abs(X).max() * 0.002, rel=1e-3)


def test_rows_become_batches(capsys: pytest.CaptureFixture[str]) -> None:
    report = _report("good.onnx", "good.onnx", "--inputs", "x.npz", "--batch-size", "3", status=0, capsys=capsys)
    assert [case["outputs"]["less"]["shape"] for case in report["cases"]] == [[3, 3], [1, 3]]
    batches = read_batches([Path("x.npz"), Path("x.npz")], 3)
    assert batches is not None
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in batches.values()]), np.concatenate([X, X]))


def test_inputs_keep_a_dtype_that_npz_loses(capsys: pytest.CaptureFixture[str]) -> None:
    report = _report("half.onnx", "half.onnx", "--inputs", "half.npz", status=0, capsys=capsys)
    assert report["cases"][0]["outputs"]["y"]["dtype"] == "bfloat16"


# ------------------------------------------------------------------------------------------------------- tolerances


def test_tolerances_go_by_output(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "good.onnx", "bad.onnx", "--inputs", "x.npz"]
    assert main([*words, "--atol", "dou*=0.02"]) == 0
    assert main([*words, "--atol", "less=0.02"]) == 1
    assert main([*words, "--atol", "0.02", "--atol", "double=1e-6"]) == 1
    assert main([*words, "--rtol", "double=0.002"]) == 0
    capsys.readouterr()
    assert "fits none of the outputs" in _refused(capsys, *words[1:], "--atol", "logits=1")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (None, None),
        (["1e-3"], 1e-3),
        (["logits=1e-3"], {"logits": 1e-3}),
        (["1", "a=2", "b*=3"], {"a": 2, "b*": 3, "*": 1}),
        (["a=b=2"], {"a=b": 2}),
    ],
)
def test_parse_tolerance(words: list[str] | None, expected: object) -> None:
    found = parse_tolerance(words, "--atol")
    assert found == expected
    if isinstance(expected, dict):
        assert list(found) == list(expected)  # type: ignore[call-overload]  # the first that fits counts


@pytest.mark.parametrize("words", [["much"], ["-1"], ["nan"], ["a=-1"], ["a="], ["1", "2"], ["a=1", "a=2"], [""]])
def test_parse_tolerance_refuses(words: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match="OUTPUT=NUMBER"):
        parse_tolerance(words, "--atol")


# ------------------------------------------------------------------------------------------------------------ sizes


def test_spread_sizes_pairs_symbols_and_fills_up() -> None:
    model = _model(dims=("batch", "time"))
    asked = parse_sizes(["batch=1,3,7", "time=5"])
    assert spread_sizes(asked, [model, model]) == [
        {"batch": 1, "time": 5},
        {"batch": 3, "time": 5},
        {"batch": 7, "time": 5},
    ]
    (only,) = spread_sizes({"batch": (4,)}, [model, model]) or []
    assert only["batch"] == 4
    assert only["time"] > 0
    with pytest.raises(CliError, match="names bacth, and the symbolic dimensions are batch, time"):
        spread_sizes({"bacth": (4,)}, [model, model])


@pytest.mark.parametrize("words", [["batch"], ["batch="], ["batch=-1"], ["batch=1,"], ["batch=1", "batch=2"]])
def test_parse_sizes_refuses(words: list[str]) -> None:
    with pytest.raises(CliError, match="SYMBOL=SIZE"):
        parse_sizes(words)
    with pytest.raises(CliError, match="2 of a, 3 of b"):
        parse_sizes(["a=1,2", "b=1,2,3"])


# ------------------------------------------------------------------------------------------------- saved and isolated


def test_a_saved_check_is_judged_again_without_models(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "run")
    assert main(["check", "nets.py:net", "bad.onnx", "--quick", "--save", folder]) == 1
    monkeypatch.chdir(tmp_path)  # where no model is
    capsys.readouterr()
    assert {case.split()[0] for case in _cases("--replay", folder, status=1, capsys=capsys)} == {"normal"}
    assert main(["check", "--replay", folder, "--rtol", "0.01"]) == 0
    assert main(["check", "--replay", folder, "--atol", "double=1e-9"]) == 1
    assert main(["check", "--replay", str(tmp_path / "nothing")]) == 2


def test_isolated_candidates_fail_and_the_others_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    candidates = ("good.onnx", "nets.py:dies", "nets.py:hangs")
    words = ("nets.py:net", *candidates, "--inputs", "x.npz", "--isolate", "--timeout", "5")
    report = _report(*words, status=1, capsys=capsys)
    assert [case["candidate"] for case in report["cases"]] == list(candidates)
    assert [case["passed"] for case in report["cases"]] == [True, False, False]
    assert "exit status 7" in report["cases"][1]["error"]
    assert "no answer within 5 s" in report["cases"][2]["error"]


# ----------------------------------------------------------------------------------------------------------- reports


def test_reports_are_written_whatever_the_verdict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = {kind: tmp_path / f"r.{kind}" for kind in ("json", "junit", "markdown", "html")}
    options = [word for kind, path in paths.items() for word in (f"--{kind}", str(path))]
    for candidate, status in (("bad.onnx", 1), ("good.onnx", 0)):
        assert main(["check", "good.onnx", candidate, "--inputs", "x.npz", *options]) == status
        assert candidate in capsys.readouterr().out
        assert json.loads(paths["json"].read_text())["passed"] is (status == 0)
        assert ElementTree.fromstring(paths["junit"].read_text()).get("failures") == str(status)
        assert f"| {candidate}" in paths["markdown"].read_text().replace("\\", "")
        assert paths["html"].read_text().startswith("<!DOCTYPE html>")


def test_github_gets_annotations_and_a_summary(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["check", "good.onnx", "bad.onnx", "--inputs", "x.npz", "--github"]
    assert main(words) == 1
    assert "::error title=parity bad.onnx::batch 0" in capsys.readouterr().out
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main([*words, "--markdown", "-"]) == 1
    captured = capsys.readouterr()
    assert "::error" in captured.err
    assert captured.out.startswith("### Parity FAILED")
    text = summary.read_text()
    assert text.startswith("# before\n### Parity FAILED")
    assert captured.out in text
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "nowhere" / "summary.md"))
    assert main(words) == 2


def test_where_it_begins_and_who_is_to_blame_stand_below_the_table() -> None:
    class Report(SimpleNamespace):
        def __str__(self) -> str:
            return "a table that says: the exporter"

    assert _explain(Report(first_difference="node Relu_3", blame="the exporter")) == ["first difference: node Relu_3"]
    assert _explain(Report(blame=None)) == []


# ----------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing argument 'REF'"),
        (["good.onnx"], "Missing argument 'CANDIDATE"),
        (["good.onnx", "good.onnx", "--atol", "much"], "--atol"),
        (["good.onnx", "good.onnx", "--rtol", "a=-1"], "--rtol"),
        (["good.onnx", "good.onnx", "--replay", "run"], "models were given"),
        (["--replay", "run", "--quick"], "--quick is of no use"),
        (["--replay", "run", "--seed", "3"], "--seed is of no use"),
        (["good.onnx", "good.onnx", "--batch-size", "2"], "--batch-size is of use with --inputs only"),
        (["good.onnx", "good.onnx", "--timeout", "2"], "--timeout is of use with --isolate only"),
        (["good.onnx", "good.onnx", "--timeout", "0", "--isolate"], "--timeout"),
        (["good.onnx", "good.onnx", "--inputs", "x.npz", "--quick"], "--quick is of use without --inputs only"),
        (["good.onnx", "good.onnx", "--inputs", "x.npz", "--sizes", "batch=1"], "--sizes is of use without"),
        (["good.onnx", "good.onnx", "--ray", "local", "--save", "run"], "--save is of use without --ray only"),
        (["fixed.onnx", "fixed.onnx", "--sizes", "batch=1"], "the symbolic dimensions are none"),
        (["good.onnx", "good.onnx", "--inputs", "uneven.npz", "--batch-size", "2"], "x 4, z 2"),
        (["good.onnx", "good.onnx", "--inputs", "none.npz"], "no file none.npz"),
        (["good.onnx", "none.onnx", "--isolate"], "no file none.onnx"),
        (["good.onnx", "good.onnx", "--html", "nowhere/r.html"], "no folder nowhere"),
        (["good.onnx", "good.onnx", "--json", "-", "--html", "-"], "cannot both go to stdout"),
        (["good.onnx", "good.onnx", "--save", "."], "not empty"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert message in _refused(capsys, *words)


def test_families_are_full_by_default() -> None:
    assert families_of(quick=False, nonfinite=False) == FAMILIES
    assert families_of(quick=True, nonfinite=True) == ("normal", "nonfinite")
    assert check_command.PARITY_FAILED == 1


# -------------------------------------------------------------------------------------------------------------- docs


def test_the_workflow_in_the_docs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n".join(
        ["import torch", "class Net(torch.nn.Module):", "    def forward(self, x):", "        return x * 2"]
    )
    text += "\n    def example_inputs(self):\n        return (torch.ones(2, 3),)\n"
    (tmp_path / "workflow_nets.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    workflow = yaml.safe_load((ROOT / "docs" / "parity.yml").read_text())
    steps = workflow["jobs"]["parity"]["steps"]
    commands = [shlex.split(step["run"].replace("$MODEL", "workflow_nets.py:Net")) for step in steps if "run" in step]
    ours = [words[1:] for words in commands if words[0] == "interop"]
    assert [words[0] for words in ours] == ["export", "check"]
    for words in ours:
        assert main(words) == 0, capsys.readouterr()
    assert "### Parity passed" in (tmp_path / "summary.md").read_text()
    (upload,) = [step["with"]["path"].split() for step in steps if "upload" in str(step.get("uses"))]
    assert all((tmp_path / path).is_file() for path in upload)


def test_the_page_in_the_docs_names_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    pytests = {"--interop-report", "--interop-inputs"}
    named = set(re.findall(r"--[a-z][a-z-]+", (ROOT / "docs" / "parity_in_ci.md").read_text())) - pytests
    assert main(["check", "--help"]) == 0
    assert named <= set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
