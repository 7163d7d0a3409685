"""Losses over class labels."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import rank_of


@lower("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(input, target, weight=None, *, ignore_index=None, reduction="mean"):
    kept, labels = _labels(target, ignore_index)
    return _reduced(-_picked(_classes_last(input), labels), labels, kept, weight, reduction)


@lower("SoftmaxCrossEntropyLoss", takes=("outputs",))
def softmax_cross_entropy_loss(scores, labels, weights=None, *, ignore_index=None, reduction="mean", outputs=1):
    kept, labels = _labels(labels, ignore_index)
    logits = _classes_last(scores)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = _reduced(losses, labels, kept, weights, reduction)
    return loss if outputs == 1 else (loss, _classes_second(tf.nn.log_softmax(logits)))


def _labels(target, ignore_index):
    """Which labels count (None: all), and the labels with a valid one in the place of those that do not."""
    if ignore_index is None:
        return None, target
    kept = tf.not_equal(target, ignore_index)
    return kept, tf.where(kept, target, tf.zeros([], target.dtype))


def _classes_last(scores):
    rank = rank_of(scores)
    return scores if rank == 2 else tf.transpose(scores, [0, *range(2, rank), 1])


def _classes_second(scores):
    rank = rank_of(scores)
    return scores if rank == 2 else tf.transpose(scores, [0, rank - 1, *range(1, rank - 1)])


def _picked(scores, labels):
    return tf.gather(scores, labels, axis=-1, batch_dims=rank_of(labels))


def _reduced(losses, labels, kept, weight, reduction):
    factors = None if weight is None else tf.gather(weight, labels)
    losses = losses if factors is None else losses * factors
    if kept is not None:
        zero = tf.zeros([], losses.dtype)
        losses = tf.where(kept, losses, zero)
        factors = tf.cast(kept, losses.dtype) if factors is None else tf.where(kept, factors, zero)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return tf.reduce_sum(losses)
    return tf.reduce_mean(losses) if factors is None else tf.reduce_sum(losses) / tf.reduce_sum(factors)
