"""A transformer encoder with a padding mask (Vaswani et al., 2017, arXiv:1706.03762), attention written out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(length: int, width: int) -> Tensor:
    """Position vectors (length, width) float32: section 3.5 of the paper; ``width`` is even."""
    positions = torch.arange(length, dtype=torch.float32).unsqueeze(1)
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000.0) / width))
    angles = positions * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class MultiHeadAttention(nn.Module):
    """Self-attention that looks only at real tokens.

    Args:
        width: size of a token's vector.
        heads: number of heads; divides ``width``.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map (batch, time, width) to the same shape; ``mask`` (batch, time) bool is True at real tokens."""
        query, key, value = self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.head_width)
        # the lowest finite value, not -inf: a row of padding alone then gives an average and not NaN
        scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        mixed = scores.softmax(dim=-1) @ value
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result

    def _split(self, x: Tensor) -> Tensor:
        """(batch, time, width) to (batch, heads, time, head width)."""
        return torch.unflatten(x, -1, (self.heads, self.head_width)).transpose(1, 2)


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, each with a residual and a normalisation after it.

    Args:
        width: size of a token's vector.
        heads: number of heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.feed_forward_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map (batch, time, width) to the same shape."""
        x = self.attention_norm(x + self.attention(x, mask))
        result: Tensor = self.feed_forward_norm(x + self.feed_forward(x))
        return result


class TransformerEncoder(nn.Module):
    """A sentence classifier: the mean over the real tokens of what the encoder makes of them.

    Args:
        vocabulary: number of token ids.
        width: size of a token's vector; even.
        heads: number of attention heads; divides ``width``.
        layers: number of encoder layers.
        classes: number of logits.
        longest: the longest sentence, in tokens.
    """

    positions: Tensor

    def __init__(
        self,
        vocabulary: int = 100,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        classes: int = 3,
        longest: int = 64,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.register_buffer("positions", sinusoids(longest, width), persistent=False)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.classifier = nn.Linear(width, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Map token ids (batch, time) int64 and a mask (batch, time) bool, True at real tokens, to (batch, classes)."""
        x = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        weights = mask.unsqueeze(-1).to(x.dtype)
        mean = (x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        logits: Tensor = self.classifier(mean)
        return logits

    def example_inputs(self) -> tuple[Tensor, Tensor]:
        """Three sentences, of eight, five and three tokens."""
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(self.embedding.num_embeddings, (3, 8), generator=generator)
        mask = torch.arange(8) < torch.tensor([[8], [5], [3]])
        return tokens * mask, mask

    def dynamic_shapes(self) -> dict[str, dict[int, str]]:
        """Any number of sentences of up to ``longest`` tokens."""
        return {"tokens": {0: "batch", 1: "time"}, "mask": {0: "batch", 1: "time"}}
