"""Export the digits model, run it on three runtimes over real handwritten digits, and compare.

Run it with ``make demo``.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import interop
import models
from exporters import ExportedModel, export_model
from models import digits

OUTPUT = Path("demo-output")
console = Console()


def main() -> None:
    """Run the demo."""
    model = models.load("digits")
    images, labels = digits.test_set()

    with console.status("exporting to ONNX"):
        onnx = export_model(model, "onnx", path=OUTPUT / "digits.onnx")
    with console.status("exporting to TensorFlow (the first import takes a few seconds)"):
        tensorflow = export_model(model, "tensorflow", path=OUTPUT / "digits_savedmodel")

    with console.status("running all three"):
        runtimes = {"torch": interop.load(model)}
        runtimes |= {"onnxruntime": _reloaded(onnx), "tensorflow": _reloaded(tensorflow)}
        console.print(_accuracies(runtimes, images, labels))
        report = interop.check(model, runtimes["onnxruntime"], runtimes["tensorflow"], inputs=images)
    console.print(report)
    console.print(f"\nThe files: {onnx.path}\n           {tensorflow.path}")
    report.raise_for_failure()


def _reloaded(exported: ExportedModel) -> interop.Runtime:
    assert exported.path is not None
    return interop.load(exported.path)


def _accuracies(runtimes: dict[str, interop.Runtime], images: torch.Tensor, labels: torch.Tensor) -> Table:
    table = Table(title=f"{len(images)} handwritten digits that the model never saw")
    for column in ("runtime", "right", "ms for all", "first ten"):
        table.add_column(column, justify="left" if column in ("runtime", "first ten") else "right")
    for name, runtime in runtimes.items():
        runtime(images)  # the first call sets things up
        start = time.perf_counter()
        answers = runtime(images).argmax(dim=1)
        elapsed = time.perf_counter() - start
        right = int((answers == labels).sum())
        table.add_row(
            name,
            f"{right}/{len(labels)} ({right / len(labels):.1%})",
            f"{elapsed * 1000:.1f}",
            " ".join(map(str, answers[:10].tolist())),
        )
    return table


if __name__ == "__main__":
    main()
