"""Train the digits model and write its weights: ``python -m models.digits.train``. About ten seconds on two CPU cores.

The number of epochs was fixed beforehand; the test scans choose nothing, they are only counted at the end.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from models.digits.data import split
from models.digits.model import WEIGHTS, Digits

log = logging.getLogger(__name__)

SEED = 0
BATCH = 64
PEAK_RATE = 4e-3


def shift(images: Tensor, generator: torch.Generator) -> Tensor:
    """Move each image (n, 1, 8, 8) by up to one pixel each way; what comes in from outside is paper, zero."""
    padded = functional.pad(images, (1, 1, 1, 1))
    down, right = torch.randint(3, (2, len(images), 1, 1), generator=generator)
    rows = (down + torch.arange(8)).unsqueeze(-1)
    columns = (right + torch.arange(8)).unsqueeze(-2)
    moved = padded[torch.arange(len(images))[:, None, None, None], 0, rows, columns]
    return moved.reshape(images.shape)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit is at their label; the model must be in evaluation mode."""
    with torch.inference_mode():
        correct: Tensor = model(images).argmax(dim=1) == labels
    return correct.float().mean().item()


def train(images: Tensor, labels: Tensor, epochs: int) -> Digits:
    """Train from scratch; the same inputs give the same weights on the same machine.

    Args:
        images: (n, 1, 8, 8) float32 in [0, 1].
        labels: (n,) int64.
        epochs: passes over the images.

    Returns:
        The trained model in evaluation mode.
    """
    generator = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)
        model = Digits()
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
        steps = epochs * -(-len(images) // BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=steps)
        for epoch in range(epochs):
            for chosen in torch.split(torch.randperm(len(images), generator=generator), BATCH):
                logits = model(shift(images[chosen], generator))
                loss = functional.cross_entropy(logits, labels[chosen], label_smoothing=0.05)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            log.info("epoch %d of %d: loss %.3f", epoch + 1, epochs, loss.item())
    return model.eval()


def main() -> None:
    """Train, report the accuracy on the test scans, and write the weights."""
    parser = argparse.ArgumentParser(description="Train the digits model and write its weights.")
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training scans")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="the safetensors file to write")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    training, test = split()
    model = train(*training, epochs=options.epochs)
    log.info("test accuracy: %.4f over %d scans", accuracy(model, *test), len(test[1]))
    save_file(model.state_dict(), options.out)
    log.info("weights: %s", options.out)


if __name__ == "__main__":
    main()
