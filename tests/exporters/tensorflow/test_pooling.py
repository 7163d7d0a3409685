"""Pools against torch: ranks, rounding up, dilations, indices, element types, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.exporters.tensorflow._nodes import check_node, gradients

MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
SIZES = (9, 8, 7)

# rank, kernel, stride, pad, dilation, round up
CASES = [
    (1, 3, 2, 1, 1, False),
    (2, 3, 2, 1, 1, False),
    (2, 2, 2, 0, 1, True),
    (2, 3, 2, 1, 2, True),
    (3, 2, 2, 1, 1, True),
    (3, 2, 1, 0, 2, False),
]


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def _attributes(rank: int, kernel: int, stride: int, pad: int, ceil: bool) -> dict[str, object]:
    lists = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank}
    return {**lists, "ceil_mode": int(ceil)}


@pytest.mark.parametrize(("rank", "kernel", "stride", "pad", "dilation", "ceil"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_max_pool_and_its_gradient_equal_torch(rank, kernel, stride, pad, dilation, ceil, dtype):
    x = _normal(2, 3, *SIZES[-rank:]).astype(dtype)
    tensor = torch.from_numpy(x).requires_grad_()
    expected = MAX[rank](tensor, kernel, stride, pad, dilation, ceil_mode=ceil)
    attributes = _attributes(rank, kernel, stride, pad, ceil) | {"dilations": [dilation] * rank}
    check_node("MaxPool", [x], [expected.detach().numpy()], attributes)
    expected.square().sum().backward()
    np.testing.assert_allclose(gradients("MaxPool", [x], attributes)[0], tensor.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("storage_order", [0, 1])
def test_max_pool_indices_count_the_whole_input(storage_order):
    x = np.random.default_rng(0).integers(0, 4, size=(2, 3, 6, 5)).astype("float32")  # with ties: the first wins
    best, places = functional.max_pool2d(torch.from_numpy(x), 3, 2, 1, return_indices=True)
    rows, columns = places.numpy() // 5, places.numpy() % 5
    images = np.arange(6).reshape(2, 3, 1, 1) * 30
    flat = images + (rows + columns * 6 if storage_order else rows * 5 + columns)
    attributes = _attributes(2, 3, 2, 1, False) | {"storage_order": storage_order}
    check_node("MaxPool", [x], [best.numpy(), flat], attributes)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pool_of_small_integers_ignores_the_padding(dtype):
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.min + 20, size=(1, 2, 6, 6)).astype(dtype)
    expected = functional.max_pool2d(torch.from_numpy(x).double(), 3, 2, 1).numpy().astype(dtype)
    check_node("MaxPool", [x], [expected], _attributes(2, 3, 2, 1, False))


@pytest.mark.parametrize(("rank", "kernel", "stride", "pad", "dilation", "ceil"), [c for c in CASES if c[4] == 1])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_average_pool_and_its_gradient_equal_torch(rank, kernel, stride, pad, dilation, ceil, include, dtype):
    x = _normal(2, 3, *SIZES[-rank:]).astype(dtype)
    tensor = torch.from_numpy(x.astype("float64")).requires_grad_()
    expected = AVERAGE[rank](tensor, kernel, stride, pad, ceil, include)
    attributes = _attributes(rank, kernel, stride, pad, ceil) | {"count_include_pad": int(include)}
    rtol = 2e-3 if dtype == "float16" else 1e-4
    check_node("AveragePool", [x], [expected.detach().numpy().astype(dtype)], attributes, rtol=rtol)
    if dtype == "float32":
        expected.square().sum().backward()
        np.testing.assert_allclose(gradients("AveragePool", [x], attributes)[0], tensor.grad.numpy(), rtol=1e-4)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_is_the_norm_of_each_window(p):
    x = _normal(2, 3, 8, 7)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))[:, :, ::2]
    expected = (np.abs(windows.astype("float64")) ** p).sum((-1, -2)) ** (1 / p)
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "p": p}
    check_node("LpPool", [x], [expected.astype("float32")], attributes)


def test_global_pools_reduce_all_spatial_axes():
    x = _normal(2, 3, 4, 5, 6)
    check_node("GlobalAveragePool", [x], [x.mean((2, 3, 4), keepdims=True)])
    check_node("GlobalMaxPool", [x], [x.max((2, 3, 4), keepdims=True)])
    check_node("GlobalLpPool", [x], [np.cbrt((np.abs(x) ** 3).sum((2, 3, 4), keepdims=True))], {"p": 3})


def test_max_unpool_puts_maxima_back():
    x = torch.from_numpy(_normal(1, 1, 6, 6))
    best, places = functional.max_pool2d(x, 2, return_indices=True)
    expected = functional.max_unpool2d(best, places, 2).numpy()
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    check_node("MaxUnpool", [best.numpy(), places.numpy()], [expected], attributes)
    larger = np.pad(expected, [(0, 0), (0, 0), (0, 1), (0, 2)])
    shape = np.array([1, 1, 7, 8])
    check_node("MaxUnpool", [best.numpy(), places.numpy(), shape], [larger], attributes, constants=(2,))
    check_node("MaxUnpool", [best.numpy(), places.numpy(), shape], [larger], attributes, known=(2,))
