"""Operators that pick and write elements by index."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.exporters.tensorflow._nodes import check_node, gradients

RNG = np.random.default_rng(1)
DATA = RNG.standard_normal((3, 4, 5)).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_takes_negative_indices(axis, constants):
    for indices in (ints([0, -1], [-3, 2]), np.array(-2, np.int32)):
        check_node("Gather", [DATA, indices], [np.take(DATA, indices, axis)], {"axis": axis}, constants=constants)


def test_gather_of_one_row_has_the_gradient_of_torch():
    data = torch.tensor(DATA, requires_grad=True)
    data[:, -1].square().sum().backward()
    (gradient,) = gradients("Gather", [DATA, np.array(-1)], {"axis": 1}, constants=(1,))
    np.testing.assert_allclose(gradient, data.grad.numpy())


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements_takes_shorter_and_negative_indices(axis, constants):
    indices = RNG.integers(-3, 3, (2, 3, 4))
    expected = torch.gather(torch.tensor(DATA), axis, torch.tensor(indices) % DATA.shape[axis]).numpy()
    check_node("GatherElements", [DATA, indices], [expected], {"axis": axis}, constants=constants)


def test_gather_elements_has_the_gradient_of_torch():
    indices = RNG.integers(0, 4, (3, 6, 5))
    data = torch.tensor(DATA, requires_grad=True)
    torch.gather(data, 1, torch.tensor(indices)).square().sum().backward()
    (gradient,) = gradients("GatherElements", [DATA, indices], {"axis": 1})
    np.testing.assert_allclose(gradient, data.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("constants", [(), (1,)])
def test_gather_nd_takes_batch_dims(constants):
    data, indices = RNG.standard_normal((2, 3, 4, 5)), RNG.integers(-3, 3, (2, 6, 2))
    expected = np.stack([data[b][tuple(indices[b].T)] for b in range(2)])
    check_node("GatherND", [data, indices], [expected], {"batch_dims": 1}, constants=constants, known=(1,))


def _scattered(data, indices, updates, axis, reduction):
    """The loop of the specification."""
    function = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[
        reduction
    ]
    result = data.copy()
    for place in np.ndindex(indices.shape):
        target = (*place[:axis], indices[place], *place[axis + 1 :])
        result[target] = function(result[target], updates[place])
    return result


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 2])
def test_scatter_elements_reduces_duplicates(axis, reduction, dtype):
    data = RNG.integers(0, 9, (3, 4, 5)).astype(dtype)
    indices, updates = RNG.integers(-3, 3, (2, 3, 5)), RNG.integers(0, 9, (2, 3, 5)).astype(dtype)
    if reduction == "none":  # duplicates of which the order decides have no defined result
        indices = np.argsort(RNG.random((3, 4, 5)), axis)[:2, :3] if axis == 0 else np.argsort(RNG.random((2, 3, 5)), 2)
    expected = _scattered(data, indices, updates, axis, reduction)
    check_node("ScatterElements", [data, indices, updates], [expected], {"axis": axis, "reduction": reduction})


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd_reduces_duplicates(reduction):
    data = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    indices, updates = ints([0, -1], [-3, 3], [2, 0]), RNG.standard_normal((3, 5)).astype(np.float32)
    indices = indices[1:] if reduction == "none" else indices
    updates = updates[-len(indices) :]
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction)
    expected = data.copy()
    for place, update in zip(indices, updates):
        expected[tuple(place)] = update if function is None else function(expected[tuple(place)], update)
    for constants in ((), (1,)):
        check_node(
            "ScatterND", [data, indices, updates], [expected], {"reduction": reduction}, constants=constants, known=(1,)
        )


@pytest.mark.parametrize(("reduction", "name"), [("add", "sum"), ("mul", "prod"), ("max", "amax")])
def test_scatter_elements_has_the_gradient_of_torch(reduction, name):
    indices = RNG.integers(0, 4, (3, 3, 5))
    data, updates = torch.tensor(DATA, requires_grad=True), torch.randn(3, 3, 5, requires_grad=True)
    torch.scatter_reduce(data, 1, torch.tensor(indices), updates, name).square().sum().backward()
    feeds = [DATA, indices, updates.detach().numpy()]
    found = gradients("ScatterElements", feeds, {"axis": 1, "reduction": reduction})
    for gradient, tensor in zip(found, (data, updates), strict=True):
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter_writes_at_each_samples_place(mode):
    past, update = RNG.standard_normal((2, 3, 6, 4)), RNG.standard_normal((2, 3, 2, 4))
    starts = ints(1, 4) if mode == "linear" else ints(5, 9)
    expected = past.copy()
    for sample, start in enumerate(starts):
        for i in range(2):
            expected[sample, :, (start + i) % 6] = update[sample, :, i]
    check_node("TensorScatter", [past, update, starts], [expected], {"mode": mode})


MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@pytest.mark.parametrize(
    ("starts", "ends", "steps", "part"),
    [
        ((0, 1), (MOST, MOST), (1, 2), np.s_[:, 1::2]),
        ((-1, MOST), (LEAST, LEAST), (-1, -2), np.s_[::-1, ::-2]),
        ((MOST, -2), (MOST, MOST), (1, 1), np.s_[3:, -2:]),
        ((LEAST, 100), (-1, 0), (1, -1), np.s_[:-1, :0:-1]),
        ((1, 1), (2**31, 2**31 - 1), (2**31, 1), np.s_[1:2, 1:]),
        ((-100, 3), (100, 1), (1, -1), np.s_[:, 3:1:-1]),
    ],
)
def test_slice_clamps_to_the_axis(starts, ends, steps, part):
    arrays = [ints(*starts), ints(*ends), ints(0, 1), ints(*steps)]
    for constants in ((1, 2, 3, 4), (3, 4), (3,), ()):
        check_node("Slice", [DATA, *arrays], [DATA[part]], constants=constants, known=(1, 2, 4))


def test_slice_of_later_axes_takes_calculated_bounds():
    inputs = [DATA, ints(1), ints(-1), ints(-1)]
    check_node("Slice", inputs, [DATA[..., 1:-1]], constants=(3,), known=(1, 2))
    check_node("Slice", inputs[:3], [DATA[1:-1]], known=(1, 2))


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_one_hot_counts_negative_indices_from_the_end(axis, constants):
    indices = ints([0, -1, 5], [3, -4, -5])
    expected = np.full((2, 3, 4), 2.0, np.float32)
    for place in ((0, 0, 0), (0, 1, 3), (1, 0, 3), (1, 1, 0)):
        expected[place] = 7
    expected = np.moveaxis(expected, -1, axis)
    values = np.array([2, 7], np.float32)
    check_node("OneHot", [indices, ints(4), values], [expected], {"axis": axis}, constants=constants)
    check_node("OneHot", [indices.astype(np.float32), np.float32(4), values], [expected], {"axis": axis})


@pytest.mark.parametrize("dtype", [np.float16, np.bool_, np.int8])
def test_non_zero_finds_places(dtype):
    data = np.array([[0, 1, 0], [2, 0, 3]]).astype(dtype)
    check_node("NonZero", [data], [np.array(np.nonzero(data))])


def test_compress_takes_a_short_condition():
    condition = np.array([False, True, True])
    check_node("Compress", [DATA, condition], [np.compress(condition, DATA, 2)], {"axis": -1})
    check_node("Compress", [DATA, condition], [np.compress(condition, DATA)])


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-7, -1, 0, 2, 9])
def test_trilu_keeps_infinities_apart(upper, k):
    data = np.full((2, 4, 5), -np.inf, np.float32)
    expected = (np.triu if upper else np.tril)(np.ones_like(data), k)
    expected = np.where(expected == 1, data, 0)
    for constants in ((), (1,)):
        check_node("Trilu", [data, np.array(k)], [expected], {"upper": upper}, constants=constants)
