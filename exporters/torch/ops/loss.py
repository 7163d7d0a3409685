"""Losses over class labels."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._table import lower


def _nll(log_prob, target, weight, ignore_index, reduction):
    """Torch adds up over one flat axis of elements; the classes are axis 1."""
    classes = log_prob.shape[1]
    flat = log_prob.movedim(1, -1).reshape(-1, classes)
    ignored = -100 if ignore_index is None else ignore_index
    labels = target.reshape(-1).to(torch.int64)
    loss = functional.nll_loss(flat, labels, weight, reduction=reduction, ignore_index=ignored)
    return loss.reshape(target.shape) if reduction == "none" else loss


@lower("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(input, target, weight=None, *, ignore_index=None, reduction="mean"):
    return _nll(input, target, weight, ignore_index, reduction)


@lower("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(scores, labels, weights=None, *, ignore_index=None, reduction="mean"):
    log_prob = torch.log_softmax(scores, 1)
    return _nll(log_prob, labels, weights, ignore_index, reduction), log_prob
