"""A detector's neck and head: a feature pyramid (Lin et al., 2017, arXiv:1612.03144) with outputs at three scales."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def _downsample(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()
    )


class DetectorHead(nn.Module):
    """A small backbone, a top-down pyramid, and one head that all scales share.

    Args:
        classes: scores per place.
        width: channels of the pyramid.
    """

    def __init__(self, classes: int = 4, width: int = 16) -> None:
        super().__init__()
        channels = (width, 2 * width, 4 * width)
        self.backbone = nn.ModuleList(_downsample(a, b) for a, b in zip((3, *channels), channels))
        self.lateral = nn.ModuleList(nn.Conv2d(count, width, 1) for count in channels)
        self.scores = nn.Conv2d(width, classes, 3, padding=1)
        self.boxes = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, image: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Look at images (batch, 3, height, width) float32.

        Returns:
            Scores in [0, 1], each (batch, classes, h, w), and box offsets, each (batch, 4, h, w), both from the finest
            scale (stride 2) to the coarsest (stride 8).
        """
        features = self._pyramid(image)
        scores = [torch.sigmoid(self.scores(level)) for level in features]
        return scores, [self.boxes(level) for level in features]

    def _pyramid(self, image: Tensor) -> list[Tensor]:
        levels: list[Tensor] = []
        x = image
        for stage, lateral in zip(self.backbone, self.lateral):
            x = stage(x)
            levels.append(lateral(x))
        for index in (1, 0):
            # to the finer level's own size, not times two: odd sizes then fit as well
            upper = functional.interpolate(levels[index + 1], size=levels[index].shape[-2:], mode="nearest")
            levels[index] = levels[index] + upper
        return levels

    def example_inputs(self) -> tuple[Tensor]:
        """Two images of 32 by 48 pixels."""
        generator = torch.Generator().manual_seed(0)
        return (torch.randn(2, 3, 32, 48, generator=generator),)

    def dynamic_shapes(self) -> dict[str, dict[int, str]]:
        """Any number of images of any one size."""
        return {"image": {0: "batch", 2: "height", 3: "width"}}
