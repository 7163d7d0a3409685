"""The optimizer steps of ai.onnx.preview.training."""

from __future__ import annotations

import torch

from exporters.torch._table import lower
from exporters.torch._values import RefusedError

DOMAIN = "ai.onnx.preview.training"
EPSILON = 9.999999974752427e-07
"""1e-6 as the schema's float32 default has it."""


def _each(inputs, kinds, step):
    """Apply a step to each weight; inputs and results are grouped by kind: all weights, then all gradients, ..."""
    count = len(inputs) // kinds
    groups = [inputs[start * count : (start + 1) * count] for start in range(kinds)]
    updated = [step(*values) for values in zip(*groups)]
    return tuple(value for group in zip(*updated) for value in group)


@lower("Adagrad", domain=DOMAIN)
def adagrad(R, T, *inputs, decay_factor=0.0, epsilon=EPSILON, norm_coefficient=0.0):
    rate = R / (1 + T.to(R.dtype) * decay_factor)

    def step(x, gradient, squares):
        gradient = gradient + norm_coefficient * x
        squares = squares + gradient.square()
        return x - rate.to(x.dtype) * gradient / (squares.sqrt() + epsilon), squares

    return _each(inputs, 3, step)


@lower("Adam", domain=DOMAIN)
def adam(
    R,
    T,
    *inputs,
    alpha=0.8999999761581421,
    beta=0.9990000128746033,
    epsilon=EPSILON,
    norm_coefficient=0.0,
    norm_coefficient_post=0.0,
):
    time = T.to(R.dtype)
    rate = torch.where(time > 0, R * torch.sqrt(1 - beta**time) / (1 - alpha**time), R)

    def step(x, gradient, mean, squares):
        gradient = gradient + norm_coefficient * x
        mean = alpha * mean + (1 - alpha) * gradient
        squares = beta * squares + (1 - beta) * gradient.square()
        updated = x - rate.to(x.dtype) * mean / (squares.sqrt() + epsilon)
        return (1 - norm_coefficient_post) * updated, mean, squares

    return _each(inputs, 4, step)


@lower("Momentum", domain=DOMAIN)
def momentum(R, T, *inputs, alpha, beta, mode, norm_coefficient):
    if mode not in ("standard", "nesterov"):
        raise RefusedError(f"mode {mode!r} is not standard or nesterov")
    factor = torch.where(T > 0, beta, 1.0)

    def step(x, gradient, velocity):
        gradient = gradient + norm_coefficient * x
        velocity = alpha * velocity + factor.to(x.dtype) * gradient
        direction = gradient + alpha * velocity if mode == "nesterov" else velocity
        return x - R.to(x.dtype) * direction, velocity

    return _each(inputs, 3, step)
