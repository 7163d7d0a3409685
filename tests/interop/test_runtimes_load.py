"""``interop.load``: which runtime a model gets, and what it says where there is none."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

import interop
from interop.errors import InputError, MissingExtraError, ModelFileError
from interop.runtimes import RUNTIMES, Runtime, available_runtimes, load
from interop.signature import Signature, TensorSpec
from tests.interop.runtime_models import identity_onnx, nested_inputs, nested_onnx, nested_signature, saved


class Doubling(Runtime):
    """A third party's runtime for files that start with DOUBLE."""

    name = "doubling"
    framework = "numpy"

    @classmethod
    def open(cls, model, *, factor: int = 2):
        spec = TensorSpec("x", "float32", (None,)), TensorSpec("y", "float32", (None,))
        runtime = cls(Signature(spec[:1], spec[1:]), model)
        runtime.factor = factor
        return runtime

    @classmethod
    def recognises(cls, model) -> bool:
        return hasattr(model, "read_bytes") and model.read_bytes().startswith(b"DOUBLE")

    def _execute(self, inputs, owner):
        return {"y": interop.convert(interop.convert(inputs["x"], "numpy") * self.factor, owner)}


@pytest.fixture
def third_party(monkeypatch):
    monkeypatch.setattr(interop.runtimes._load, "_third_parties", lambda: {"doubling": f"{__name__}:Doubling"})


def test_content_decides_not_the_suffix(tmp_path):
    path = saved(identity_onnx(TensorProto.FLOAT), tmp_path, "weird.pt2")
    assert load(path).name == "onnxruntime"
    assert load(str(path)).path == path


def test_a_runtime_is_returned_as_it_is():
    runtime = load(torch.nn.ReLU())
    assert load(runtime) is runtime
    with pytest.raises(InputError, match="grad"):
        load(runtime, grad=True)


def test_an_object_can_say_which_runtime_runs_it():
    class Exported:
        def __interop_runtime__(self):
            return load(torch.nn.ReLU())

    assert load(Exported())(torch.tensor([-1.0, 1.0])).tolist() == [0, 1]


def test_a_name_forces_the_runtime(tmp_path):
    path = saved(identity_onnx(TensorProto.FLOAT), tmp_path)
    assert load(path, runtime="onnx-reference").name == "onnx-reference"
    with pytest.raises(ModelFileError):
        load(path, runtime="torch")
    with pytest.raises(InputError, match=r"no runtime is called 'nope'.*onnxruntime"):
        load(path, runtime="nope")


def test_objects_that_are_no_models_are_refused():
    for thing in (3, object(), {"x": 1}, None, np.ones(3), torch.ones(3)):
        with pytest.raises(InputError, match="cannot run a"):
            load(thing)


def test_files_of_other_kinds_are_named(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    with pytest.raises(ModelFileError):
        load(tmp_path / "w.safetensors")
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(ModelFileError, match=r"readme\.txt"):
        load(tmp_path / "readme.txt")


def test_third_parties_join_by_entry_point(third_party, tmp_path):
    (tmp_path / "m.double").write_bytes(b"DOUBLE")
    assert "doubling" in available_runtimes() and set(RUNTIMES) <= set(available_runtimes())
    runtime = load(tmp_path / "m.double", factor=3)
    assert runtime(torch.ones(2)).tolist() == [3, 3]
    with pytest.raises(InputError, match="float64"):
        runtime(np.ones(2))
    with pytest.raises(InputError, match="factor"):
        load(tmp_path / "m.double", other=3)


def test_a_missing_framework_names_its_extra(monkeypatch, tmp_path):
    path = saved(identity_onnx(TensorProto.FLOAT), tmp_path)
    monkeypatch.delitem(sys.modules, "interop.runtimes.onnxruntime", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "onnxruntime"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Blocked("onnxruntime"), *sys.meta_path])
    with pytest.raises(MissingExtraError, match=r"tensor-interop\[onnx\]"):
        load(path)


class _Blocked:
    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return


def test_importing_the_runtimes_imports_no_framework():
    code = (
        "import sys, interop.runtimes; "
        "print([n for n in ('torch', 'tensorflow', 'onnx', 'onnxruntime', 'onnx_ir', 'jax') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_reference_evaluator_agrees_with_onnx_runtime(tmp_path):
    x, batch = nested_inputs()
    for model in (nested_onnx(nested_signature()), saved(nested_onnx(nested_signature()), tmp_path)):
        given = load(model, runtime="onnx-reference")(x, batch)
        assert torch.equal(given["total"], x * 2 + batch["k"]) and isinstance(given["parts"], tuple)
        assert torch.equal(given["parts"][1], batch["k"] + 1)


def test_the_reference_evaluator_reads_external_data_after_the_check(tmp_path):
    model = identity_onnx(TensorProto.FLOAT)
    model.graph.node[0].op_type = "Add"
    model.graph.node[0].input.append("w")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(4, 2, np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert load(tmp_path / "m.onnx", runtime="onnx-reference")(torch.ones(4)).tolist() == [3, 3, 3, 3]
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelFileError, match=r"w\.bin"):
        load(tmp_path / "m.onnx", runtime="onnx-reference")
