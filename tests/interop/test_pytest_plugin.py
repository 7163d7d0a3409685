"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from interop import pytest_plugin
from interop.parity import ParityReport

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = ("torch", "tensorflow", "keras", "onnx", "onnx_ir", "onnxruntime", "jax", "transformers")

NETS = """
import numpy as np
import pytest
from interop.runtimes import Runtime
from interop.signature import Signature, TensorSpec

class Net(Runtime):
    name, framework = "times", "numpy"

    def __init__(self, factor):
        super().__init__(Signature((TensorSpec("x", "float32", (2, 3)),), (TensorSpec("output", "float32", (2, 3)),)))
        self.factor = np.float32(factor)

    def _execute(self, inputs, owner):
        return {"output": inputs["x"] * self.factor}

X = np.arange(6, dtype=np.float32).reshape(2, 3)
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run pytest on a file with the plugin named; entry points stay away, ours would be the same plugin twice.

    In this process, which drops what such a run imports: no framework, which would not bear to be imported twice.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def go(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", "interop.pytest_plugin", "--strict-markers", *options)

    return go


TWO = (
    NETS
    + """
def test_right(assert_parity):
    report = assert_parity(Net(2.0), Net(2.0), inputs=(X,))
    assert report.passed

def test_wrong(assert_parity):
    assert_parity(Net(2.0), Net(2.0), inputs=(X,))
    assert_parity(Net(2.0), Net(2.01), inputs=(X,), names=["slip"])
    raise RuntimeError("not reached")
"""
)


def test_assert_parity_passes_and_fails_with_the_table(run, pytester: pytest.Pytester) -> None:
    result = run(TWO)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines([r"E +interop.errors.ParityError: not the same function"])
    result.stdout.re_match_lines([r"E +slip +batch 0 .*5.00e-02 .* FAIL"])
    assert "not reached" not in result.stdout.str().replace('raise RuntimeError("not reached")', "")
    assert "pytest_plugin.py" not in result.stdout.str()  # the traceback ends in the test
    assert {path.suffix for path in pytester.path.iterdir()} <= {".py", ""}


def test_a_torch_module_and_a_file_are_compared(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
    import numpy as np, onnx, pytest, torch
    from onnx import TensorProto, helper

    class Double(torch.nn.Module):
        def forward(self, x):
            return x + x

    @pytest.fixture
    def path(tmp_path):
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])
        graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [value("x")], [value("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 10
        onnx.save(model, tmp_path / "double.onnx")
        return tmp_path / "double.onnx"

    def test_right(assert_parity, path):
        assert "double.onnx" in str(assert_parity(Double(), path))

    def test_wrong(assert_parity, path):
        with pytest.raises(AssertionError, match="double.onnx differs from Identity"):
            assert_parity(torch.nn.Identity(), path)
    """)
    _process(pytester).assert_outcomes(passed=2)


def _process(pytester: pytest.Pytester) -> pytest.RunResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.setenv("PYTHONPATH", str(ROOT))
        return pytester.runpytest_subprocess("-p", "interop.pytest_plugin")


def test_options_reach_the_check(run) -> None:
    source = NETS + (
        "def test_it(assert_parity):\n    assert_parity(Net(2.0), Net(2.01), inputs=(X,), atol={'out*': 0.06})\n"
    )
    run(source).assert_outcomes(passed=1)


def test_reports_name_their_tests(run, pytester: pytest.Pytester) -> None:
    folder = pytester.path / "out" / "parity"
    (folder).mkdir(parents=True)
    (folder / "old-1.parity.json").write_text("{}")
    (folder / "notes.txt").write_text("mine")
    result = run(TWO, "--interop-report", "out/parity")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["parity reports: *index.html"])
    saved = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    found = {(data["test"].rpartition("::")[2], data["assertion"]): data["passed"] for data in saved}
    assert found == {("test_right", 1): True, ("test_wrong", 1): True, ("test_wrong", 2): False}
    assert (folder / "notes.txt").exists()
    for path in folder.glob("*.json"):
        report = ParityReport.from_json(path.read_text())
        page = path.with_suffix(".html").read_text()
        assert json.loads(path.read_text())["test"] in page
        assert ("Not the same function" in page) is not report.passed
        if not report.passed:
            assert report.outputs["output"].max_abs == pytest.approx(5 * 0.01, rel=1e-4)


def test_the_index_links_every_page_and_junit_has_every_case(run, pytester: pytest.Pytester) -> None:
    run(TWO, "--interop-report", "parity")
    index = (pytester.path / "parity" / "index.html").read_text()
    assert "1 of 3 assertions failed" in index
    links = re.findall(r'href="([^"]+)"', index)
    assert len(links) == 3
    assert all((pytester.path / "parity" / link).is_file() for link in links)
    assert "test_wrong (2)" in index
    suites = ElementTree.fromstring((pytester.path / "parity" / "junit.xml").read_text())
    assert (suites.tag, suites.get("tests"), suites.get("failures"), suites.get("errors")) == (
        "testsuites",
        "3",
        "1",
        "0",
    )
    (failed,) = [suite for suite in suites if suite.get("failures") == "1"]
    assert (failed.get("name") or "").endswith("::test_wrong (2)")
    assert failed.find("testcase/failure") is not None


def test_no_assertion_is_an_empty_index(run, pytester: pytest.Pytester) -> None:
    run("def test_nothing():\n    pass\n", "--interop-report", "parity").assert_outcomes(passed=1)
    assert "0 of 0 assertions failed" in (pytester.path / "parity" / "index.html").read_text()


def test_a_folder_that_cannot_be_written_is_a_usage_error(run, pytester: pytest.Pytester) -> None:
    (pytester.path / "file").touch()
    result = run("def test_nothing():\n    pass\n", "--interop-report", "file")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*reports cannot be written there*"])


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_reports_of_parallel_processes_are_merged(run, pytester: pytest.Pytester) -> None:
    result = run(TWO, "-p", "xdist", "-n", "1", "--interop-report", "parity")
    result.assert_outcomes(passed=1, failed=1)
    assert "1 of 3 assertions failed" in (pytester.path / "parity" / "index.html").read_text()


def test_the_marker_runs_a_test_once_for_each_format(run) -> None:
    source = """
    import pytest
    seen = []

    @pytest.mark.interop_formats("onnx", "tensorflow")
    def test_formats(exported_format):
        seen.append(exported_format)

    @pytest.fixture
    def path(exported_format):
        return f"model.{exported_format}"

    @pytest.mark.interop_formats("onnx")
    def test_fixture(path):
        seen.append(path)

    def test_seen():
        assert seen == ["onnx", "tensorflow", "model.onnx"]
    """
    result = run(source, "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_formats?onnx?*", "*test_formats?tensorflow?*"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('@pytest.mark.interop_formats("onnx")\ndef test_it(): pass', "does not use the fixture exported_format"),
        ("@pytest.mark.interop_formats\ndef test_it(exported_format): pass", "takes names of formats"),
        ("@pytest.mark.interop_formats(1)\ndef test_it(exported_format): pass", "takes names of formats"),
        ("def test_it(exported_format): pass", "needs @pytest.mark.interop_formats"),
    ],
)
def test_a_marker_that_does_nothing_is_an_error(run, body: str, message: str) -> None:
    result = run(f"import pytest\n{body}\n")
    assert result.parseoutcomes().get("passed", 0) == 0
    result.stdout.fnmatch_lines([f"*{message}*"])


def test_the_marker_is_listed(run) -> None:
    run("def test_nothing(): pass\n", "--markers").stdout.fnmatch_lines(["*interop_formats(?formats):*"])


def test_loading_the_plugin_imports_no_framework_and_is_quick() -> None:
    code = (
        "import time, sys, pytest, numpy\n"
        "start = time.perf_counter()\n"
        "import interop.pytest_plugin\n"
        "seconds = time.perf_counter() - start\n"
        f"print(seconds, *[name for name in {FRAMEWORKS!r} if name in sys.modules])"
    )
    best = np.inf
    for _ in range(5):  # the machine may be busy: the best of a few
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        seconds, *imported = run.stdout.split()
        assert imported == []
        best = min(best, float(seconds))
        if best < 0.05:
            break
    assert best < 0.05


def test_a_run_without_an_assertion_imports_no_framework(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"import sys\ndef test_it():\n    assert not [name for name in {FRAMEWORKS!r} if name in sys.modules]\n"
    )
    _process(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize("worker", [True, False])
def test_only_the_first_process_clears_the_folder(tmp_path: Path, worker: bool) -> None:
    config = SimpleNamespace(
        addinivalue_line=lambda *words: None,
        getoption=lambda name: "quick" if name == "--interop-inputs" else "parity",
        getini=lambda name: "quick",
        invocation_params=SimpleNamespace(dir=tmp_path),
        **({"workerinput": {}} if worker else {}),
    )
    (tmp_path / "parity").mkdir()
    (tmp_path / "parity" / "a-1.parity.json").touch()
    pytest_plugin.pytest_configure(config)  # type: ignore[arg-type]  # all of the configuration that is asked for
    assert (tmp_path / "parity" / "a-1.parity.json").exists() is worker


FAMILIES = (
    NETS
    + """
def test_made(assert_parity):
    report = assert_parity(Net(2.0), Net(2.0))
    assert len(report.cases) == FOUND

def test_given(assert_parity):
    assert len(assert_parity(Net(2.0), Net(2.0), inputs=(X,)).cases) == 1
    assert len(assert_parity(Net(2.0), Net(2.0), families=("tiny",)).cases) == 1
"""
)


@pytest.mark.parametrize(
    ("ini", "options", "found"), [("", (), 1), ("full", (), 7), ("full", ("--interop-inputs=quick",), 1)]
)
def test_families_of_made_inputs_are_chosen_once_for_all_tests(run, pytester, ini, options, found) -> None:
    if ini:
        pytester.makeini(f"[pytest]\ninterop_inputs = {ini}\n")
    run(FAMILIES.replace("FOUND", str(found)), *options).assert_outcomes(passed=2)


def test_unknown_families_are_a_usage_error(run, pytester) -> None:
    pytester.makeini("[pytest]\ninterop_inputs = all\n")
    result = run(FAMILIES)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*interop_inputs is quick or full*"])
