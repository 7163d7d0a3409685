"""TopK, ArgMax, cumulative sums, Unique, NonMaxSuppression."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.exporters.tensorflow._nodes import check_node, gradients

RNG = np.random.default_rng(2)
DATA = RNG.standard_normal((3, 4, 5)).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint16])
def test_top_k_takes_any_axis(dtype, largest, constants):
    data = (DATA * 100).astype(np.int64).astype(dtype)
    if dtype == np.int64:
        data[0, 0, 0], data[1, 1, 1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    keys = np.argsort(data.astype(object) * (-1 if largest else 1), axis=1, kind="stable")[:, :2]
    expected = [np.take_along_axis(data, keys, 1), keys]
    check_node("TopK", [data, ints(2)], expected, {"axis": 1, "largest": largest}, constants=constants)


def test_top_k_of_the_smallest_has_the_gradient_of_torch():
    data = torch.tensor(DATA, requires_grad=True)
    torch.topk(data, 2, 1, largest=False).values.square().sum().backward()
    (gradient,) = gradients("TopK", [DATA, ints(2)], {"axis": 1, "largest": 0}, constants=(1,))
    np.testing.assert_allclose(gradient, data.grad.numpy())


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_arg_takes_the_first_or_last_of_equals(operator, last, keepdims):
    data = np.array([[1, 3, 3, 1], [2, 2, 2, 2]], np.float32)
    function = {"ArgMax": np.argmax, "ArgMin": np.argmin}[operator]
    place = 3 - function(data[:, ::-1], 1) if last else function(data, 1)
    place = place[:, np.newaxis] if keepdims else place
    check_node(operator, [data], [place], {"axis": -1, "keepdims": keepdims, "select_last_index": last})


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_arg_of_nan_is_its_place(operator, dtype):
    data = np.array([[1, np.nan, 3], [np.nan, 0, 1], [-5, 2, 7]], dtype)
    expected = {"ArgMax": np.argmax, "ArgMin": np.argmin}[operator](data, 1)
    check_node(operator, [data], [expected], {"axis": 1, "keepdims": 0})


@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulation_runs_both_ways(operator, exclusive, reverse):
    function, start = {"CumSum": (np.cumsum, 0), "CumProd": (np.cumprod, 1)}[operator]
    data = DATA[:, ::-1] if reverse else DATA
    if exclusive:
        data = np.concatenate([np.full_like(data[:, :1], start), data[:, :-1]], 1)
    expected = function(data, 1)
    expected = expected[:, ::-1] if reverse else expected
    attributes = {"exclusive": exclusive, "reverse": reverse}
    check_node(operator, [DATA, np.array(-2)], [expected], attributes)
    check_node(operator, [DATA, np.array(1)], [expected], attributes, constants=(1,))


def test_cum_sum_of_half_floats_adds_in_single_ones():
    data = np.full(4096, 0.1, np.float16)
    expected = np.cumsum(data.astype(np.float32)).astype(np.float16)
    check_node("CumSum", [data, np.array(0)], [expected], rtol=1e-3)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_])
def test_unique_sorts_as_numpy_does(axis, dtype):
    data = RNG.integers(-1, 2, (4, 3, 2)).astype(dtype)
    values, first, inverse, counts = np.unique(data, True, True, True, axis=axis)
    expected = [values, first, inverse.reshape(-1), counts]
    check_node("Unique", [data], expected, {} if axis is None else {"axis": axis})


def test_unique_keeps_the_order_of_appearance():
    data = ints(2, 1, 1, 3, 4, 3)
    check_node(
        "Unique", [data], [ints(2, 1, 3, 4), ints(0, 1, 3, 4), ints(0, 1, 1, 2, 3, 2), ints(1, 2, 2, 1)], {"sorted": 0}
    )


def test_unique_sorts_strings():
    data = np.array(["pear", "fig", "apple", "fig", "", "app"], object)
    values, first, inverse, counts = np.unique(data.astype(str), True, True, True)
    check_node("Unique", [data], [values.astype(object), first, inverse, counts])


def _overlap(a, b):
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    inner = np.prod(np.maximum(sides, 0))
    return inner / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner)


def _suppressed(boxes, scores, most, overlap, least):
    """The greedy rule, box by box."""
    chosen = []
    for item in range(scores.shape[0]):
        for kind in range(scores.shape[1]):
            kept = []
            for i in np.argsort(-scores[item, kind], kind="stable"):
                is_free = all(_overlap(boxes[item, i], boxes[item, j]) <= overlap for j in kept)
                if scores[item, kind, i] > least and is_free and len(kept) < most:
                    kept.append(i)
            chosen += [(item, kind, i) for i in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("most", [1, 3, 2**62])
def test_non_max_suppression_goes_through_batches_and_classes(most, center):
    corner, size = RNG.uniform(0, 1, (2, 8, 2)), RNG.uniform(0.3, 0.8, (2, 8, 2))
    boxes = np.concatenate([corner, corner + size], -1).astype(np.float32)
    scores = RNG.uniform(0, 1, (2, 3, 8)).astype(np.float32)
    expected = _suppressed(boxes, scores, most, 0.4, 0.2)
    if center:
        middle, size = corner + size / 2, size[..., ::-1]
        boxes = np.concatenate([middle[..., ::-1], size], -1).astype(np.float32)
    inputs = [boxes, scores, ints(most), np.float32([0.4]), np.float32([0.2])]
    for constants in ((), (2, 3, 4)):
        check_node("NonMaxSuppression", inputs, [expected], {"center_point_box": center}, constants=constants)


def test_non_max_suppression_selects_nothing_by_default():
    boxes, scores = np.zeros((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    check_node("NonMaxSuppression", [boxes, scores], [np.zeros((0, 3), np.int64)])
