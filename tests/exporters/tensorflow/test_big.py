"""A model beyond protobuf's 2 GB: exported from external data, saved, loaded in a fresh process, the same function.

It takes minutes, 5 GB of disk and 7 GB of memory, so it runs only where ``TENSOR_INTEROP_BIG`` is set (``make big``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.exporters.tensorflow import big_model
from tests.room import require_room

ROOT = Path(__file__).parent.parent.parent.parent
MEMORY_BYTES = 12 << 30
DISK_BYTES = 8 << 30


def _step(name, folder):
    command = [sys.executable, "-m", "tests.exporters.tensorflow.big_model", name, str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_of_more_than_two_gigabytes_is_exported_saved_and_loaded(tmp_path, record_property):
    require_room(tmp_path, MEMORY_BYTES, DISK_BYTES)
    assert big_model.BYTES > 2 << 30
    for name in ("build", "export", "run"):
        figures = _step(name, tmp_path)
        for key, value in figures.items():
            record_property(f"{name}_{key}", value)
        # The weights are there as variables, as pages of the mapped file, and for a moment in the writer.
        assert figures["peak_bytes"] < 3 * big_model.BYTES, (name, figures)
    assert (tmp_path / "saved" / "saved_model.pb").stat().st_size < 1 << 20  # no weight is a constant of the graph
    np.testing.assert_allclose(np.load(tmp_path / "outputs.npy"), big_model.expected(tmp_path), rtol=1e-3, atol=1e-4)
    shutil.rmtree(tmp_path)
