"""Matrix products and determinants."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._table import lower
from exporters.torch._values import numbers, through_float32, through_int64


@lower("MatMul")
def mat_mul(A, B):
    return through_int64(torch.matmul, A, B)


@lower("Gemm")
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    a, b = A.T if transA else A, B.T if transB else B
    if C is not None and transB and alpha == beta == 1 and C.ndim == 1 and A.dtype.is_floating_point:
        return functional.linear(a, B, C)
    result = _scaled(through_int64(torch.matmul, a, b), alpha)
    return result if C is None or beta == 0 else result + _scaled(C, beta)


def _scaled(x, factor):
    return x if factor == 1 else (x * factor).to(x.dtype)


@lower("Einsum")
def einsum(*Inputs, equation):
    return torch.einsum(equation.replace(" ", ""), *Inputs)


@lower("Det")
def det(X):
    return through_float32(torch.linalg.det, X)


@lower("AffineGrid", static=("size",))
def affine_grid(theta, size, *, align_corners=0):
    return through_float32(lambda x: functional.affine_grid(x, numbers(size), bool(align_corners)), theta)


@lower("Linear", domain="tensor_interop")
def linear(input, weight, bias=None):
    """What ``exporters.torch._rebuild`` makes of MatMul, Transpose and Add."""
    return functional.linear(input, weight, bias)
