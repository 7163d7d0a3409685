"""Files appear whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import interop
from exporters import WriteError, _files, export_model
from exporters.onnx import _artifact

ROOT = Path(__file__).parent.parent.parent


def _exported(seed=0, target="onnx"):
    torch.manual_seed(seed)
    return export_model(nn.Linear(4, 2), target, verify=False)


def _strays(folder):
    return [path.name for path in folder.iterdir() if ".partial" in path.name]


def test_save_makes_missing_folders_and_leaves_nothing_else(tmp_path):
    exported = _exported()
    path = exported.save(tmp_path / "a" / "b" / "model.onnx")
    assert path == exported.path == tmp_path / "a" / "b" / "model.onnx"
    assert [entry.name for entry in path.parent.iterdir()] == ["model.onnx"]


def test_save_replaces_an_older_model(tmp_path):
    for target, name in (("onnx", "m.onnx"), ("tensorflow", "m")):
        x = torch.randn(3, 4)
        _exported(0, target).save(tmp_path / name)
        newer = _exported(1, target)
        newer.save(tmp_path / name)
        torch.testing.assert_close(interop.load(tmp_path / name)(x), newer(x))
        assert _strays(tmp_path) == []


def test_a_failure_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = _exported(0).save(tmp_path / "m.onnx")
    before = path.read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_artifact.ir, "save", full)
    with pytest.raises(WriteError, match="No space left"):
        _exported(1).save(path)
    assert path.read_bytes() == before and _strays(tmp_path) == []


def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path):
    script = textwrap.dedent("""
        import resource, signal, sys, torch
        from exporters import WriteError, export_model
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        exported = export_model(torch.nn.Linear(400, 400), "onnx", verify=False)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        try:
            exported.save(sys.argv[1])
        except WriteError as error:
            print("refused:", error)
    """)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"the old file")
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.startswith("refused:") and "File too large" in run.stdout, run.stderr
    assert path.read_bytes() == b"the old file" and _strays(tmp_path) == []


@pytest.mark.parametrize("target", ["onnx", "tensorflow"])
def test_a_kill_in_the_middle_leaves_the_old_model(tmp_path, target):
    script = textwrap.dedent("""
        import os, signal, sys, torch
        from exporters import export_model
        from exporters import _files
        torch.manual_seed(1)
        exported = export_model(torch.nn.Linear(4, 2), sys.argv[2], verify=False)
        original = _files._sync
        def dies(path):
            original(path)
            os.kill(os.getpid(), signal.SIGKILL)
        _files._sync = dies
        exported.save(sys.argv[1])
    """)
    path = tmp_path / ("m.onnx" if target == "onnx" else "m")
    older = _exported(0, target)
    older.save(path)
    run = subprocess.run([sys.executable, "-c", script, str(path), target], capture_output=True, cwd=ROOT)
    assert run.returncode == -signal.SIGKILL
    x = torch.randn(3, 4)
    torch.testing.assert_close(interop.load(path)(x), older(x))


def test_an_unwritable_folder_is_an_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(WriteError, match="cannot write"):
        _exported().save(blocked / "m.onnx")
    assert blocked.read_text() == "not a folder"


def test_a_folder_of_the_user_s_is_never_replaced(tmp_path):
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    for target in ("onnx", "tensorflow"):
        with pytest.raises(WriteError, match="folder"):
            _exported(target=target).save(folder)
    assert (folder / "thesis.tex").read_text() == "years of work"
    assert _strays(tmp_path) == []


def test_a_file_in_the_way_of_a_folder_is_never_replaced(tmp_path):
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(WriteError, match="file"):
        _exported(target="tensorflow").save(path)
    assert path.read_text() == "mine"


def test_folders_are_swapped_in_one_step_on_linux(tmp_path):
    if not sys.platform.startswith("linux"):
        pytest.skip("renameat2 is a Linux call")
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.mkdir()
        (path / "name").write_text(path.name)
    assert _files._exchange(one, other)
    assert (one / "name").read_text() == "other" and (other / "name").read_text() == "one"


def test_large_weights_go_to_a_data_file_and_the_older_one_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(_artifact, "SINGLE_FILE_BYTES", 16)
    x = torch.randn(3, 400)
    for seed in (0, 1):
        torch.manual_seed(seed)
        exported = export_model(nn.Linear(400, 400), "onnx", verify=False)
        path = exported.save(tmp_path / "m.onnx")
        files = sorted(entry.name for entry in tmp_path.iterdir())
        assert (
            len(files) == 2 and files[0] == "m.onnx" and files[1].startswith("m.onnx.") and files[1].endswith(".data")
        )
        torch.testing.assert_close(interop.load(path)(x), exported(x))
    assert path.stat().st_size < 20_000


def test_small_models_are_one_file(tmp_path):
    path = _exported().save(tmp_path / "m.onnx")
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]
    assert all(not tensor.external_data for tensor in onnx.load(path).graph.initializer)


def test_a_failed_check_writes_nothing(tmp_path, monkeypatch):
    def wrong(self):
        weight = next(iter(self.model.graph.initializers.values()))
        weight.const_value = type(weight.const_value)(
            torch.nn.Parameter(weight.const_value.raw * 1.01), name=weight.name
        )
        return interop.load(self.model)

    monkeypatch.setattr(_artifact.OnnxArtifact, "load", wrong)
    with pytest.raises(interop.ParityError):
        export_model(nn.Linear(4, 2), "onnx", path=tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
