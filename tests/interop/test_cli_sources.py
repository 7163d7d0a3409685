"""The command line takes every kind of model that the Python call takes: files and objects of each framework."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
import torch
from onnx import TensorProto, helper, numpy_helper

import interop
from interop.cli import main
from interop.cli.tune import _Subject
from interop.integrations.ray_tune import Choice
from interop.specs import resolve

WEIGHT = np.array([[1, -2, 0.5, 3], [-1, 0.25, 2, -0.5], [0, 1, -1, 1]], np.float32)
BIAS = np.array([0.5, -0.25, 0], np.float32)
INPUT = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
EXPECTED = np.maximum(INPUT @ WEIGHT.T + BIAS, 0)

MODELS = """
import pathlib

import keras
import numpy as np
import onnx
import tensorflow as tf

WEIGHT, BIAS = np.array({weight}, np.float32), np.array({bias}, np.float32)


def build():
    inputs = keras.Input((4,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(3, "relu", name="y")(inputs))
    model.set_weights([WEIGHT.T, BIAS])
    return model


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(WEIGHT.T)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def __call__(self, x):
        return {{"y": tf.nn.relu(x @ self.weight + BIAS)}}


module = Module()


@tf.function
def unsigned(x):
    return tf.nn.relu(x @ WEIGHT.T + BIAS)


def proto():
    return onnx.load(pathlib.Path(__file__).with_name("net.onnx"))
"""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.linear.load_state_dict({"weight": torch.from_numpy(WEIGHT), "bias": torch.from_numpy(BIAS)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def _onnx_model() -> onnx.ModelProto:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1), helper.make_node("Relu", ["h"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])]
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(BIAS, "b")]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One function as a file of each kind, and as objects in a Python file."""
    folder = tmp_path_factory.mktemp("sources")
    onnx.save(_onnx_model(), folder / "net.onnx")
    text = MODELS.format(weight=WEIGHT.tolist(), bias=BIAS.tolist())
    (folder / "tfnet.py").write_text(text)
    scope: dict[str, object] = {"__file__": str(folder / "tfnet.py")}
    exec(compile(text, "tfnet.py", "exec"), scope)
    scope["build"]().save(folder / "net.keras")  # type: ignore[operator] # functions of the text above
    tf.saved_model.save(scope["Module"](), str(folder / "saved.v1"))  # type: ignore[operator]
    program = torch.export.export(Net().eval(), (torch.ones(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, folder / "net.pt2")
    np.savez(folder / "x.npz", x=INPUT)
    np.savez(folder / "unnamed.npz", INPUT)
    np.savez(folder / "other.npz", z=INPUT)
    return folder


@pytest.fixture(autouse=True)
def inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(place)
    yield


FILES = {"net.onnx": "net", "net.keras": "net", "saved.v1": "saved.v1", "net.pt2": "net"}
OBJECTS = {
    "tfnet.py:build": "build",
    "tfnet.py:module": "module",
    "tfnet.py:Module": "Module",
    "tfnet.py:proto": "proto",
}


def _result(path: Path) -> np.ndarray:
    """What a written file answers, whatever its input is called."""
    runtime = interop.load(path)
    (found,) = runtime.run({runtime.signature.input_names[0]: INPUT}).values()
    return np.asarray(found)


@pytest.mark.parametrize("source", [*FILES, *OBJECTS])
def test_each_source_is_written_in_each_format(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = {"onnx": ".onnx", "tensorflow": "", "torch": ".pt2", "litert": ".tflite"}
    formats = [word for name in written for word in ("--to", name)]
    assert main(["export", source, *formats, "--out", str(tmp_path)]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert out.count("computes the same as") == len(written)
    name = (FILES | OBJECTS)[source]
    for suffix in written.values():
        np.testing.assert_allclose(_result(tmp_path / f"{name}{suffix}"), EXPECTED, rtol=1e-5, atol=1e-6)
    assert len(list(tmp_path.iterdir())) == len(written)


def test_a_source_of_another_framework_becomes_a_libtorch_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "net.keras", "--to", "libtorch", "--out", str(tmp_path)]) == 0, capsys.readouterr().err
    np.savez(tmp_path / "in.npz", **{interop.load("net.keras").signature.input_names[0]: INPUT})
    words = ["run", str(tmp_path / "net.libtorch"), "--inputs", str(tmp_path / "in.npz")]
    assert main(words) == 2
    assert "if you trust the file, give --trust" in capsys.readouterr().err
    assert main([*words, "--trust", "--out", str(tmp_path / "y.npz")]) == 0
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_allclose(found[found.files[0]], EXPECTED, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inputs", ["x.npz", "unnamed.npz"])
@pytest.mark.parametrize("source", ["net.onnx", "net.keras", "saved.v1", "tfnet.py:unsigned"])
def test_the_example_is_what_is_compared(
    source: str, inputs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", source, "--to", "onnx", "--out", str(tmp_path), "--inputs", inputs, "--name", "it"]
    assert main(words) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "5x3" in out and "6x3" in out and "1x3" in out  # its own size, a larger one, and one row
    np.testing.assert_allclose(_result(tmp_path / "it.onnx"), EXPECTED, rtol=1e-5, atol=1e-6)


def test_no_verify_and_opset_reach_an_export_from_tensorflow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "net.keras", "--to", "onnx", "--out", str(tmp_path), "--no-verify", "--opset", "17"]
    assert main(words) == 0
    assert "verdict" not in capsys.readouterr().out
    model = onnx.load(tmp_path / "net.onnx")
    assert [entry.version for entry in model.opset_import if entry.domain == ""] == [17]


def test_another_function_is_status_1_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ONNX Runtime cuts the fractions of resized integers off, where ONNX's reference rounds them."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    values = [helper.make_tensor_value_info(name, TensorProto.INT8, [1, 2, n, n]) for name, n in (("x", 4), ("y", 8))]
    graph = helper.make_graph([node], "resize", values[:1], values[1:], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    onnx.save(model, tmp_path / "resize.onnx")
    words = ["export", str(tmp_path / "resize.onnx"), "--to", "torch", "--out", str(tmp_path / "o")]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert "not the same function" in out
    assert list((tmp_path / "o").iterdir()) == []
    assert main([*words, "--no-verify"]) == 0


def test_what_cannot_be_expressed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "clock.py").write_text(
        "import time\nimport tensorflow as tf\n\n\n"
        "@tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])\ndef clock(x):\n"
        "    return x * tf.py_function(time.monotonic, [], tf.float32)\n"
    )
    what, _ = _error(capsys, "export", f"{tmp_path}/clock.py:clock", "--to", "onnx", "--out", str(tmp_path / "o"))
    assert "EagerPyFunc" in what
    assert list((tmp_path / "o").iterdir()) == []


def _error(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    what, step = captured.err.splitlines()
    assert captured.out == ""
    return what.removeprefix("error: "), step.removeprefix("next: ")


def test_a_model_that_says_nothing_of_its_inputs_asks_for_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    what, step = _error(capsys, "export", "tfnet.py:unsigned", "--to", "onnx", "--out", "o")
    assert "does not say what it takes" in what
    assert "--inputs" in step


@pytest.mark.parametrize(("source", "target"), [("net.onnx", "onnx"), ("net.pt2", "torch"), ("saved.v1", "tensorflow")])
def test_a_source_is_not_written_over(source: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    what, step = _error(capsys, "export", source, "--to", target, "--out", ".")
    assert f"{source} is the model itself" in what
    assert "--name" in step


def test_names_that_a_source_does_not_have_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    for source in ("net.keras", "net.onnx"):
        _error(capsys, "export", source, "--to", "onnx", "--out", "o", "--inputs", "other.npz")


def _keras_archive(place: Path, path: Path, **changed: bytes) -> Path:
    """The Keras archive with other content in some of its files."""
    with zipfile.ZipFile(place / "net.keras") as archive, zipfile.ZipFile(path, "w") as made:
        for name in archive.namelist():
            made.writestr(name, changed.get(name.partition(".")[0], archive.read(name)))
    return path


def test_damaged_and_foreign_keras_files_are_errors(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.keras").write_bytes((place / "net.keras").read_bytes()[:2000])
    config = zipfile.ZipFile(place / "net.keras").read("config.json")
    marker = tmp_path / "ran"
    evil = {"module": "os", "class_name": "system", "config": {"command": f"touch {marker}"}, "registered_name": None}
    paths = [
        tmp_path / "cut.keras",
        _keras_archive(place, tmp_path / "json.keras", config=b"{"),
        _keras_archive(place, tmp_path / "list.keras", config=b"[]"),
        _keras_archive(place, tmp_path / "weights.keras", model=b"no HDF5"),
        _keras_archive(place, tmp_path / "evil.keras", config=json.dumps(evil).encode()),
        _keras_archive(place, tmp_path / "module.keras", config=config.replace(b'"keras.layers"', b'"subprocess"', 1)),
    ]
    for path in paths:
        what, _ = _error(capsys, "export", str(path), "--to", "onnx", "--out", str(tmp_path / "o"))
        assert "damaged" in what or "Keras does not know" in what
        with pytest.raises(interop.ModelFileError):
            interop.load(path)
    assert not marker.exists()


def test_python_code_in_a_keras_file_is_read_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2, output_shape=(4,))])
    twice.save(tmp_path / "twice.keras")
    words = ["export", str(tmp_path / "twice.keras"), "--to", "onnx", "--out", str(tmp_path)]
    what, step = _error(capsys, *words)
    assert "Lambda layer with Python code" in what
    assert step == "if you trust the file, give --trust"
    assert not (tmp_path / "twice.onnx").exists()
    assert main([*words, "--trust"]) == 0
    np.testing.assert_array_equal(_result(tmp_path / "twice.onnx"), INPUT * 2)


def test_a_pickle_is_still_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(Net(), tmp_path / "whole.pt")
    what, step = _error(capsys, "export", str(tmp_path / "whole.pt"), "--to", "onnx", "--out", str(tmp_path / "o"))
    assert "pickle" in what
    assert "file.py:function" in step


@pytest.mark.parametrize(
    ("source", "kind", "operators"),
    [
        ("net.keras", "Keras model", {"Dense": 1}),
        ("tfnet.py:module", "TensorFlow function", {"MatMul": 1, "AddV2": 1, "Relu": 1}),
        ("tfnet.py:proto", "ONNX", {"Gemm": 1, "Relu": 1}),
    ],
)
def test_inspect_tells_what_each_holds(
    source: str, kind: str, operators: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", source, "--json"]) == 0, capsys.readouterr().err
    data = json.loads(capsys.readouterr().out)
    assert data["format"] == kind
    assert data["operators"] == operators
    assert data["parameters"] == (12 if source == "tfnet.py:module" else 15)  # whose bias is no variable
    assert data["signature"]["inputs"][0]["name"] == "x"


def test_check_and_run_take_each_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "net.keras", "net.onnx", "saved.v1", "tfnet.py:module", "--quick"]) == 0
    assert "compute the same as" in capsys.readouterr().out
    assert main(["check", "net.onnx", "net.keras", "--isolate", "--inputs", "x.npz"]) == 0
    for source in ("net.keras", "tfnet.py:build", "saved.v1"):
        assert main(["run", source, "--inputs", "x.npz", "--out", str(tmp_path / "y.npz")]) == 0
        with np.load(tmp_path / "y.npz") as found:
            np.testing.assert_allclose(found[found.files[0]], EXPECTED, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "source", ["net.onnx", "net.keras", "saved.v1", "tfnet.py:unsigned", "tfnet.py:proto", "net.pt2"]
)
def test_tune_measures_each_source_against_its_own_answer(source: str) -> None:
    """The export and the answer that the trials are compared with; the trials themselves are Ray's."""
    name = "x" if source != "net.keras" else interop.load(source).signature.input_names[0]
    subject = _Subject(resolve(source).value, {name: INPUT})
    variants, feed, expected = subject.prepare([Choice(None, "float32", 1, "all", "CPUExecutionProvider")])
    assert [variant.problem for variant in variants] == [""]
    (array,), (answer,) = feed.values(), expected.values()
    np.testing.assert_array_equal(array, INPUT)
    np.testing.assert_allclose(answer, EXPECTED, rtol=1e-5, atol=1e-6)
    session = interop.load(onnx.load_from_string(variants[0].model))
    assert set(session.signature.output_names) == set(expected)


def test_help_says_what_a_model_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("export", "inspect", "tune"):
        assert main([command, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        for word in ("package.module:attribute", ".onnx, .keras or .pt2 file", "SavedModel folder"):
            assert word in text
