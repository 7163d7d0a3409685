"""Two inputs of different rank, and a third by keyword: rank documents for a query."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TwoInputs(nn.Module):
    """Both sides are projected into one space; the inner product there is the score.

    Args:
        query: size of a query's vector.
        document: size of a document's vector.
        shared: size of the common space.
    """

    def __init__(self, query: int = 12, document: int = 20, shared: int = 16) -> None:
        super().__init__()
        self.query_tower = nn.Linear(query, shared)
        self.document_tower = nn.Linear(document, shared)

    def forward(self, query: Tensor, documents: Tensor, *, prior: Tensor) -> Tensor:
        """Rank documents.

        Args:
            query: (batch, query) float32.
            documents: (batch, documents, document) float32.
            prior: log-probabilities (batch, documents) float32 that the scores are added to.

        Returns:
            Probabilities (batch, documents) float32; each row sums to one.
        """
        left = torch.tanh(self.query_tower(query)).unsqueeze(-1)
        right = torch.tanh(self.document_tower(documents))
        scores = (right @ left).squeeze(-1) + prior
        return scores.softmax(dim=-1)

    def example_inputs(self) -> tuple[Tensor, Tensor]:
        """Two queries with five documents each."""
        generator = torch.Generator().manual_seed(0)
        query = torch.randn(2, self.query_tower.in_features, generator=generator)
        return query, torch.randn(2, 5, self.document_tower.in_features, generator=generator)

    def example_kwargs(self) -> dict[str, Tensor]:
        """The keyword arguments that belong to ``example_inputs``."""
        generator = torch.Generator().manual_seed(1)
        return {"prior": torch.randn(2, 5, generator=generator).log_softmax(dim=-1)}

    def dynamic_shapes(self) -> dict[str, dict[int, str]]:
        """Any number of queries, any number of documents for each."""
        return {
            "query": {0: "batch"},
            "documents": {0: "batch", 1: "documents"},
            "prior": {0: "batch", 1: "documents"},
        }
