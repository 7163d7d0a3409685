"""Elementwise operators whose signs, NaNs or far values torch.onnx loses, or that it does not export."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from exporters.onnx.corrections._build import is_floating, negative, op, scalar

__all__ = ["DECOMPOSITIONS", "TRANSLATIONS"]

aten = torch.ops.aten


def log_sigmoid(self: Any) -> Any:
    """Far below zero Log(Sigmoid(x)) is -inf instead of x; min(x, 0) - log1p(exp(-|x|)) holds everywhere."""
    return op.Sub(op.Min(self, scalar(0, self)), _log1p(op.Exp(op.Neg(op.Abs(self))), self))


def log1p(self: Any) -> Any:
    """Log(1 + x) has no digit left for small x; the rounding of 1 + x is divided out again (Kahan)."""
    return _log1p(self, self)


def _log1p(x: Any, like: Any) -> Any:
    one = scalar(1, like)
    up = op.Add(x, one)
    growth = op.Div(op.Log(up), op.Sub(up, one))
    exact = op.Or(op.Equal(up, one), op.Equal(x, scalar(math.inf, like)))
    return op.Mul(x, op.Where(exact, one, growth))


def expm1(self: Any) -> Any:
    """Exp(x) - 1 has no digit left for small x; the rounding of exp(x) is divided out again (Kahan)."""
    low = -8 if self.dtype == ir.DataType.FLOAT16 else -40  # -1 from here on, and exp is still above zero
    x, one, infinite = op.Max(self, scalar(low, self)), scalar(1, self), scalar(math.inf, self)
    power = op.Exp(x)
    growth = op.Div(op.Sub(power, one), op.Log(power))
    growth = op.Where(op.Equal(power, infinite), infinite, growth)
    return op.Mul(x, op.Where(op.Equal(power, one), one, growth))


def atan2(self: Any, other: Any) -> Any:
    """Signs of zeros and infinities, which the division of torch.onnx loses: pi and -pi for 0 and -0 over -1."""
    high, wide = op.Abs(self), op.Abs(other)
    one, zero = scalar(1, self), scalar(0, self)
    ratio = op.Where(op.Equal(high, wide), op.Where(op.Equal(high, zero), zero, one), op.Div(high, wide))
    angle = op.Atan(ratio)
    angle = op.Where(negative(other), op.Sub(scalar(math.pi, self), angle), angle)
    return op.Mul(angle, _unit(self))


def _unit(value: Any) -> Any:
    """-1 where the sign bit is set, else 1. A product keeps the sign of a zero; ONNX Runtime's Where does not."""
    return op.Where(negative(value), scalar(-1, value), scalar(1, value))


def sign(self: Any) -> Any:
    """ONNX Runtime's Sign(NaN) is NaN; torch's is 0."""
    return op.Where(op.IsNaN(self), scalar(0, self), op.Sign(self)) if is_floating(self) else op.Sign(self)


def signbit(self: Any) -> Any:
    """torch.onnx compares with 0 and misses -0."""
    return negative(self)


def copysign(self: Any, other: Any) -> Any:
    """Not exported by torch.onnx. ``other`` is a tensor or a number."""
    size = op.Abs(self if is_floating(self) else op.Cast(self, to=ir.DataType.FLOAT))
    if isinstance(other, (int, float)):
        return op.Neg(size) if math.copysign(1, other) < 0 else size
    return op.Mul(size, op.CastLike(_unit(other), size))


def heaviside(self: Any, values: Any) -> Any:
    """torch.onnx answers 1 for NaN; torch's is 0."""
    return op.Where(op.Equal(self, scalar(0, self)), values, op.Cast(op.Greater(self, scalar(0, self)), to=self.dtype))


def xlogy(self: Any, other: Any) -> Any:
    """NaN for zero times the logarithm of NaN; torch.onnx answers 0."""
    product = op.Mul(self, op.Log(other))
    return op.Where(op.And(op.Equal(self, scalar(0, self)), op.Not(op.IsNaN(other))), scalar(0, self), product)


def hypot(self: Any, other: Any) -> Any:
    """Not exported by torch.onnx. The larger side is taken out of the root, so that squares do not overflow."""
    long, short = op.Max(op.Abs(self), op.Abs(other)), op.Min(op.Abs(self), op.Abs(other))
    ratio = op.Where(op.Equal(long, scalar(0, self)), scalar(0, self), op.Div(short, long))
    root = op.Mul(long, op.Sqrt(op.Add(op.Mul(ratio, ratio), scalar(1, self))))
    return op.Where(op.Or(op.IsInf(self), op.IsInf(other)), scalar(math.inf, self), root)


def fmax(self: Any, other: Any) -> Any:
    """Not exported by torch.onnx: the larger number, and NaN only where both are."""
    return _unless_nan(self, other, op.Max(self, other))


def fmin(self: Any, other: Any) -> Any:
    """Not exported by torch.onnx: the smaller number, and NaN only where both are."""
    return _unless_nan(self, other, op.Min(self, other))


def _unless_nan(first: Any, second: Any, both: Any) -> Any:
    if not is_floating(first):
        return both
    return op.Where(op.IsNaN(first), second, op.Where(op.IsNaN(second), first, both))


def remainder(self: Any, other: Any) -> Any:
    """torch.onnx computes x - floor(x / y) * y: NaN for an infinite y, and another number where x / y rounds up."""
    like = self if isinstance(self, ir.Value) and self.dtype is not None else other
    self, other = (value if isinstance(value, ir.Value) else scalar(value, like) for value in (self, other))
    if not is_floating(like):
        return op.Mod(self, other)
    rest, zero = op.Mod(self, other, fmod=1), scalar(0, like)
    other_side = op.Xor(op.Less(rest, zero), op.Less(other, zero))
    return op.Where(op.And(other_side, op.Not(op.Equal(rest, zero))), op.Add(rest, other), rest)


def clamp(self: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002  # the names of torch's schema
    """ONNX Runtime's Clip with one bound gives the largest finite number for infinity."""
    bounds = [bound for bound in (min, max) if bound is not None]
    if not is_floating(self) and any(isinstance(bound, float) for bound in bounds):
        floats = op.Cast(self, to=ir.DataType.FLOAT)
        floats.dtype = ir.DataType.FLOAT
        self = floats
    for bound, apply in ((min, op.Max), (max, op.Min)):
        if bound is not None:
            limit = bound if isinstance(bound, ir.Value) else scalar(bound, self)
            lowered = apply(self, limit)
            lowered.dtype = self.dtype
            self = lowered
    return self


def clamp_min(self: Any, min: Any) -> Any:  # noqa: A002  # the names of torch's schema
    """As ``clamp``."""
    return clamp(self, min)


def clamp_max(self: Any, max: Any) -> Any:  # noqa: A002  # the names of torch's schema
    """As ``clamp``."""
    return clamp(self, None, max)


def power(self: Any, exponent: Any) -> Any:
    """The root, which torch takes for these two: NaN of -inf, and the sign of a zero stays; ONNX Runtime's Pow says inf and 0."""
    if exponent == 0.5:
        return torch.sqrt(self)
    return torch.reciprocal(torch.sqrt(self)) if exponent == -0.5 else NotImplemented


def _is_root(node: torch.fx.Node) -> bool:
    return node.args[1] in (0.5, -0.5)


DECOMPOSITIONS = {aten.pow.Tensor_Scalar: (power, _is_root)}

TRANSLATIONS = {
    aten.log_sigmoid.default: log_sigmoid,
    aten.log1p.default: log1p,
    aten.expm1.default: expm1,
    aten.atan2.default: atan2,
    aten.sign.default: sign,
    aten.sgn.default: sign,
    aten.signbit.default: signbit,
    aten.copysign.Tensor: copysign,
    aten.copysign.Scalar: copysign,
    aten.heaviside.default: heaviside,
    aten.xlogy.Tensor: xlogy,
    aten.hypot.default: hypot,
    aten.fmax.default: fmax,
    aten.fmin.default: fmin,
    aten.remainder.Tensor: remainder,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.clamp.default: clamp,
    aten.clamp_min.default: clamp_min,
    aten.clamp_max.default: clamp_max,
}
