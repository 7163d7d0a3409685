"""Targets of minutes run where they can, and say why where they cannot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import cache, horovod, kept

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"


@pytest.fixture
def empty(monkeypatch, tmp_path):
    monkeypatch.setenv("TENSOR_INTEROP_CACHE", str(tmp_path))
    monkeypatch.delenv("TENSOR_INTEROP_HOROVOD", raising=False)
    return tmp_path


def test_each_is_a_target_of_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE.read_text(), re.MULTILINE))
    assert kept.OBSTACLES.keys() <= targets


def test_the_cache_is_the_users_or_the_one_that_is_named(monkeypatch, empty):
    assert cache.folder("a-1") == empty / "a-1"
    monkeypatch.delenv("TENSOR_INTEROP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty / "cache"))
    assert cache.folder("a-1") == empty / "cache" / "tensor-interop" / "a-1"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder("a-1") == Path.home() / ".cache" / "tensor-interop" / "a-1"


def test_horovod_runs_once_it_is_built_unless_it_is_switched_off(monkeypatch, empty):
    assert "horovod" not in kept.runnable()
    (horovod.site() / "horovod").mkdir(parents=True)
    assert "horovod" in kept.runnable()
    monkeypatch.setenv("TENSOR_INTEROP_HOROVOD", "0")
    assert "horovod" not in kept.runnable()


def test_onnx_tf_runs_once_it_is_installed(empty):
    assert "onnx-tf" not in kept.runnable()
    (cache.folder(kept.ONNX_TF) / "onnx_tf").mkdir(parents=True)
    assert "onnx-tf" in kept.runnable()
    assert f"tools.cache {kept.ONNX_TF})" in MAKEFILE.read_text()


def test_libtorch_needs_its_tools(monkeypatch, empty):
    monkeypatch.setenv("PATH", str(empty))
    assert kept.OBSTACLES["libtorch"]() == "needs cmake and c++"
    assert "libtorch" not in kept.runnable()


def test_what_is_left_out_is_said(monkeypatch, empty, capsys):
    monkeypatch.setenv("PATH", str(empty))
    kept.main()
    said = capsys.readouterr()
    assert said.out.splitlines() == kept.runnable()
    assert len(said.err.splitlines()) == len(kept.OBSTACLES) - len(kept.runnable())
    assert "make horovod is left out: not built yet" in said.err
