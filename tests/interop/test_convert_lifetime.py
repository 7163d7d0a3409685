"""Results keep their memory alive, and nothing else keeps it: checked in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_results_outlive_sources_and_release_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.interop.lifetime_cells"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
