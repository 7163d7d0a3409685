"""The format table: what is there, what is missing, what others add."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import exporters
import interop
from exporters import OptionsError, _formats, available_formats, export_model, register_exporter


class _Artifact:
    format = "shout"
    dims = ()
    notices = ("loud",)

    def __init__(self, model):
        self.signature = interop.Signature((), ())
        self._model = model

    def write(self, path):
        path.write_text(str(self._model).upper())

    def files(self, path):
        return (path,)

    def tidy(self, path):
        pass

    def load(self):
        return interop.load(self._model)


class _Shout:
    format = "shout"
    options_type = dict

    def takes(self, model):
        return False

    def export(self, request):
        return _Artifact(request.model)


@pytest.fixture
def shout(monkeypatch):
    monkeypatch.setattr(_formats, "_registered", {})
    register_exporter("shout", _Shout)


def test_the_built_in_formats_are_there():
    assert {"onnx", "tensorflow"} <= set(available_formats())


def test_a_registered_format_is_used_by_name(shout, tmp_path):
    assert "shout" in available_formats()
    exported = export_model(nn.Linear(2, 1).eval(), "shout", verify=False, path=tmp_path / "deep" / "m.txt")
    assert Path(exported.path).read_text().startswith("LINEAR(") and exported.notices == ("loud",)


def test_a_name_that_is_taken_is_refused(shout):
    with pytest.raises(OptionsError, match="exists already"):
        register_exporter("onnx", _Shout)
    with pytest.raises(OptionsError, match="exists already"):
        register_exporter("shout", _Shout)


@pytest.mark.parametrize(
    ("target", "missing", "extra"), [("onnx", "onnxscript", "onnx"), ("tensorflow", "tensorflow", "tensorflow")]
)
def test_a_missing_framework_names_the_extra(monkeypatch, target, missing, extra):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(interop.MissingExtraError, match=rf"pip install 'tensor-interop\[{extra}\]'"):
        export_model(nn.Linear(2, 1), target)


def test_something_that_is_no_model_is_refused():
    with pytest.raises(OptionsError, match="int"):
        export_model(3, "onnx")
    with pytest.raises(OptionsError, match=r"\.onnx"):
        export_model("weights.pt", "tensorflow")


def test_a_missing_or_broken_onnx_file_is_an_error(tmp_path):
    with pytest.raises(interop.ModelFileError):
        export_model(str(tmp_path / "none.onnx"), "tensorflow")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x07garbage")
    with pytest.raises(interop.InteropError):
        export_model(str(broken), "tensorflow")


def test_external_data_may_not_leave_the_model_s_folder(tmp_path):
    import onnx
    from onnx import TensorProto, helper

    (tmp_path / "secret.bin").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../secret.bin"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x", 1, [4])], [value("y", 1, [4])], [weight]
    )
    (folder / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    assert onnx.load(str(folder / "m.onnx"), load_external_data=False).graph.initializer[0].external_data
    with pytest.raises(interop.ModelFileError, match="secret"):
        export_model(str(folder / "m.onnx"), "tensorflow")


def test_errors_are_one_tree():
    assert issubclass(exporters.MissingInputsError, exporters.ExportError)
    assert issubclass(exporters.UnsupportedOperatorError, exporters.TranslationError)
    assert issubclass(exporters.ExportError, interop.InteropError)


def test_exported_program_is_a_source():
    program = torch.export.export(nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    exported = export_model(program, "onnx")
    assert exported.parity.passed
    x = torch.randn(7, 4)
    torch.testing.assert_close(exported(x), program.module()(x).detach())
