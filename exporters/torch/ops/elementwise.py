"""Arithmetic and elementary functions, element by element with broadcasting."""

from __future__ import annotations

import functools

import torch

from exporters.torch._table import lower, lower_all
from exporters.torch._values import through_int64

lower_all(
    {
        "Acos": torch.acos,
        "Acosh": torch.acosh,
        "Asin": torch.asin,
        "Asinh": torch.asinh,
        "Atan": torch.atan,
        "Atanh": torch.atanh,
        "Ceil": torch.ceil,
        "Cos": torch.cos,
        "Cosh": torch.cosh,
        "Erf": torch.erf,
        "Exp": torch.exp,
        "Floor": torch.floor,
        "Log": torch.log,
        "Reciprocal": torch.reciprocal,
        "Round": torch.round,
        "Sin": torch.sin,
        "Sinh": torch.sinh,
        "Sqrt": torch.sqrt,
        "Tan": torch.tan,
    }
)


@lower("Abs")
def abs(X):  # noqa: A001  # lowerings carry the operator's name
    return through_int64(torch.abs, X) if X.dtype.is_signed else X


@lower("Neg")
def neg(X):
    return through_int64(torch.neg, X)


@lower("Sign")
def sign(input):
    return through_int64(torch.sign, input)


@lower("Add")
def add(A, B):
    return through_int64(torch.add, A, B)


@lower("Sub")
def sub(A, B):
    return through_int64(torch.sub, A, B)


@lower("Mul")
def mul(A, B):
    return through_int64(torch.mul, A, B)


@lower("Div")
def div(A, B):
    if A.dtype.is_floating_point or A.dtype.is_complex:
        return torch.div(A, B)
    return through_int64(_truncated_quotient, A, B)


def _truncated_quotient(A, B):
    return torch.div(A, B, rounding_mode="trunc")


@lower("Mod")
def mod(A, B, *, fmod=0):
    return through_int64(torch.fmod if fmod else torch.remainder, A, B)


@lower("Pow")
def pow(X, Y):  # noqa: A001  # lowerings carry the operator's name
    if X.dtype == Y.dtype:
        return through_int64(torch.pow, X, Y)
    if not X.dtype.is_floating_point and Y.dtype.is_floating_point:
        return torch.pow(X.double(), Y.double()).to(X.dtype)
    if not X.dtype.is_floating_point:
        return torch.pow(X.long(), Y.long()).to(X.dtype)
    return torch.pow(X, Y.to(X.dtype) if not Y.dtype.is_floating_point else Y).to(X.dtype)


@lower("Sum")
def sum(*data_0):  # noqa: A001  # lowerings carry the operator's name
    return functools.reduce(torch.add, data_0)


@lower("Mean")
def mean(*data_0):
    return sum(*data_0) / len(data_0)


@lower("Max")
def max(*data_0):  # noqa: A001  # lowerings carry the operator's name
    return through_int64(_maximum, *data_0)


@lower("Min")
def min(*data_0):  # noqa: A001  # lowerings carry the operator's name
    return through_int64(_minimum, *data_0)


def _maximum(*tensors):
    return functools.reduce(torch.maximum, tensors)


def _minimum(*tensors):
    return functools.reduce(torch.minimum, tensors)
