"""Matrix products, einsum, determinants and affine grids."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tests.exporters.tensorflow._nodes import check_node, gradients

RNG = np.random.default_rng(4)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


SHAPES = [((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((2, 3), (3, 4))]
SHAPES += [((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((0, 3), (3, 4)), ((2, 0), (0, 4))]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_mat_mul_takes_all_ranks(left, right):
    a, b = floats(*left), floats(*right)
    check_node("MatMul", [a, b], [np.matmul(a, b)], rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.float16, np.float64])
def test_mat_mul_keeps_the_type(dtype):
    a, b = RNG.integers(0, 9, (2, 3, 4)).astype(dtype), RNG.integers(0, 9, (4, 5)).astype(dtype)
    check_node("MatMul", [a, b], [np.matmul(a, b)])


def test_mat_mul_of_integers_wraps_around():
    a = np.array([[2**31, 2]], np.uint32)
    check_node("MatMul", [a, a.T], [np.matmul(a, a.T)])


@pytest.mark.parametrize(("trans_a", "trans_b"), itertools.product([0, 1], [0, 1]))
@pytest.mark.parametrize("bias", [None, (4,), (1, 4), (3, 1), (1,), (), (3, 4)])
def test_gemm_broadcasts_its_bias(trans_a, trans_b, bias):
    a, b = floats(3, 5), floats(5, 4)
    c = None if bias is None else floats(*bias)
    expected = 0.5 * (a @ b) + (0 if c is None else 2 * c)
    inputs = [a.T if trans_a else a, b.T if trans_b else b, c]
    attributes = {"alpha": 0.5, "beta": 2.0, "transA": trans_a, "transB": trans_b}
    check_node("Gemm", inputs if c is not None else inputs[:2], [expected.astype(np.float32)], attributes, rtol=1e-4)


def test_gemm_of_integers_takes_factors():
    a, b = RNG.integers(0, 9, (2, 3)).astype(np.int32), RNG.integers(0, 9, (3, 4)).astype(np.int32)
    check_node("Gemm", [a, b, np.ones(4, np.int32)], [2 * (a @ b) + 3], {"alpha": 2.0, "beta": 3.0})


def test_gemm_has_the_gradient_of_torch():
    arrays = [floats(3, 5), floats(4, 5), floats(4)]
    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
    torch.nn.functional.linear(*tensors).square().sum().backward()
    found = gradients("Gemm", arrays, {"transB": 1})
    for gradient, tensor in zip(found, tensors, strict=True):
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-4, atol=1e-5)


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij, jk", (2, 3), (3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4)),
    ("...ij,jk", (5, 2, 3), (3, 4)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("...ii->...i", (2, 3, 3)),
    ("iji->j", (3, 2, 3)),
    ("Aa->aA", (2, 3)),
    ("bA", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("i,i", (3,), (3,)),
    (",i->i", (), (3,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij->", (2, 3)),
    ("i...->...", (2, 3, 4)),
]


@pytest.mark.parametrize(("equation", "shapes"), [(equation, shapes) for equation, *shapes in EQUATIONS])
def test_einsum_follows_numpy(equation, shapes):
    arrays = [floats(*shape) for shape in shapes]
    check_node("Einsum", arrays, [np.einsum(equation, *arrays)], {"equation": equation}, rtol=1e-4)


def test_einsum_of_small_integers_wraps_around():
    a = np.array([[100, 100], [3, 4]], np.int8)
    check_node("Einsum", [a, a], [np.einsum("ij,jk->ik", a, a)], {"equation": "ij,jk->ik"})


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_det_of_a_batch(dtype):
    matrices = floats(2, 4, 3, 3).astype(dtype)
    expected = np.linalg.det(matrices.astype(np.float64)).astype(dtype)
    check_node("Det", [matrices], [expected], rtol=2e-3 if dtype == np.float16 else 1e-4)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 1, 5), (2, 3, 4, 5, 6)])
def test_affine_grid_is_that_of_torch(size, align):
    theta = floats(2, len(size) - 2, len(size) - 1)
    expected = torch.nn.functional.affine_grid(torch.tensor(theta), list(size), align_corners=bool(align)).numpy()
    for constants in ((), (1,)):
        sizes = np.array(size, np.int64)
        check_node(
            "AffineGrid", [theta, sizes], [expected], {"align_corners": align}, constants=constants, known=(0, 1)
        )
