"""A convolutional autoencoder: strided convolutions down, transposed convolutions up."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvTransposeAutoencoder(nn.Module):
    """Compresses an image into a short code and rebuilds it.

    Args:
        code: size of the code.
        width: channels of the first convolution.
    """

    def __init__(self, code: int = 16, width: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(2 * width * 7 * 7, code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 2 * width * 7 * 7),
            nn.Unflatten(1, (2 * width, 7, 7)),
            # two ways to double height and width: an extra row at the end, or an even kernel
            nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1, output_padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (batch, 1, 28, 28) float32 to their rebuilt form, in [0, 1], and the codes (batch, code)."""
        code: Tensor = self.encoder(image)
        rebuilt: Tensor = self.decoder(code)
        return rebuilt, code

    def example_inputs(self) -> tuple[Tensor]:
        """A batch of three images."""
        generator = torch.Generator().manual_seed(0)
        return (torch.rand(3, 1, 28, 28, generator=generator),)
