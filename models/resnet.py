"""ResNet-8 for images of CIFAR's size (He et al., 2016, arXiv:1512.03385, section 4.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut around them.

    Args:
        inputs: channels that come in.
        outputs: channels that go out.
        stride: 1 keeps height and width, 2 halves them.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        return torch.relu(self.convolutions(x) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, three stages of residual blocks, a global average and a linear layer.

    Args:
        blocks: residual blocks per stage; the depth is ``6 * blocks + 2``.
        width: channels of the first stage; each further stage doubles them.
        classes: number of logits.
    """

    def __init__(self, blocks: int = 1, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        stages: list[nn.Module] = []
        channels = width
        for stage in range(3):
            for index in range(blocks):
                outputs = width * 2**stage
                stages.append(Block(channels, outputs, stride=2 if stage > 0 and index == 0 else 1))
                channels = outputs
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Map images (batch, 3, 32, 32) float32 to logits (batch, classes)."""
        features = self.pool(self.stages(self.stem(image)))
        logits: Tensor = self.classifier(features.flatten(1))
        return logits

    def example_inputs(self) -> tuple[Tensor]:
        """A batch of two images."""
        generator = torch.Generator().manual_seed(0)
        return (torch.randn(2, 3, 32, 32, generator=generator),)
