"""Special functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from exporters.onnx.corrections._build import op, scalar

__all__ = ["TRANSLATIONS"]

aten = torch.ops.aten

# M. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011), the single precision pair of polynomials in
# w = -log(1 - x**2), highest power first: below w = 5 in w - 2.5, above it in sqrt(w) - 3.
_CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


def erfinv(self: Any) -> Any:
    """Not exported by torch.onnx (prims.erf_inv has no translation). Accurate to float32."""
    one = scalar(1, self)
    depth = op.Neg(op.Log(op.Mul(op.Sub(one, self), op.Add(one, self))))
    near = _polynomial(_CENTRE, op.Sub(depth, scalar(2.5, self)), self)
    far = _polynomial(_TAIL, op.Sub(op.Sqrt(depth), scalar(3, self)), self)
    inside = op.Mul(op.Where(op.Less(depth, scalar(5, self)), near, far), self)
    edge = op.Equal(op.Abs(self), one)
    return op.Where(edge, op.Mul(self, scalar(math.inf, self)), inside)


def _polynomial(coefficients: Sequence[float], x: Any, like: Any) -> Any:
    total = scalar(coefficients[0], like)
    for coefficient in coefficients[1:]:
        total = op.Add(op.Mul(total, x), scalar(coefficient, like))
    return total


def randperm(
    n: Any, dtype: int = -1, layout: str = "", device: Any = None, pin_memory: bool = False, generator: Any = None
) -> Any:
    """Not exported by torch.onnx: the order of as many random numbers."""
    size = op.Constant(value_ints=[n]) if isinstance(n, int) else op.Reshape(n, op.Constant(value_ints=[1]))
    like = op.ConstantOfShape(size, value=ir.tensor([0.0], dtype=ir.DataType.FLOAT))
    _, order = op.TopK(op.RandomUniformLike(like), size, axis=0)
    return order if dtype in (-1, None, ir.DataType.INT64) else op.Cast(order, to=dtype)


TRANSLATIONS = {aten.erfinv.default: erfinv, aten.randperm.default: randperm}
