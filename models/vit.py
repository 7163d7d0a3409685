"""A vision transformer (Dosovitskiy et al., 2021, arXiv:2010.11929): an image is a sentence of patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward network, each after a normalisation and beside a residual.

    Args:
        width: size of a patch's vector.
        heads: number of attention heads; divides ``width``.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.attention_norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, patches, width) to the same shape."""
        x = x + self._attend(self.attention_norm(x))
        result: Tensor = x + self.feed_forward(x)
        return result

    def _attend(self, x: Tensor) -> Tensor:
        parts = torch.unflatten(self.project(x), -1, (3, self.heads, self.head_width))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        mixed = functional.scaled_dot_product_attention(query, key, value)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class ViT(nn.Module):
    """Patches, a class token, positions, transformer blocks, and a linear layer on the class token.

    Args:
        size: height and width of an image, in pixels.
        patch: height and width of a patch; divides ``size``.
        width: size of a patch's vector.
        heads: number of attention heads; divides ``width``.
        layers: number of blocks.
        classes: number of logits.
    """

    def __init__(
        self, size: int = 32, patch: int = 8, width: int = 32, heads: int = 4, layers: int = 2, classes: int = 10
    ) -> None:
        super().__init__()
        self.size = size
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.1 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Map images (batch, 3, size, size) float32 to logits (batch, classes)."""
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(image.shape[0], -1, -1), patches], dim=1)
        x = self.norm(self.blocks(x + self.positions))
        logits: Tensor = self.classifier(x[:, 0])
        return logits

    def example_inputs(self) -> tuple[Tensor]:
        """A batch of two images."""
        generator = torch.Generator().manual_seed(0)
        return (torch.randn(2, 3, self.size, self.size, generator=generator),)
