"""The Python of a documentation page, and how it is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def blocks_of(page: str) -> list[str]:
    """The blocks of a page, which is a path from the root of the repository."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def run_page(page: str, code: Iterable[str], folder: Path) -> str:
    """Run code of a page and give what it prints.

    In a process of its own: pages start clusters, choose where runs are tracked and define operators, whose names are the
    process's for good.
    """
    script = folder / "page.py"
    script.write_text("\n".join(code), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}  # no token in the user's home
    done = subprocess.run(
        [sys.executable, script.name], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
