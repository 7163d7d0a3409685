"""The Python on every page runs as it stands, in the order of the page."""

from __future__ import annotations

import ast

import pytest

from tests.pages import ROOT, blocks_of, run_page

DIGITS = """
import interop, models, torch
from exporters import export_model

model = models.load("digits")
x = images = torch.rand(4, 1, 8, 8)
"""
FILE = DIGITS + 'export_model(model, "onnx", path="digits.onnx", verify=False)\n'
KERAS = """
import keras, numpy as np, tensorflow as tf

keras_model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
keras_model.export("saved_model_folder", verbose=False)
keras_model.save("model.keras")
x = tf.ones((2, 3))


class Module(tf.Module):
    @tf.function
    def __call__(self, x):
        return {"y": tf.nn.relu(x)}


module = Module()
"""
DATA = """
import numpy as np, ray

ray.init("local", num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
dataset = ray.data.from_numpy(np.zeros((6, 1, 8, 8), np.float32)).map_batches(
    lambda batch: {"pixels": batch["data"], "key": np.arange(len(batch["data"]))}
)
"""

BEFORE = {
    "README.md": DIGITS + KERAS + 'export_model(model, "onnx", path="theirs.onnx", verify=False)\nx = torch.ones(16)\n',
    "docs/capture.md": "",
    "docs/explaining.md": "",
    "docs/from_tensorflow.md": KERAS,
    "docs/ray.md": FILE + DATA,
    "docs/runtime.md": FILE,
    "docs/serving.md": DIGITS,
    "docs/tracking.md": "",
}
"""What a page takes for granted."""

ELSEWHERE = {
    "CONTRIBUTING.md": "a signature to copy, not a program",
    "docs/adding_a_framework.md": "tests/interop/test_frameworks.py",
    "docs/libtorch.md": "tests/exporters/test_libtorch.py: it compiles for minutes",
    "docs/operators_written_once.md": "tests/interop/operators/test_page.py",
}
"""Pages that another test runs, and which."""

LEFT_OUT = {
    'export_model(model, "libtorch"': "compiles for minutes: tests/exporters/test_libtorch.py",
    "with ServingClient(": "needs a server: tests/interop/test_integration_serving.py",
    "with interop.guard():": "raises, as its comment says: tests/interop/test_convert_guard.py",
}
"""Statements that are left out, by their first words."""


def _kept(block: str) -> str:
    statements = (ast.get_source_segment(block, each) or "" for each in ast.parse(block).body)
    return "\n".join(each for each in statements if not each.startswith(tuple(LEFT_OUT)))


def test_every_page_with_python_is_run_somewhere():
    pages = {str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]}
    assert {page for page in pages if blocks_of(page)} == BEFORE.keys() | ELSEWHERE.keys()
    text = "".join("".join(blocks_of(page)) for page in BEFORE)
    assert not [words for words in LEFT_OUT if words not in text]


@pytest.mark.parametrize("page", BEFORE)
def test_page_runs(page, tmp_path):
    run_page(page, [BEFORE[page], *map(_kept, blocks_of(page))], tmp_path)
