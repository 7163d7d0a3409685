"""Whether there is room for a test of gigabytes; such a test runs only where ``TENSOR_INTEROP_BIG`` is set (``make big``)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def require_room(folder: Path, memory: int, disk: int) -> None:
    """Skip, with the cause, unless the test is wanted and the machine has so many free bytes."""
    if not os.environ.get("TENSOR_INTEROP_BIG"):
        pytest.skip(f"it takes minutes and {memory >> 30} GB of memory; set TENSOR_INTEROP_BIG=1 (make big)")
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists() or _free(meminfo) < memory:
        pytest.skip(f"less than {memory >> 30} GB of memory is free")
    if shutil.disk_usage(folder).free < disk:
        pytest.skip(f"less than {disk >> 30} GB of disk is free in {folder}")


def _free(meminfo: Path) -> int:
    fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024
