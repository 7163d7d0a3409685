"""The doctor: versions, known bad pairs, goals, and memory that is really shared."""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

import exporters
import interop
from interop import cli, doctor
from interop.health import TESTED, DoctorReport, Goal, Package, versions_tested
from interop.known_problems import find_problems
from interop.probe import Sharing, _read

MODULE = sys.modules["interop.health"]  # the attribute interop.doctor is the function
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report() -> DoctorReport:
    return doctor()


def test_tested_versions_equal_the_committed_lock() -> None:
    lock = ROOT / "constraints.txt"
    if not lock.is_file():
        pytest.skip("no constraints.txt in this checkout")
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text(), flags=re.MULTILINE))
    pins = {name.lower().replace("_", "-"): version.partition("+")[0] for name, version in pins.items()}
    assert {name: pins.get(name) for name in TESTED} == TESTED


def test_tested_versions_fall_back_to_the_table_outside_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MODULE, "__file__", str(tmp_path / "interop" / "doctor.py"))
    assert versions_tested() == TESTED
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").write_text("# lock\nTorch==9.9.9+cpu\nml_dtypes == 8.8  # why\nother==1\n")
    assert versions_tested() == {"torch": "9.9.9+cpu", "ml-dtypes": "8.8"}


def test_packages_show_what_is_installed(report: DoctorReport) -> None:
    versions = {package.name: package.version for package in report.packages}
    for name in ("numpy", "torch", "onnxruntime"):
        assert versions[name] == importlib.metadata.version(name)


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("2.13.0", "tested"),
        ("2.13.0+cpu", "tested"),
        ("2.14.0", "newer"),
        ("2.9.1", "older"),
        ("2.13.0rc1", "other build"),
        (None, "missing"),
    ],
)
def test_package_state_compares_releases(version: str | None, state: str) -> None:
    assert Package("torch", version, "2.13.0").state == state


@pytest.mark.parametrize(
    ("bad", "good", "what"),
    [
        ({"torch": "2.12.1"}, {"torch": "2.14.0"}, "negative stride"),
        ({"torch": "2.13.0+cpu"}, {"torch": "2.11.0"}, "negative stride"),
        ({"tensorflow": "2.21.0"}, {"tensorflow": "2.22.0"}, "64-byte"),
        ({"onnx-tf": "1.10.0", "onnx": "1.19.0"}, {"onnx-tf": "1.10.0", "onnx": "1.18.0"}, "onnx.mapping"),
        ({"tf2onnx": "1.17.0", "keras": "3.15.1"}, {"tf2onnx": "1.17.0", "keras": "2.15.0"}, "from_keras"),
        ({"tf2onnx": "1.17.0", "keras": "3.0"}, {"keras": "3.0"}, "from_keras"),
        ({"torch": "2.11.0+cpu", "torchvision": "0.26.0"}, {"torch": "2.11.0+cpu", "torchvision": "0.26.0+cpu"}, "nms"),
        ({"torch": "2.11.0", "torchvision": "0.25.0"}, {"torch": "2.11.0", "torchvision": "0.26.0"}, "nms"),
        ({"tritonclient": "2.50", "protobuf": "7.36.2"}, {"tritonclient": "2.50", "protobuf": "6.33"}, "protobuf < 7"),
        ({"kserve": "0.15", "protobuf": "7.0"}, {"kserve": "0.15"}, "protobuf < 7"),
        ({"tensorflow": "2.20", "tensorflow-cpu": "2.20"}, {"tensorflow": "2.20"}, "same folder"),
        ({"onnxruntime": "1.32", "onnxruntime-gpu": "1.32"}, {"onnxruntime-gpu": "1.32"}, "same folder"),
        ({"nobuco": "0.16", "keras": "3.1"}, {"nobuco": "0.16", "keras": "2.15"}, "nobuco"),
    ],
)
def test_known_problem_is_found_only_at_its_versions(bad: dict[str, str], good: dict[str, str], what: str) -> None:
    found = [problem for problem in find_problems(bad) if what in problem.what]
    assert len(found) == 1
    assert found[0].remedy
    assert set(found[0].packages) == {f"{name} {version}" for name, version in bad.items()}
    assert not any(what in problem.what for problem in find_problems(good))


def test_goal_needs_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    goals = (("fly", "fly()", "wings", ("json", "feathers_not_here")), ("walk", "walk()", "legs", ("re",)))
    monkeypatch.setattr(MODULE, "GOALS", {"move": goals, "rest": (("sleep", "sleep()", "", ("bed_not_here",)),)})
    report = doctor(quick=True)
    assert report.goals == (
        Goal("fly", "fly()", "wings", ("feathers_not_here",), "move"),
        Goal("walk", "walk()", "legs", (), "move"),
        Goal("sleep", "sleep()", "", ("bed_not_here",), "rest"),
    )
    assert [goal.ready for goal in report.goals] == [False, True, False]
    assert [goal.state for goal in report.goals] == [
        "pip install 'tensor-interop[wings]'",
        "ready",
        "needs bed_not_here",
    ]
    assert "tensor-interop[wings]" in str(report)


def test_goal_says_which_of_its_versions_were_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "versions_tested", lambda: {"numpy": "0.1", "rich": importlib.metadata.version("rich")})
    monkeypatch.setattr(MODULE, "GOALS", {"count": (("sums", "sum()", "torch", ("numpy", "rich")),)})
    [goal] = doctor(quick=True).goals
    assert goal.ready
    assert goal.untested == (Package("numpy", importlib.metadata.version("numpy"), "0.1"),)
    assert goal.state == f"ready, not tested with numpy {importlib.metadata.version('numpy')} (tested: 0.1)"
    data = json.loads(doctor(quick=True).to_json())["goals"][0]
    assert (data["state"], data["untested"][0]["state"]) == (goal.state, "newer")


def test_every_goal_of_the_toolkit_has_a_part_that_exists() -> None:
    purposes = [
        "exchange models", "train on several machines", "serve from C++", "serve over the network", "track", "tune", "explain",
    ]  # fmt: skip
    assert list(MODULE.GOALS) == purposes
    assert all(MODULE.GOALS.values())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    makes = (ROOT / "Makefile").read_text()
    commands = {command.name or command.callback.__name__ for command in cli.app.registered_commands}
    for rows in MODULE.GOALS.values():
        for name, how, extra, modules in rows:
            assert extra in extras, name
            assert modules, name
            known = {distribution for module in modules for distribution in MODULE._distributions_of(module)}
            assert known & set(TESTED), f"{name}: nothing says at which version it was tested"
            if found := re.match(r"(interop\.integrations\.\w+)\.(\w+)", how):
                assert hasattr(importlib.import_module(found[1]), found[2]), how
            if found := re.match(r'export_model\(.*?, "(\w+)"', how):
                assert found[1] in exporters.available_formats(), how
            if found := re.match(r"interop\.(\w+)\(", how):
                assert found[1] in interop.__all__, how
            if found := re.search(r"examples[./](\w+)", how):
                assert (ROOT / "examples" / f"{found[1]}.py").is_file(), how
            if found := re.match(r"make (\w+)", how):
                assert f"\n{found[1]}:" in makes, how
            if found := re.match(r"interop (\w+) ", how):
                assert found[1] in commands, how


def test_sharing_agrees_with_the_addresses_that_numpy_and_torch_show(report: DoctorReport) -> None:
    pairs = {(pair.source, pair.target): pair for pair in report.sharing}
    assert {"float32", "int64", "bool", "bfloat16", "float8_e4m3fn", "complex64"} == set(pairs["numpy", "torch"].shared)
    # DLPack's table of TensorFlow has no float8; ONNX Runtime has no complex numbers.
    assert "float8_e4m3fn" not in pairs["torch", "tensorflow"].shared
    assert "float32" in pairs["torch", "tensorflow"].shared
    assert "complex64" in pairs["torch", "onnxruntime"].refused
    assert pairs["torch", "onnxruntime"].reasons["complex64"]
    assert not any(pair.broken for pair in report.sharing)


def test_sharing_covers_every_pair_once(report: DoctorReport) -> None:
    pairs = [(pair.source, pair.target) for pair in report.sharing]
    names = {source for source, _ in pairs}
    assert {"numpy", "torch", "tensorflow", "onnxruntime"} <= names
    assert sorted(pairs) == sorted((a, b) for a in names for b in names if a != b)


def test_a_broken_framework_becomes_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken_framework.py").write_text("raise ImportError('libmissing.so: cannot open shared object file')")
    monkeypatch.setattr(MODULE, "probe_sharing", lambda: _probe_with(tmp_path, "broken_framework"))
    report = doctor()
    assert [p.packages for p in report.problems if "libmissing.so" in p.what] == [("broken_framework",)]


def test_a_framework_that_kills_its_process_is_named(tmp_path: Path) -> None:
    (tmp_path / "killer.py").write_text("import os; os.abort()")
    sharing, failures = _probe_with(tmp_path, "killer")
    assert sharing == ()
    assert len(failures) == 1
    assert failures[0][0] == "killer"
    assert "SIGABRT" in failures[0][1]


def _probe_with(folder: Path, module: str) -> tuple[tuple[Sharing, ...], tuple[tuple[str, str], ...]]:
    """Run the real child with one more framework in its table."""
    code = f"import interop.probe as p; p.PROBED[{module!r}] = {module!r}; p.report()"
    child = subprocess.run(
        [sys.executable, "-c", code, module],
        env={"PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return _read(child.stdout, child.returncode, child.stderr)


def test_json_holds_the_derived_states(report: DoctorReport) -> None:
    data = json.loads(report.to_json())
    assert {package["state"] for package in data["packages"]} <= {"tested", "newer", "older", "other build", "missing"}
    assert [goal["ready"] for goal in data["goals"]] == [goal.ready for goal in report.goals]
    assert len(data["sharing"]) == len(report.sharing)


def test_text_and_rich_show_the_same_cells(report: DoctorReport) -> None:
    console = Console(width=10_000, record=True, file=io.StringIO())
    console.print(report)
    drawn = console.export_text()
    for text in ("torch.from_dlpack(array[::-1])", "export to ONNX", "onnxruntime", "Why not shared"):
        assert text in drawn
        assert text in str(report)


def test_quick_doctor_imports_no_framework() -> None:
    code = (
        "import sys, interop; report = interop.doctor(quick=True); assert report.sharing == () and report.packages; "
        "print([m for m in ('torch', 'tensorflow', 'onnxruntime', 'onnx', 'jax', 'keras') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_doctor_leaves_this_process_as_it_is() -> None:
    code = (
        "import sys, interop, interop.probe\n"
        "interop.probe.PROBED = {'numpy': 'numpy', 'onnxruntime': 'onnxruntime'}\n"
        "assert len(interop.doctor().sharing) == 2\n"
        "print([m for m in ('torch', 'tensorflow', 'jax', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=200
    )
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""
