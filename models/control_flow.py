"""A branch that the data decides: ``torch.cond`` keeps both sides in the exported graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ControlFlow(nn.Module):
    """A calm signal goes through a linear layer; a loud one is squashed first and takes another layer.

    The mean magnitude of the whole batch decides, so all rows of a call take the same branch.

    Args:
        features: size of an input row.
        outputs: size of an output row.
        limit: mean magnitude from which a batch counts as loud.
    """

    def __init__(self, features: int = 8, outputs: int = 4, limit: float = 2.0) -> None:
        super().__init__()
        self.features = features
        self.limit = limit
        self.calm = nn.Linear(features, outputs)
        self.loud = nn.Linear(features, outputs)

    def forward(self, signal: Tensor) -> Tensor:
        """Map (batch, features) float32 to (batch, outputs)."""

        def loud(x: Tensor) -> Tensor:
            return self.loud(torch.tanh(x))  # type: ignore[no-any-return]  # nn.Module calls are untyped

        def calm(x: Tensor) -> Tensor:
            return self.calm(x)  # type: ignore[no-any-return]  # nn.Module calls are untyped

        result: Tensor = torch.cond(signal.abs().mean() > self.limit, loud, calm, (signal,))
        return result

    def example_inputs(self) -> tuple[Tensor]:
        """Three calm rows; times ten they are loud."""
        generator = torch.Generator().manual_seed(0)
        return (torch.randn(3, self.features, generator=generator),)
