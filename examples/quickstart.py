"""The three lines of the README, and what they print."""

from __future__ import annotations

import torch

import interop
import models
from exporters import export_model

model = models.load("digits")

export_model(model, "onnx").save("demo-output/digits.onnx")
export_model(model, "tensorflow", path="demo-output/digits_savedmodel")

images = torch.rand(5, 1, 8, 8)
for path in ("demo-output/digits.onnx", "demo-output/digits_savedmodel"):
    runtime = interop.load(path)
    print(f"{runtime.name:12} {runtime.signature}")
    print(f"{'':12} {runtime(images).argmax(dim=1)}")

print(interop.check(model, "demo-output/digits.onnx", "demo-output/digits_savedmodel"))
