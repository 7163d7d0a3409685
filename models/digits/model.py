"""The network and its trained weights."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

WEIGHTS = Path(__file__).parent / "weights.safetensors"
"""The committed weights; ``models.digits.train`` writes them."""


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


class Digits(nn.Module):
    """Three convolutions, two poolings, two linear layers: about 40,000 parameters.

    Args:
        dropout: share of the features that training drops before each linear layer.
    """

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolution(1, 16),
            *_convolution(16, 32),
            nn.MaxPool2d(2),
            *_convolution(32, 64),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(64 * 2 * 2, 64),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(64, 10),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Map scans (batch, 1, 8, 8) float32 in [0, 1] to logits (batch, 10)."""
        logits: Tensor = self.classifier(self.features(image))
        return logits

    def example_inputs(self) -> tuple[Tensor]:
        """Two images of noise in the range of a scan; ``test_set()`` has real ones."""
        generator = torch.Generator().manual_seed(0)
        return (torch.rand(2, 1, 8, 8, generator=generator),)


def pretrained(dropout: float = 0.3) -> Digits:
    """The network with the committed weights, in evaluation mode.

    Args:
        dropout: see ``Digits``.
    """
    model = Digits(dropout)
    model.load_state_dict(load_file(WEIGHTS))
    return model.eval()
