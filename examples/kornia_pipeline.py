"""Preprocessing and model in one exported file: a photograph as uint8 goes in, the label comes out, the same everywhere.

Run it with ``python -m examples.kornia_pipeline`` (needs the extras ``kornia`` and ``tensorflow``).
"""

from __future__ import annotations

from pathlib import Path

import kornia
import torch
from torch import Tensor, nn

import interop
import models
from exporters import ExportedModel, export_model
from models import digits

OUTPUT = Path("demo-output")
DYNAMIC = {"photo": {0: "batch", 2: "height", 3: "width"}}


class DigitReader(nn.Module):
    """Reads a digit written in dark ink on light paper."""

    def __init__(self) -> None:
        super().__init__()
        self.resize = kornia.geometry.Resize((8, 8))
        self.ink = kornia.enhance.Normalize(mean=1.0, std=-1.0)  # 1 - brightness: the model was trained on ink
        self.model = models.load("digits")

    def forward(self, photo: Tensor) -> Tensor:
        """Map photographs (batch, 3, height, width) uint8 to labels (batch,) int64."""
        brightness = kornia.color.rgb_to_grayscale(photo.float() / 255)
        logits: Tensor = self.model(self.ink(self.resize(brightness)))
        return logits.argmax(dim=1)

    def example_inputs(self) -> tuple[Tensor]:
        """Two photographs of 40 x 56."""
        return (photographs(digits.test_set()[0][:2], (40, 56)),)


def photographs(scans: Tensor, size: tuple[int, int]) -> Tensor:
    """Scans (n, 1, 8, 8) in [0, 1] as blue ink on yellowish paper, (n, 3, height, width) uint8."""
    ink = nn.functional.interpolate(scans, size, mode="nearest")
    paper, blue = (torch.tensor(color).reshape(3, 1, 1) for color in ([255.0, 250.0, 235.0], [0.0, 10.0, 90.0]))
    return (paper + ink * (blue - paper)).round().to(torch.uint8)


def export(folder: Path) -> dict[str, ExportedModel]:
    """Export the whole pipeline; each is compared with torch before a file is written."""
    reader = DigitReader().eval()
    return {
        "onnxruntime": export_model(reader, "onnx", dynamic_shapes=DYNAMIC, path=folder / "reader.onnx"),
        "tensorflow": export_model(reader, "tensorflow", dynamic_shapes=DYNAMIC, path=folder / "reader_savedmodel"),
    }


def main() -> None:
    """Export, run on photographs of two sizes, count."""
    scans, labels = digits.test_set()
    runtimes = {"torch": interop.load(DigitReader().eval())}
    runtimes |= {name: interop.load(exported.path) for name, exported in export(OUTPUT).items()}
    for size in ((40, 56), (96, 64)):
        photos = photographs(scans, size)
        for name, runtime in runtimes.items():
            found = runtime(photos)
            print(f"{name:12} {size[0]:3} x {size[1]}: {int((found == labels).sum())} of {len(labels)} right")


if __name__ == "__main__":
    main()
