"""Labels and scores of ai.onnx.ml: what is done to a classifier's scores, and the labels of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from exporters.torch._values import RefusedError, tensor_to_array

__all__ = ["labels_at", "transform_scores", "two_scores"]


def labels_at(index: torch.Tensor, integers: Sequence[int] | None, strings: Sequence[str] | None) -> Any:
    """The labels of class indices: int64, or a host array of strings."""
    if integers:
        return torch.tensor(integers, dtype=torch.int64, device=index.device)[index]
    return np.array(strings, object)[tensor_to_array(index)] if strings else index.to(torch.int64)


def transform_scores(scores: torch.Tensor, name: str) -> torch.Tensor:
    """A ``post_transform``.

    Args:
        scores: ``[batch, classes]``.
        name: NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT.
    """
    if name == "LOGISTIC":
        return torch.sigmoid(scores)
    if name == "SOFTMAX":
        return torch.softmax(scores, -1)
    if name == "PROBIT":
        return torch.as_tensor(torch.special.ndtri(scores))
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    if name != "NONE":
        raise RefusedError(f"post_transform {name!r} is not NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT")
    return scores


def _softmax_zero(scores: torch.Tensor) -> torch.Tensor:
    """A softmax in which scores of zero stay (almost) zero."""
    highest = scores.amax(-1, keepdim=True)
    powers = torch.where(scores.abs() > 1e-7, torch.exp(scores - highest), scores * torch.exp(-highest))
    total = powers.sum(-1, keepdim=True)
    return torch.where(total == 0, 0.5, powers / torch.where(total == 0, 1, total))


def two_scores(score: torch.Tensor, transform: str, *, probabilities: bool) -> torch.Tensor:
    """The scores of both classes from the one score ``[batch, 1]`` of the second class.

    Args:
        score: the score.
        transform: a ``post_transform``.
        probabilities: whether the score is a probability, so that the classes add up to one.
    """
    if probabilities and transform in ("NONE", "PROBIT"):
        return transform_scores(torch.cat([1 - score, score], -1), transform)
    return transform_scores(torch.cat([-score, score], -1), transform)
