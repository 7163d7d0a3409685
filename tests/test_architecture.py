"""The rules of the house: who imports whom, and what is public."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import exporters
import interop

ROOT = Path(__file__).parent.parent
FRAMEWORKS = (
    "torch",
    "tensorflow",
    "keras",
    "onnx",
    "onnx_ir",
    "onnxscript",
    "onnxruntime",
    "jax",
    "transformers",
    "lightning",
)


def _imports(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def _files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", ["interop", "exporters"])
def test_import_loads_no_framework(package):
    code = f"import sys, {package}; print([name for name in {FRAMEWORKS!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "[]"


def test_both_packages_together_load_no_framework():
    code = f"import sys, interop, exporters; print([name for name in {FRAMEWORKS!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "[]"


def test_interop_imports_exporters_only_in_cli():
    offenders = [
        str(path.relative_to(ROOT))
        for path in _files("interop")
        if "cli" not in path.relative_to(ROOT).parts
        and any(name.split(".")[0] == "exporters" for name in _imports(path))
    ]
    assert offenders == []


def test_packages_do_not_import_models_tests_or_examples():
    for package in ("interop", "exporters"):
        for path in _files(package):
            tops = {name.split(".")[0] for name in _imports(path)}
            assert not tops & {"models", "tests", "examples", "notebooks", "benchmarks"}, path


def test_models_import_torch_only():
    allowed = set(sys.stdlib_module_names) | {"torch", "models", "safetensors", "numpy", "__future__"}
    for path in _files("models"):
        tops = {name.split(".")[0] for name in _imports(path, top_level_only=True)}
        if path.name == "train.py":
            tops -= {"rich", "sklearn"}
        assert tops <= allowed, f"{path}: {sorted(tops - allowed)}"


def test_formats_do_not_import_each_other():
    rooms = [path.name for path in (ROOT / "exporters").iterdir() if path.is_dir() and (path / "__init__.py").exists()]
    assert {"onnx", "tensorflow"} <= set(rooms)
    rooms = [room for room in rooms if not room.startswith("_")]  # ``_graph`` is what they share
    for room in rooms:
        others = {f"exporters.{other}" for other in rooms if other != room}
        for path in _files(f"exporters/{room}"):
            used = {".".join(name.split(".")[:2]) for name in _imports(path)}
            assert not used & others, f"{path} imports {used & others}"


def test_the_core_of_exporters_imports_no_framework_at_the_top():
    for path in (ROOT / "exporters").glob("*.py"):
        tops = {name.split(".")[0] for name in _imports(path, top_level_only=True)}
        assert not tops & set(FRAMEWORKS), path


@pytest.mark.parametrize("package", [interop, exporters])
def test_public_names_exist_and_are_documented(package):
    assert len(package.__all__) == len(set(package.__all__))
    for name in package.__all__:
        assert (getattr(package, name).__doc__ or "").strip(), name


def test_public_surface_is_this_list():
    assert set(interop.__all__) == {
        "load", "convert", "explain", "guard", "framework_of", "check", "compare", "replay", "doctor",
        "operator", "as_torch_module", "as_keras_layer",
        "Runtime", "Signature", "TensorSpec", "ParityReport", "Explanation",
        "InteropError", "MissingExtraError", "ConversionError", "CopyRequiredError", "AliasingError", "ModelFileError",
        "InputError", "ParityError",
    }  # fmt: skip
    assert set(exporters.__all__) == {
        "export_model", "ExportedModel", "available_formats", "register_exporter",
        "Artifact", "DimRecord", "Exporter", "ExportRequest",
        "ExportError", "MissingInputsError", "OptionsError", "CaptureError", "TranslationError", "Unsupported",
        "UnsupportedOperatorError", "WriteError",
    }  # fmt: skip


def test_errors_share_one_base():
    for package in (interop, exporters):
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, type) and issubclass(value, Exception):
                assert issubclass(value, interop.InteropError), name


def test_packages_are_typed():
    assert all((ROOT / package / "py.typed").exists() for package in ("interop", "exporters"))
