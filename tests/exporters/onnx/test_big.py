"""A torch model of 3 GB: exported, verified, saved with external data, moved, and loaded again.

It takes minutes, 4 GB of disk and up to 16 GB of memory, so it runs only where ``TENSOR_INTEROP_BIG`` is set (``make big``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import interop
from tests.exporters.onnx import big_model
from tests.room import require_room

ROOT = Path(__file__).parent.parent.parent.parent
MEMORY_BYTES = 16 << 30
DISK_BYTES = 8 << 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_of_three_gigabytes_is_exported_verified_and_loaded_elsewhere(tmp_path, record_property):
    require_room(tmp_path, MEMORY_BYTES, DISK_BYTES)
    assert big_model.BYTES >= 3 << 30
    made = tmp_path / "made"
    made.mkdir()
    command = [sys.executable, "-m", "tests.exporters.onnx.big_model", str(made)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    record_property("peak_bytes", figures["peak_bytes"])
    assert figures["passed"]
    assert figures["runs"] >= 3
    assert figures["peak_bytes"] < MEMORY_BYTES
    (data,) = made.glob("big.onnx.*.data")
    assert data.stat().st_size >= big_model.BYTES
    assert (made / "big.onnx").stat().st_size < 1 << 20
    made.rename(tmp_path / "moved")
    expected = torch.load(tmp_path / "moved" / "expected.pt", weights_only=True)
    answers = interop.load(tmp_path / "moved" / "big.onnx")(expected["x"])
    torch.testing.assert_close(answers, expected["y"], rtol=1e-3, atol=1e-4)
    shutil.rmtree(tmp_path)
