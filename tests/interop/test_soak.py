"""Many calls leave resident memory where it was; ``make soak`` does the same with a million."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import soak

SOAK = [sys.executable, "-m", "benchmarks.soak", "--calls", "20000", "--limit", "512"]


def test_memory_stays_flat_over_conversions_and_runs() -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(SOAK, cwd=root, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    assert len(run.stdout.splitlines()) > 30


def test_the_measure_sees_a_leak_of_48_bytes_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak.gc, "collect", lambda: 0)  # slow beside loaded frameworks, and nothing here is a cycle
    kept: list[bytes] = []
    assert soak.growth(lambda: kept.append(bytes(48)), 20_000) > 512 << 10
    assert soak.growth(lambda: bytes(48), 20_000) < 512 << 10
