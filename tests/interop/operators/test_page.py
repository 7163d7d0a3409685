"""The page runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "operators_written_once.md"


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 7
    names = {"__name__": "operators_written_once"}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    assert names["x"].grad.tolist() == [1, 1]
    assert names["features"].shape == (16, 8)
    printed = capsys.readouterr().out
    assert "torch.Size([2, 16, 16, 3, 2]) torch.Size([2, 16, 16, 3])" in printed
    assert "'edges'" in printed
