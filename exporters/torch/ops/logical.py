"""Comparisons, logic and bits, element by element with broadcasting."""

from __future__ import annotations

import torch

from exporters.torch._table import lower, lower_all
from exporters.torch._values import through_int64

lower_all({"And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor, "Not": torch.logical_not})


@lower("Equal")
def equal(A, B):
    return through_int64(torch.eq, A, B)


@lower("Greater")
def greater(A, B):
    return through_int64(torch.gt, A, B)


@lower("GreaterOrEqual")
def greater_or_equal(A, B):
    return through_int64(torch.ge, A, B)


@lower("Less")
def less(A, B):
    return through_int64(torch.lt, A, B)


@lower("LessOrEqual")
def less_or_equal(A, B):
    return through_int64(torch.le, A, B)


@lower("BitwiseAnd")
def bitwise_and(A, B):
    return through_int64(torch.bitwise_and, A, B)


@lower("BitwiseOr")
def bitwise_or(A, B):
    return through_int64(torch.bitwise_or, A, B)


@lower("BitwiseXor")
def bitwise_xor(A, B):
    return through_int64(torch.bitwise_xor, A, B)


@lower("BitwiseNot")
def bitwise_not(X):
    return through_int64(torch.bitwise_not, X)


def _comparable(X):
    """Torch compares no float8 values."""
    return X.float() if X.dtype.itemsize == 1 else X


@lower("IsNaN")
def is_nan(X):
    return torch.isnan(_comparable(X))


@lower("IsInf")
def is_inf(X, *, detect_negative=1, detect_positive=1):
    X = _comparable(X)
    if detect_negative and detect_positive:
        return torch.isinf(X)
    if not detect_negative and not detect_positive:
        return torch.zeros_like(X, dtype=torch.bool)
    return torch.isposinf(X) if detect_positive else torch.isneginf(X)


@lower("BitShift")
def bit_shift(X, Y, *, direction):
    bits = X.dtype.itemsize * 8
    wide, by = X.to(torch.int64), Y.to(torch.int64)
    outside = (by < 0) | (by >= bits)
    by = torch.where(outside, 0, by)
    if direction == "LEFT":
        return torch.where(outside, 0, wide << by).to(X.dtype)
    if X.dtype == torch.uint64:  # the sign bit of int64 must not follow
        mask = torch.where(by == 0, -1, (torch.ones_like(by) << (64 - by)) - 1)
        return torch.where(outside, 0, (wide >> by) & mask).to(X.dtype)
    if X.dtype.is_signed:
        return (wide >> torch.where(outside, bits - 1, by)).to(X.dtype)
    return torch.where(outside, 0, wide >> by).to(X.dtype)
