"""Training on two processes ends with equal parameters and an export that passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import interop
from tools import horovod

ROOT = Path(__file__).resolve().parents[2]


def _examine(report: dict, library: str, out: Path) -> None:
    assert (report["library"], report["size"]) == (library, 2)
    assert len(set(report["before"])) == 2, "the workers started alike, so equal ends would say nothing"
    assert len(set(report["after"])) == 1
    assert not set(report["after"]) & set(report["before"])
    assert "computes the same as Digits" in report["parity"]
    assert interop.load(out)(torch.zeros(3, 1, 8, 8)).shape == (3, 10)


def test_two_processes_of_torchrun_train_alike_and_export(tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    example = ["-m", "examples.distributed_training", "--library", "torch", "--steps", "3", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, *example], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("{")]
    _examine(json.loads(line), "torch.distributed", out)


@pytest.mark.skipif(not horovod.cached(), reason="Horovod is not built (make horovod)")
@pytest.mark.skipif(os.environ.get("TENSOR_INTEROP_HOROVOD") == "0", reason="switched off by TENSOR_INTEROP_HOROVOD=0")
def test_two_processes_of_horovod_train_alike_and_export(tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    _examine(horovod.run(out, steps=3), "horovod", out)
