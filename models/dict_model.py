"""A model for a table's rows: one dict goes in, one dict comes out."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DictModel(nn.Module):
    """Numbers and a category, joined, then classified.

    Args:
        numbers: numeric columns.
        categories: number of category ids.
        classes: number of classes.
    """

    def __init__(self, numbers: int = 6, categories: int = 5, classes: int = 3) -> None:
        super().__init__()
        self.numbers = numbers
        self.embedding = nn.Embedding(categories, 4)
        self.norm = nn.LayerNorm(numbers)
        self.hidden = nn.Linear(numbers + 4, 16)
        self.classifier = nn.Linear(16, classes)

    def forward(self, row: dict[str, Tensor]) -> dict[str, Tensor]:
        """Classify rows.

        Args:
            row: ``numbers`` (batch, numbers) float32 and ``category`` (batch,) int64.

        Returns:
            ``logits`` and ``probabilities`` (batch, classes) float32, ``label`` (batch,) int64.
        """
        x = torch.cat([self.norm(row["numbers"]), self.embedding(row["category"])], dim=1)
        logits = self.classifier(torch.tanh(self.hidden(x)))
        return {"logits": logits, "probabilities": logits.softmax(dim=1), "label": logits.argmax(dim=1)}

    def example_inputs(self) -> tuple[dict[str, Tensor]]:
        """Four rows."""
        generator = torch.Generator().manual_seed(0)
        numbers = torch.randn(4, self.numbers, generator=generator)
        category = torch.randint(self.embedding.num_embeddings, (4,), generator=generator)
        return ({"numbers": numbers, "category": category},)
