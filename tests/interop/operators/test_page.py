"""The page runs as it stands."""

from __future__ import annotations

from tests.pages import blocks_of, run_page

PAGE = "docs/operators_written_once.md"
AFTER = """
assert x.grad.tolist() == [1, 1]
assert features.shape == (16, 8)
"""


def test_the_page_runs(tmp_path):
    blocks = blocks_of(PAGE)
    assert len(blocks) == 7
    printed = run_page(PAGE, [*blocks, AFTER], tmp_path)
    assert "torch.Size([2, 16, 16, 3, 2]) torch.Size([2, 16, 16, 3])" in printed
    assert "'edges'" in printed
