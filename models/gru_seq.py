"""A forecaster: a stacked GRU reads a series and predicts each next step."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GRUSeq(nn.Module):
    """Two GRU layers and a linear layer.

    Args:
        features: values per time step.
        hidden: size of the GRU's state.
    """

    def __init__(self, features: int = 3, hidden: int = 24) -> None:
        super().__init__()
        self.features = features
        self.gru = nn.GRU(features, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, features)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        """Map a series (batch, time, features) float32 to its predictions and the last state.

        Returns:
            Predictions (batch, time, features), each for the step after; the upper layer's last state (batch, hidden).
        """
        states, last = self.gru(series)
        predictions: Tensor = self.head(states)
        return predictions, last[-1]

    def example_inputs(self) -> tuple[Tensor]:
        """Two series of nine steps."""
        generator = torch.Generator().manual_seed(0)
        return (torch.randn(2, 9, self.features, generator=generator),)

    def dynamic_shapes(self) -> dict[str, dict[int, str]]:
        """Any number of series of any length."""
        return {"series": {0: "batch", 1: "time"}}
