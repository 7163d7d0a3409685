"""A wrong weight in a model beyond protobuf's 2 GB is found, within three times the weights' memory.

It takes minutes, 3 GB of disk and 8 GB of memory, so it runs only where ``TENSOR_INTEROP_BIG`` is set (``make big``).
"""

from __future__ import annotations

import math
import shutil

import pytest

from benchmarks import parity_memory
from tests.room import require_room

GIGABYTES = 2.3
MEMORY_BYTES = 12 << 30
DISK_BYTES = 6 << 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wrong_weight_beyond_two_gigabytes_is_located(tmp_path, record_property):
    require_room(tmp_path, MEMORY_BYTES, DISK_BYTES)
    blocks = math.ceil(GIGABYTES * 1e9 / parity_memory.BLOCK_BYTES)
    weights, path = blocks * parity_memory.BLOCK_BYTES, tmp_path / "model.onnx"
    assert weights > 2 << 30
    parity_memory.run_step("write", blocks, path)
    base = parity_memory.run_step("baseline", blocks, path)["peak"]
    figures = parity_memory.run_step("check_and_locate", blocks, path)
    record_property("times_the_weights", (figures["peak"] - base) / weights)
    assert f"of module {parity_memory.CHANGED}.down" in figures["found"]
    assert figures["peak"] - base < parity_memory.LIMIT * weights
    shutil.rmtree(tmp_path)
