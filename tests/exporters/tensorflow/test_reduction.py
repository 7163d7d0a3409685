"""Reductions, the normalisations made of them, and losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.exporters.tensorflow._nodes import check_node, gradients

RNG = np.random.default_rng(3)
DATA = RNG.standard_normal((3, 4, 5)).astype(np.float32)

NUMPY = {
    "ReduceL1": lambda x, axis, keepdims: np.abs(x).sum(axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt(np.square(x).sum(axis, keepdims=keepdims)),
    "ReduceLogSum": lambda x, axis, keepdims: np.log(x.sum(axis, keepdims=keepdims)),
    "ReduceLogSumExp": lambda x, axis, keepdims: np.log(np.exp(x).sum(axis, keepdims=keepdims)),
    "ReduceMax": lambda x, axis, keepdims: x.max(axis, keepdims=keepdims),
    "ReduceMean": lambda x, axis, keepdims: x.mean(axis, keepdims=keepdims),
    "ReduceMin": lambda x, axis, keepdims: x.min(axis, keepdims=keepdims),
    "ReduceProd": lambda x, axis, keepdims: x.prod(axis, keepdims=keepdims),
    "ReduceSum": lambda x, axis, keepdims: x.sum(axis, keepdims=keepdims),
    "ReduceSumSquare": lambda x, axis, keepdims: np.square(x).sum(axis, keepdims=keepdims),
}


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("operator", list(NUMPY))
def test_reduction_follows_numpy(operator):
    data, function = np.abs(DATA) + 0.5, NUMPY[operator]
    check_node(operator, [data, ints(-1, 0)], [function(data, (0, 2), True)], constants=(1,))
    check_node(operator, [data, ints(1)], [function(data, (1,), False)], {"keepdims": 0})
    check_node(operator, [data], [function(data, None, True)])
    check_node(operator, [data, ints()], [function(data, None, True)])
    check_node(operator, [data, ints()], [function(data, (), True)], {"noop_with_empty_axes": 1})
    check_node(operator, [data], [function(data, (), False)], {"noop_with_empty_axes": 1, "keepdims": 0})


def test_axes_of_old_opsets_are_an_attribute():
    check_node("ReduceMean", [DATA], [DATA.mean(1)], {"axes": [-2], "keepdims": 0}, opset=13)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_integers_keep_their_type(dtype):
    data = RNG.integers(0, 5, (2, 3)).astype(dtype)
    for operator in ("ReduceL1", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"):
        check_node(operator, [data, ints(1)], [NUMPY[operator](data, 1, True).astype(dtype)], constants=(1,))
    check_node("ReduceL2", [np.array([[3, 4]], dtype), ints(1)], [np.array([[5]], dtype)], constants=(1,))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8])
def test_extremes_take_small_types(dtype):
    data = RNG.integers(0, 2, (4, 3)).astype(dtype)
    check_node("ReduceMax", [data, ints(0)], [data.max(0, keepdims=True)], constants=(1,))
    check_node("ReduceMin", [data, ints(0)], [data.min(0, keepdims=True)], constants=(1,))


def test_empty_sets_have_the_neutral_element():
    data = np.zeros((2, 0), np.float32)
    neutral = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceLogSumExp": -np.inf}
    for operator, value in neutral.items():
        check_node(operator, [data, ints(1)], [np.full(2, value, np.float32)], {"keepdims": 0}, constants=(1,))


def test_nan_and_infinity_go_through():
    data = np.array([[1, np.nan], [np.inf, 0], [-np.inf, -np.inf]], np.float32)
    for operator in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2"):
        with np.errstate(invalid="ignore"):
            expected = NUMPY[operator](data, 1, False)
        check_node(operator, [data, ints(1)], [expected], {"keepdims": 0}, constants=(1,))
    expected = torch.logsumexp(torch.tensor(data), 1).numpy()
    check_node("ReduceLogSumExp", [data, ints(1)], [expected], {"keepdims": 0}, constants=(1,))


def test_half_floats_are_added_in_single_ones():
    data = np.full((1, 6000), 0.1, np.float16)
    expected = data.astype(np.float32).sum(1).astype(np.float16)
    check_node("ReduceSum", [data, ints(1)], [expected], {"keepdims": 0}, constants=(1,), rtol=0)


@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceProd"])
def test_gradients_at_zero_are_those_of_torch(operator):
    functions = {
        "ReduceL1": lambda x: torch.linalg.vector_norm(x, 1, -1),
        "ReduceL2": lambda x: torch.linalg.vector_norm(x, 2, -1),
        "ReduceLogSumExp": lambda x: torch.logsumexp(x, -1),
        "ReduceMax": lambda x: torch.amax(x, -1),
        "ReduceProd": lambda x: torch.prod(x, -1),
    }
    data = DATA[0].copy()
    data[1] = 0
    source = torch.tensor(data, requires_grad=True)
    functions[operator](source).square().sum().backward()
    (gradient,) = gradients(operator, [data, ints(-1)], constants=(1,))
    np.testing.assert_allclose(gradient, source.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_of_zeros_is_zero(p):
    data = DATA.copy()
    data[0, :, 0] = 0
    norm = np.linalg.norm(data, p, 1, keepdims=True)
    expected = np.divide(data, norm, out=np.zeros_like(data), where=norm != 0)
    check_node("LpNormalization", [data], [expected], {"axis": 1, "p": p})


def test_mean_variance_normalization_takes_its_axes():
    data = DATA[np.newaxis] + 10
    wide = data.astype(np.float64)
    expected = (wide - wide.mean((0, 1), keepdims=True)) / (wide.std((0, 1), keepdims=True) + 1e-9)
    check_node("MeanVarianceNormalization", [data], [expected.astype(np.float32)], {"axes": [0, 1]}, rtol=1e-4)


LOSSES = {
    "NegativeLogLikelihoodLoss": torch.nn.functional.nll_loss,
    "SoftmaxCrossEntropyLoss": torch.nn.functional.cross_entropy,
}


@pytest.mark.parametrize("operator", list(LOSSES))
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 3)])
def test_loss_and_gradient_are_those_of_torch(operator, reduction, shape):
    scores = RNG.standard_normal(shape).astype(np.float32)
    labels = RNG.integers(0, 4, (shape[0], *shape[2:]))
    labels.flat[1] = -100
    weight = RNG.uniform(0.5, 1.5, 4).astype(np.float32)
    source = torch.tensor(scores, requires_grad=True)
    options = {"weight": torch.tensor(weight), "ignore_index": -100, "reduction": reduction}
    expected = LOSSES[operator](source, torch.tensor(labels), **options)
    attributes = {"reduction": reduction, "ignore_index": -100}
    check_node(operator, [scores, labels, weight], [expected.detach().numpy()], attributes)
    expected.square().sum().backward()
    gradient = gradients(operator, [scores, labels, weight], attributes)[0]
    np.testing.assert_allclose(gradient, source.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_softmax_cross_entropy_gives_the_log_probabilities():
    scores, labels = RNG.standard_normal((2, 4, 3)).astype(np.float32), RNG.integers(0, 4, (2, 3))
    source = torch.tensor(scores)
    loss = torch.nn.functional.cross_entropy(source, torch.tensor(labels))
    check_node("SoftmaxCrossEntropyLoss", [scores, labels], [loss.numpy(), torch.log_softmax(source, 1).numpy()])
