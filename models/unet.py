"""A small U-Net: down, up, and skips across (Ronneberger et al., 2015, arXiv:1505.04597)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _double_convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Two levels of pooling, bilinear upsampling on the way back, each level joined with its skip.

    Args:
        inputs: image channels.
        width: channels at full resolution; each level down doubles them.
        classes: logits per pixel.
    """

    def __init__(self, inputs: int = 3, width: int = 8, classes: int = 2) -> None:
        super().__init__()
        self.inputs = inputs
        self.top = _double_convolution(inputs, width)
        self.middle = _double_convolution(width, 2 * width)
        self.bottom = _double_convolution(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.upsample = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.up_middle = _double_convolution(4 * width + 2 * width, 2 * width)
        self.up_top = _double_convolution(2 * width + width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Map images (batch, inputs, 32, 32) float32 to logits (batch, classes, 32, 32).

        Height and width may be any multiples of four.
        """
        top = self.top(image)
        middle = self.middle(self.pool(top))
        bottom = self.bottom(self.pool(middle))
        middle = self.up_middle(torch.cat([self.upsample(bottom), middle], dim=1))
        top = self.up_top(torch.cat([self.upsample(middle), top], dim=1))
        logits: Tensor = self.head(top)
        return logits

    def example_inputs(self) -> tuple[Tensor]:
        """A batch of two images."""
        generator = torch.Generator().manual_seed(0)
        return (torch.randn(2, self.inputs, 32, 32, generator=generator),)
