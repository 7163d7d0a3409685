"""A sequence tagger: one label for each token, from both directions."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LSTMTagger(nn.Module):
    """Embedding, bidirectional LSTM, linear layer.

    Args:
        vocabulary: number of token ids.
        embedding: size of a token's vector.
        hidden: size of the LSTM's state, per direction.
        tags: logits per token.
    """

    def __init__(self, vocabulary: int = 100, embedding: int = 16, hidden: int = 24, tags: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * hidden, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (batch, time) int64 to logits (batch, time, tags)."""
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.classifier(states)
        return logits

    def example_inputs(self) -> tuple[Tensor]:
        """Two sentences of seven tokens."""
        generator = torch.Generator().manual_seed(0)
        return (torch.randint(self.embedding.num_embeddings, (2, 7), generator=generator),)

    def dynamic_shapes(self) -> dict[str, dict[int, str]]:
        """Any number of sentences of any length."""
        return {"tokens": {0: "batch", 1: "time"}}
