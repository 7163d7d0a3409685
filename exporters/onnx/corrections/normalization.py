"""Normalization: the statistics that torch gives beside the result."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["DECOMPOSITIONS"]

aten = torch.ops.aten


def batch_norm(
    data: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    """The saved statistics are empty outside of training; torch.onnx gives the running ones."""
    shape = [1, -1] + [1] * (data.dim() - 2)
    mean, variance = running_mean.view(shape), running_var.view(shape)
    result = (data - mean) * torch.rsqrt(variance + eps)
    result = result if weight is None else result * weight.view(shape)
    result = result if bias is None else result + bias.view(shape)
    return result, data.new_empty((0,)), data.new_empty((0,))


def legit_batch_norm(
    data: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """The same for the operator that trains, outside of training. Without side effects it gives the running ones too."""
    if training:
        return NotImplemented
    return (*batch_norm(data, weight, bias, running_mean, running_var, momentum, eps), running_mean, running_var)


def _reads_statistics(node: torch.fx.Node) -> bool:
    return any("getitem" in str(user.target) and user.args[1] != 0 for user in node.users)


DECOMPOSITIONS = {
    aten._native_batch_norm_legit_no_training.default: (batch_norm, _reads_statistics),
    aten._native_batch_norm_legit.default: (legit_batch_norm, _reads_statistics),
    aten._native_batch_norm_legit_functional.default: (legit_batch_norm, _reads_statistics),
}
