"""A multilayer perceptron: the smallest useful network."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with ReLU between them.

    Args:
        features: size of an input row.
        hidden: size of the two hidden layers.
        classes: number of logits.
    """

    def __init__(self, features: int = 16, hidden: int = 32, classes: int = 4) -> None:
        super().__init__()
        self.features = features
        self.layers = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, features) float32 to logits (batch, classes)."""
        logits: Tensor = self.layers(x)
        return logits

    def example_inputs(self) -> tuple[Tensor]:
        """A batch of three rows."""
        generator = torch.Generator().manual_seed(0)
        return (torch.randn(3, self.features, generator=generator),)
