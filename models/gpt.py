"""A GPT-style decoder with a key/value cache (Radford et al., 2019): the past goes in, the longer past comes out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

Cache = tuple[tuple[Tensor, Tensor], ...]
"""One (keys, values) pair a layer, each (batch, heads, past, head width) float32."""


class CausalAttention(nn.Module):
    """Self-attention over the past and the present, never the future.

    Args:
        width: size of a token's vector.
        heads: number of heads; divides ``width``.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Map (batch, time, width) and the layer's past to the same shape and the past with this call added."""
        query, key, value = (self._split(part) for part in self.project(x).chunk(3, dim=-1))
        key = torch.cat([past[0], key], dim=2)
        value = torch.cat([past[1], value], dim=2)
        places = torch.arange(key.shape[2], device=x.device)
        present = past[0].shape[2] + torch.arange(x.shape[1], device=x.device)
        visible = places <= present.unsqueeze(1)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        return self.output(mixed.transpose(1, 2).flatten(2)), (key, value)

    def _split(self, x: Tensor) -> Tensor:
        """(batch, time, width) to (batch, heads, time, head width)."""
        return torch.unflatten(x, -1, (self.heads, self.head_width)).transpose(1, 2)


class Block(nn.Module):
    """Attention and a feed-forward network, each after a normalisation and beside a residual.

    Args:
        width: size of a token's vector.
        heads: number of heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Map (batch, time, width) and the layer's past to the same shape and the longer past."""
        mixed, present = self.attention(self.attention_norm(x), past)
        x = x + mixed
        return x + self.feed_forward(x), present


class GPT(nn.Module):
    """Token and position embeddings, decoder blocks, and an output layer that shares the token embedding.

    Args:
        vocabulary: number of token ids.
        width: size of a token's vector.
        heads: number of attention heads; divides ``width``.
        layers: number of blocks.
        context: the most tokens, past and present together.
    """

    def __init__(
        self, vocabulary: int = 64, width: int = 32, heads: int = 4, layers: int = 2, context: int = 64
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.output.weight = self.tokens.weight
        self.cache_shape = (heads, width // heads)
        nn.init.normal_(self.tokens.weight, std=0.2)  # as the output layer, unit variance would give extreme logits

    def forward(self, tokens: Tensor, past: Cache) -> tuple[Tensor, Cache]:
        """Read the next tokens.

        Args:
            tokens: token ids (batch, time) int64.
            past: what the call before returned, or ``empty_cache(batch)``.

        Returns:
            Logits (batch, time, vocabulary) of each next token, and the cache for the call after.
        """
        seen = past[0][0].shape[2]
        x = self.tokens(tokens) + self.positions(seen + torch.arange(tokens.shape[1], device=tokens.device))
        presents: list[tuple[Tensor, Tensor]] = []
        for block, pair in zip(self.blocks, past):
            x, present = block(x, pair)
            presents.append(present)
        return self.output(self.norm(x)), tuple(presents)

    def empty_cache(self, batch: int) -> Cache:
        """The cache of a sequence that has not begun: pairs of (batch, heads, 0, head width)."""
        heads, head_width = self.cache_shape
        empty = self.tokens.weight.new_zeros(batch, heads, 0, head_width)
        return tuple((empty, empty.clone()) for _ in self.blocks)

    def example_inputs(self) -> tuple[Tensor, Cache]:
        """Two sequences: three new tokens after a past of five."""
        generator = torch.Generator().manual_seed(0)
        heads, head_width = self.cache_shape
        tokens = torch.randint(self.tokens.num_embeddings, (2, 3), generator=generator)
        pairs = torch.randn(len(self.blocks), 2, 2, heads, 5, head_width, generator=generator)
        return tokens, tuple((keys.clone(), values.clone()) for keys, values in pairs)

    def dynamic_shapes(self) -> dict[str, object]:
        """Any batch, any number of new tokens, any length of the past."""
        pair = ({0: "batch", 2: "past"}, {0: "batch", 2: "past"})
        return {"tokens": {0: "batch", 1: "time"}, "past": tuple(pair for _ in self.blocks)}
