"""A torch model of 3 GB, exported to ONNX with verification in a process of its own: ``python -m ... FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn

WIDTH = 4096
LAYERS = 48
BYTES = LAYERS * WIDTH * WIDTH * 4


class Big(nn.Module):
    """Linear layers whose weights are reproducible and keep the scale of what goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for layer in self.layers:
                layer.weight.uniform_(-1, 1, generator=generator).mul_((3 / WIDTH) ** 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        return x


def main(folder: Path) -> None:
    from exporters import export_model

    model = Big().eval()
    x = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(1))
    exported = export_model(model, "onnx", inputs=x, path=folder / "big.onnx")
    assert exported.parity is not None
    with torch.no_grad():
        torch.save({"x": x, "y": model(x)}, folder / "expected.pt")
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    figures = {
        "passed": exported.parity.passed,
        "runs": len(exported.parity.cases),
        "peak_bytes": int(status["VmHWM"].split()[0]) * 1024,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
