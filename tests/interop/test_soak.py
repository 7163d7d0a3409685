"""Many calls leave resident memory where it was; ``make soak`` does the same with a million."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOAK = [sys.executable, "-m", "benchmarks.soak", "--calls", "20000", "--limit", "512"]


def test_memory_stays_flat_over_conversions_and_runs() -> None:
    run = subprocess.run(SOAK, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    assert len(run.stdout.splitlines()) > 30


LEAK = """
from benchmarks import soak
kept = []
print(soak.growth(lambda: kept.append(bytes(48)), 20_000), soak.growth(lambda: bytes(48), 20_000))
"""


def test_the_measure_sees_a_leak_of_48_bytes_a_call() -> None:
    """In a process of its own: one that has run for long has free memory, in which a leak of this size does not show."""
    run = subprocess.run(
        [sys.executable, "-c", LEAK], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    leaking, tight = map(int, run.stdout.split())
    assert leaking > 512 << 10
    assert tight < 512 << 10
