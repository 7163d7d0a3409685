"""What operators do with host arrays: shape arithmetic that keeps symbolic dims, and arrays of strings.

The functions take and give NumPy arrays; ``exporters.torch._hosted`` says which nodes they serve. An array of symbolic dims
holds Python objects, which add and multiply as numbers.
"""

from __future__ import annotations

import math

import numpy as np

from exporters.torch._table import on_host, on_host_all
from exporters.torch._values import numbers
from interop.dtypes import dtype_of


@on_host("Identity")
def identity(input):
    return input


def _plain(array):
    """Whole numbers as int64 again, where no dim is symbolic any more."""
    if array.dtype == object and all(type(item) in (int, bool) for item in array.flat):
        kind = bool if array.size and all(type(item) is bool for item in array.flat) else np.int64
        return array.astype(kind)
    return array


@on_host("Add")
def add(A, B):
    return _plain(np.asarray(A + B))


@on_host("Sub")
def sub(A, B):
    return _plain(np.asarray(A - B))


@on_host("Mul")
def mul(A, B):
    return _plain(np.asarray(A * B))


@on_host("Div")
def div(A, B):
    if object in (A.dtype, B.dtype):
        return _plain(np.asarray(A // B))  # dims are not negative
    if A.dtype.kind == "f":
        return np.asarray(A / B)
    quotient = np.abs(A) // np.abs(B)
    return np.asarray(np.where((A < 0) != (B < 0), -quotient, quotient)).astype(A.dtype)


@on_host("Mod")
def mod(A, B, *, fmod=0):
    return _plain(np.asarray(np.fmod(A, B) if fmod else A % B))


@on_host("Neg")
def neg(X):
    return np.asarray(-X)


@on_host("Max")
def max(*data_0):  # noqa: A001  # as the operator
    return _folded(data_0, np.maximum, _larger)


@on_host("Min")
def min(*data_0):  # noqa: A001  # as the operator
    return _folded(data_0, np.minimum, _smaller)


def _folded(arrays, plain, symbolic):
    total = arrays[0]
    for array in arrays[1:]:
        if object in (total.dtype, array.dtype):
            total = _plain(np.asarray(np.frompyfunc(symbolic, 2, 1)(total, array), dtype=object))
        else:
            total = np.asarray(plain(total, array))
    return total


def _larger(a, b):
    import torch

    return torch.sym_max(a, b)


def _smaller(a, b):
    import torch

    return torch.sym_min(a, b)


def _compared(function, A, B):
    if object in (A.dtype, B.dtype):
        found = np.asarray(np.frompyfunc(function, 2, 1)(A, B), dtype=object)
        return np.array([bool(item) for item in found.flat], bool).reshape(found.shape)
    return np.asarray(function(A, B))


@on_host("Equal")
def equal(A, B):
    return _compared(lambda a, b: a == b, A, B)


@on_host("Greater")
def greater(A, B):
    return _compared(lambda a, b: a > b, A, B)


@on_host("GreaterOrEqual")
def greater_or_equal(A, B):
    return _compared(lambda a, b: a >= b, A, B)


@on_host("Less")
def less(A, B):
    return _compared(lambda a, b: a < b, A, B)


@on_host("LessOrEqual")
def less_or_equal(A, B):
    return _compared(lambda a, b: a <= b, A, B)


on_host_all({"And": np.logical_and, "Or": np.logical_or, "Not": np.logical_not})


@on_host("Where")
def where(condition, X, Y):
    return _plain(np.asarray(np.where(condition.astype(bool), X, Y)))


@on_host("Cast")
def cast(input, *, to=None, saturate=1, round_mode="up"):
    """Whole numbers only; see ``exporters.torch._hosted``."""
    if input.dtype != object:
        return input.astype(dtype_of(to).numpy)
    return _compared(lambda a, b: a != b, input, np.array(0)) if dtype_of(to).kind == "bool" else input


@on_host("Concat")
def concat(*inputs, axis):
    return _plain(np.concatenate(inputs, axis))


@on_host("Gather")
def gather(data, indices, *, axis=0):
    return _plain(np.asarray(np.take(data, np.asarray(indices).astype(np.int64), axis)))


@on_host("GatherND")
def gather_nd(data, indices, *, batch_dims=0):
    return np.asarray(data[tuple(np.moveaxis(indices, -1, 0))])


@on_host("Slice")
def slice_(data, starts, ends, axes=None, steps=None):
    count = len(numbers(starts))
    places = range(count) if axes is None else [int(axis) for axis in numbers(axes)]
    strides = [1] * count if steps is None else numbers(steps)
    parts = [slice(None)] * data.ndim
    for axis, start, end, step in zip(places, numbers(starts), numbers(ends), strides):
        start = None if step < 0 and start >= data.shape[axis] else start
        end = None if step < 0 and end < -data.shape[axis] else end
        parts[axis] = slice(start, end, step)
    return _plain(np.asarray(data[tuple(parts)]))


@on_host("Reshape")
def reshape(data, shape, *, allowzero=0):
    dims = numbers(shape)
    if not allowzero:
        dims = [data.shape[axis] if dim == 0 else dim for axis, dim in enumerate(dims)]
    return data.reshape([int(dim) for dim in dims])


@on_host("Squeeze")
def squeeze(data, axes=None):
    return np.squeeze(data, None if axes is None else tuple(int(axis) for axis in numbers(axes)))


@on_host("Unsqueeze")
def unsqueeze(data, axes):
    return np.expand_dims(data, tuple(int(axis) for axis in numbers(axes)))


@on_host("Transpose")
def transpose(data, *, perm=None):
    return np.transpose(data, perm)


@on_host("Flatten")
def flatten(input, *, axis=1):
    return input.reshape(math.prod(input.shape[:axis]), -1)


@on_host("Expand")
def expand(input, shape):
    dims = tuple(int(dim) for dim in numbers(shape))
    return np.array(np.broadcast_to(input, np.broadcast_shapes(input.shape, dims)))


@on_host("Tile")
def tile(input, repeats):
    return np.tile(input, [int(count) for count in numbers(repeats)])


@on_host("Size")
def size(data):
    return np.array(data.size, np.int64)


@on_host("Shape")
def shape(data, *, start=0, end=None):
    return np.array(data.shape[start:end], np.int64)


@on_host("ReduceProd")
def reduce_prod(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(math.prod, data, keepdims)


@on_host("ReduceSum")
def reduce_sum(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(sum, data, keepdims)


def _reduced(function, data, keepdims):
    total = np.empty([1] if keepdims else [], object)
    total[...] = function(data.tolist())
    return _plain(total)


@on_host("ScatterElements")
def scatter_elements(data, indices, updates, *, axis=0, reduction="none"):
    result = data.astype(np.result_type(data, updates))
    result[indices] = updates
    return result


@on_host("ScatterND")
def scatter_nd(data, indices, updates, *, reduction="none"):
    result = data.astype(np.result_type(data, updates))
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result
