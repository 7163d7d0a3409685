"""Normalisations against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.exporters.tensorflow._nodes import check_node, gradients


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def _statistics(channels: int) -> list[np.ndarray]:
    """Scale, bias, mean and variance."""
    return [_normal(channels), _normal(channels), _normal(channels), np.abs(_normal(channels)) + 0.5]


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 5, 4), (2, 3, 2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_batch_normalization_and_its_gradient_equal_torch(shape, dtype):
    arrays = [a.astype(dtype) for a in (_normal(*shape), *_statistics(3))]
    x, scale, bias, mean, var = (torch.from_numpy(a.astype("float64")).requires_grad_() for a in arrays)
    expected = functional.batch_norm(x, mean.detach(), var.detach(), scale, bias, eps=1e-5)
    rtol = 5e-3 if dtype == "float16" else 1e-4
    check_node("BatchNormalization", arrays, [expected.detach().numpy().astype(dtype)], rtol=rtol)
    if dtype == "float32":
        expected.square().sum().backward()
        found = gradients("BatchNormalization", arrays, constants=(3, 4))
        for result, tensor in zip(found, (x, scale, bias), strict=True):
            np.testing.assert_allclose(result, tensor.grad.numpy(), rtol=1e-3, atol=1e-3)


def test_batch_normalization_in_training_moves_the_statistics():
    x, scale, bias, mean, var = _normal(4, 3, 5, 2), *_statistics(3)
    batch_mean, batch_var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    expected = functional.batch_norm(*map(torch.from_numpy, (x, mean, var, scale, bias)), training=True).numpy()
    moved = [0.75 * mean.astype("float32") + 0.25 * batch_mean, 0.75 * var + 0.25 * batch_var]
    # torch has changed mean and var in place by now; compute the expected statistics from fresh ones.
    mean, var = _statistics(3)[2:]
    moved = [0.75 * mean + 0.25 * batch_mean, 0.75 * var + 0.25 * batch_var]
    attributes = {"training_mode": 1, "momentum": 0.75}
    check_node("BatchNormalization", [x, scale, bias, mean, var], [expected, *moved], attributes, rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 5, 4)])
def test_instance_normalization_equals_torch(shape):
    x, scale, bias = _normal(*shape), _normal(3), _normal(3)
    expected = functional.instance_norm(
        *map(torch.from_numpy, (x,)), weight=torch.from_numpy(scale), bias=torch.from_numpy(bias)
    )
    check_node("InstanceNormalization", [x, scale, bias], [expected.numpy()], rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_layer_normalization_gives_mean_and_inverse_deviation(dtype):
    x = _normal(2, 5, 8).astype(dtype)
    scale, bias = _normal(8).astype(dtype), _normal(8).astype(dtype)
    exact = x.astype("float64")
    expected = functional.layer_norm(
        torch.from_numpy(exact), [8], *(torch.from_numpy(a.astype("float64")) for a in (scale, bias))
    )
    mean = exact.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(exact.var(-1, keepdims=True) + 1e-5)
    results = [expected.numpy().astype(dtype), mean.astype("float32"), inverse.astype("float32")]
    check_node("LayerNormalization", [x, scale, bias], results, rtol=5e-3 if dtype == "float16" else 1e-4)


def test_layer_normalization_gradients_equal_torch():
    arrays = [_normal(3, 4, 6), _normal(4, 6), _normal(4, 6)]
    tensors = [torch.from_numpy(a).requires_grad_() for a in arrays]
    functional.layer_norm(tensors[0], [4, 6], tensors[1], tensors[2]).square().sum().backward()
    found = gradients("LayerNormalization", arrays, {"axis": 1})
    for result, tensor in zip(found, tensors, strict=True):
        np.testing.assert_allclose(result, tensor.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 3, 4), (3, 6, 2, 2, 3)])
def test_group_normalization_scales_channels_since_21_and_groups_before(shape):
    x, scale, bias = _normal(*shape), _normal(6), _normal(6)
    expected = functional.group_norm(torch.from_numpy(x), 3, torch.from_numpy(scale), torch.from_numpy(bias)).numpy()
    check_node("GroupNormalization", [x, scale, bias], [expected], {"num_groups": 3}, rtol=1e-4)
    of_groups = [np.repeat(a[:3], 2) for a in (scale, bias)]
    expected = functional.group_norm(torch.from_numpy(x), 3, *map(torch.from_numpy, of_groups)).numpy()
    check_node("GroupNormalization", [x, scale[:3], bias[:3]], [expected], {"num_groups": 3}, rtol=1e-4, opset=18)


def test_rms_normalization_equals_torch():
    x, scale = _normal(2, 5, 8), _normal(8)
    expected = functional.rms_norm(torch.from_numpy(x), [8], torch.from_numpy(scale), 1e-5).numpy()
    check_node("RMSNormalization", [x, scale], [expected], rtol=1e-4)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_lrn_sums_squares_over_neighbouring_channels(size):
    x = _normal(2, 7, 3, 4)
    before = (size - 1) // 2
    total = np.zeros_like(x)
    for channel in range(7):
        total[:, channel] = (x[:, max(0, channel - before) : channel + size - before] ** 2).sum(1)
    expected = x / (2 + 0.1 / size * total) ** 0.6
    check_node("LRN", [x], [expected], {"size": size, "alpha": 0.1, "beta": 0.6, "bias": 2.0}, rtol=1e-4)
