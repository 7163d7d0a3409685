"""Operators with random results; a seed makes each call repeat the same draws."""

from __future__ import annotations

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._values import number, torch_dtype


def _generator(seed, device):
    """None is torch's own generator."""
    if seed is None:
        return None
    made = torch.Generator(device=device)
    made.manual_seed(int(np.array(seed, np.float32).view(np.uint32)))
    return made


def _uniform(shape, seed, dtype, device="cpu"):
    return torch.rand(shape, generator=_generator(seed, device), dtype=dtype, device=device)


def _normal(shape, seed, dtype, device="cpu"):
    return torch.randn(shape, generator=_generator(seed, device), dtype=dtype, device=device)


def _like(input, dtype):
    return input.dtype if dtype is None else torch_dtype(dtype)


@lower("RandomNormal", deterministic=False)
def random_normal(*, dtype=1, mean=0.0, scale=1.0, seed=None, shape=None):
    return _normal(shape, seed, torch_dtype(dtype)) * scale + mean


@lower("RandomNormalLike", deterministic=False)
def random_normal_like(input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _normal(input.shape, seed, _like(input, dtype), input.device) * scale + mean


@lower("RandomUniform", deterministic=False)
def random_uniform(*, dtype=1, high=1.0, low=0.0, seed=None, shape=None):
    return _uniform(shape, seed, torch_dtype(dtype)) * (high - low) + low


@lower("RandomUniformLike", deterministic=False)
def random_uniform_like(input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return _uniform(input.shape, seed, _like(input, dtype), input.device) * (high - low) + low


@lower("Bernoulli", deterministic=False)
def bernoulli(input, *, dtype=None, seed=None):
    return (_uniform(input.shape, seed, torch.float32, input.device) < input).to(_like(input, dtype))


@lower("Multinomial", deterministic=False)
def multinomial(input, *, dtype=6, sample_size=1, seed=None):
    drawn = torch.multinomial(
        torch.softmax(input.float(), -1), sample_size, True, generator=_generator(seed, input.device)
    )
    return drawn.to(torch_dtype(dtype))


@lower("Dropout", static=("ratio", "training_mode"), takes=("outputs",), deterministic=False)
def dropout(data, ratio=None, training_mode=None, *, seed=None, outputs=1):
    if training_mode is None or not bool(number(training_mode)):
        return data, torch.ones_like(data, dtype=torch.bool)
    rate = 0.5 if ratio is None else float(number(ratio))
    mask = _uniform(data.shape, seed, torch.float32, data.device) >= rate
    scale = 0.0 if rate == 1 else 1 / (1 - rate)
    return torch.where(mask, data * scale, torch.zeros_like(data)), mask
