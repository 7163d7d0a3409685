"""The page runs as it stands, in a process of its own: an operator's name is the process's for good."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "operators_written_once.md"
AFTER = """
assert x.grad.tolist() == [1, 1]
assert features.shape == (16, 8)
"""


def test_the_page_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 7
    script = tmp_path / "operators_written_once.py"
    script.write_text("\n".join([*blocks, AFTER]), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "torch.Size([2, 16, 16, 3, 2]) torch.Size([2, 16, 16, 3])" in done.stdout
    assert "'edges'" in done.stdout
