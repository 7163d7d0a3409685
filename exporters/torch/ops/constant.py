"""Operators that make tensors: constants, ranges and windows."""

from __future__ import annotations

import math

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._values import RefusedError, as_tensor, number, numbers, torch_dtype


@lower("Constant")
def constant(
    *,
    sparse_value=None,
    value=None,
    value_float=None,
    value_floats=None,
    value_int=None,
    value_ints=None,
    value_string=None,
    value_strings=None,
):
    """A host array; the conversion reads it while the graph is built."""
    forms = (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    )
    if value is not None:
        return value
    if sparse_value is not None:
        return _dense(sparse_value)
    given = [np.array(data, dtype) for data, dtype in forms if data is not None]
    if len(given) != 1:
        raise RefusedError(f"it has {len(given)} values, not one")
    return given[0]


def _dense(sparse):
    """The array of an ONNX ``SparseTensorProto``, whose indices are linear or one row an element."""
    from onnx import numpy_helper

    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    where = np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)
    dense[where] = values
    return dense


@lower("ConstantOfShape", static=("input",))
def constant_of_shape(input, *, value=None):
    fill = torch.zeros([]) if value is None else as_tensor(np.asarray(value).reshape([]))
    return fill.expand(numbers(input)).contiguous()


@lower("EyeLike")
def eye_like(input, *, dtype=None, k=0):
    rows, columns = input.shape
    row = torch.arange(rows, device=input.device)[:, None]
    column = torch.arange(columns, device=input.device)
    return (column - row == k).to(input.dtype if dtype is None else torch_dtype(dtype))


@lower("Range", static=("start", "limit", "delta"))
def range(start, limit, delta, *, stash_type=1):  # noqa: A001  # lowerings carry the operator's name
    first, last, step = (number(bound) for bound in (start, limit, delta))
    dtype = next((_dtype(bound) for bound in (start, limit, delta) if hasattr(bound, "dtype")), torch.int64)
    if not dtype.is_floating_point:
        return torch.arange(first, last, step).to(dtype)
    work = torch_dtype(stash_type) if dtype.itemsize == 2 else dtype
    count = max(math.ceil((last - first) / step), 0)
    return (first + torch.arange(count).to(work) * step).to(dtype)


@lower("Range", domain="com.microsoft", static=("start", "limit", "delta"))
def range_of_runtime(start, limit, delta=None):
    return range(start, limit, 1 if delta is None else delta)


def _dtype(bound):
    """A literal, and a symbolic number, is int64."""
    if isinstance(bound.dtype, torch.dtype):
        return bound.dtype
    return torch.int64 if bound.dtype.kind == "O" else torch_dtype(bound.dtype)


def _window(size, coefficients, periodic, output_datatype):
    """A sum of cosines, ``c0 + c1 cos(2 pi n / N) + c2 cos(4 pi n / N)``, over ``n = 0 .. size - 1``."""
    count = number(size)
    dtype = torch_dtype(output_datatype)
    work = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    angle = torch.arange(count).to(work) * (2 * math.pi) / (count if periodic else count - 1)
    total = torch.full_like(angle, coefficients[0])
    for order, coefficient in enumerate(coefficients[1:], 1):
        total = total + coefficient * torch.cos(order * angle)
    return total.to(dtype)


@lower("HannWindow", static=("size",))
def hann_window(size, *, output_datatype=1, periodic=1):
    return _window(size, (0.5, -0.5), periodic, output_datatype)


@lower("HammingWindow", static=("size",))
def hamming_window(size, *, output_datatype=1, periodic=1):
    return _window(size, (25 / 46, -21 / 46), periodic, output_datatype)


@lower("BlackmanWindow", static=("size",))
def blackman_window(size, *, output_datatype=1, periodic=1):
    return _window(size, (0.42, -0.5, 0.08), periodic, output_datatype)


@lower(
    "MelWeightMatrix",
    static=("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"),
)
def mel_weight_matrix(num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, *, output_datatype=1):
    bins, length, rate = (int(number(value)) for value in (num_mel_bins, dft_length, sample_rate))
    edges = _mel_edges(bins, length, rate, float(number(lower_edge_hertz)), float(number(upper_edge_hertz)))
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    frequency = np.arange(length // 2 + 1)[:, None]
    rise, fall = np.maximum(centre - left, 1), np.maximum(right - centre, 1)  # an empty side is not used
    falling = (right - frequency) / fall
    rising = np.where(centre > left, (frequency - left) / rise, 1)
    weights = np.where((left <= frequency) & (frequency <= centre), rising, 0)
    weights = np.where((centre <= frequency) & (frequency < right), falling, weights)
    return torch.from_numpy(weights).to(torch_dtype(output_datatype))


def _mel_edges(bins, length, rate, low, high):
    """The spectrogram bins at which the triangles begin, peak and end, equally spaced on the mel scale."""
    low_mel, high_mel = (2595 * math.log10(1 + edge / 700) for edge in (low, high))
    mel = low_mel + np.arange(bins + 2) * ((high_mel - low_mel) / (bins + 2))
    hertz = 700 * (10 ** (mel / 2595) - 1)
    return ((length + 1) * hertz // rate).astype(np.int64)
