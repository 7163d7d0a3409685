"""Operators that change the shape of a tensor and keep its elements."""

from __future__ import annotations

import math

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._values import numbers


@lower("Shape")
def shape(data, *, start=0, end=None):
    """A host array: its dims stay symbolic while torch.export traces."""
    dims = list(data.shape)[start:end]
    if all(type(dim) is int for dim in dims):
        return np.array(dims, np.int64)
    found = np.empty(len(dims), object)
    found[:] = dims
    return found


@lower("Size")
def size(data):
    count = math.prod(data.shape)
    found = np.empty([], object)
    found[...] = count
    return np.array(count, np.int64) if type(count) is int else found


@lower("Reshape", static=("shape",))
def reshape(data, shape, *, allowzero=0):
    dims = numbers(shape)
    if not allowzero:
        dims = [data.shape[axis] if type(dim) is int and dim == 0 else dim for axis, dim in enumerate(dims)]
    return torch.reshape(data, dims)


@lower("Transpose")
def transpose(data, *, perm=None):
    return torch.permute(data, perm if perm else list(reversed(range(data.ndim))))


@lower("Squeeze", static=("axes",))
def squeeze(data, axes=None):
    if axes is None:
        return torch.squeeze(data)
    return torch.squeeze(data, [int(axis) for axis in numbers(axes)])


@lower("Unsqueeze", static=("axes",))
def unsqueeze(data, axes):
    places = numbers(axes)
    rank = data.ndim + len(places)
    for place in sorted(int(axis) % rank for axis in places):
        data = torch.unsqueeze(data, place)
    return data


@lower("Flatten")
def flatten(input, *, axis=1):
    cut = axis + input.ndim if axis < 0 else axis
    left, right = math.prod(input.shape[:cut]), math.prod(input.shape[cut:])
    return torch.reshape(input, [left, right])


@lower("Expand", static=("shape",))
def expand(input, shape):
    wanted = numbers(shape)
    rank = max(input.ndim, len(wanted))
    own = [1] * (rank - input.ndim) + list(input.shape)
    wanted = [1] * (rank - len(wanted)) + wanted
    dims = [have if _is_one(want) else want for have, want in zip(own, wanted)]
    dims = [have if type(have) is int and have != 1 else want for have, want in zip(own, dims)]
    return input.reshape(own).expand(dims)


def _is_one(dim):
    return type(dim) is int and dim == 1


@lower("Tile", static=("repeats",))
def tile(input, repeats):
    return torch.tile(input, numbers(repeats))


@lower("Concat")
def concat(*inputs, axis):
    return torch.cat(inputs, axis)


@lower("Split", static=("split",), takes=("outputs",))
def split(input, split=None, *, axis=0, num_outputs=None, outputs=1):
    size = input.shape[axis]
    if split is not None:
        sizes = numbers(split)
    else:
        part = -(-size // (num_outputs or outputs))
        sizes = [part] * (outputs - 1)
        sizes.append(size - part * (outputs - 1))
    return tuple(torch.split(input, sizes, axis))


@lower("DepthToSpace")
def depth_to_space(input, *, blocksize, mode="DCR"):
    batch, depth, height, width = input.shape
    inner = depth // blocksize**2
    if mode == "DCR":
        dims, perm = [batch, blocksize, blocksize, inner, height, width], [0, 3, 4, 1, 5, 2]
    else:
        dims, perm = [batch, inner, blocksize, blocksize, height, width], [0, 1, 4, 2, 5, 3]
    return input.reshape(dims).permute(perm).reshape(batch, inner, height * blocksize, width * blocksize)


@lower("SpaceToDepth")
def space_to_depth(input, *, blocksize, mode="DCR"):
    batch, depth, height, width = input.shape
    rows, columns = height // blocksize, width // blocksize
    perm = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    blocks = input.reshape(batch, depth, rows, blocksize, columns, blocksize)
    return blocks.permute(perm).reshape(batch, depth * blocksize**2, rows, columns)


@lower("CenterCropPad", static=("shape",))
def center_crop_pad(input_data, shape, *, axes=None):
    places = list(range(input_data.ndim)) if axes is None else [axis % input_data.ndim for axis in axes]
    for axis, wanted in zip(places, numbers(shape)):
        have = input_data.shape[axis]
        if wanted < have:
            input_data = input_data.narrow(axis, (have - wanted) // 2, wanted)
        elif wanted > have:
            before = (wanted - have) // 2
            pads = [0, 0] * (input_data.ndim - 1 - axis) + [before, wanted - have - before]
            input_data = torch.nn.functional.pad(input_data, pads)
    return input_data


@lower("Identity")
def identity(input):
    return input


@lower("ReverseSequence", static=("sequence_lens",))
def reverse_sequence(input, sequence_lens, *, batch_axis=1, time_axis=0):
    steps = torch.arange(input.shape[time_axis], device=input.device)
    lengths = torch.as_tensor(np.asarray(sequence_lens) if isinstance(sequence_lens, list) else sequence_lens)
    lengths = lengths.to(input.device).reshape(-1, 1)
    places = torch.where(steps < lengths, lengths - 1 - steps, steps)
    data = input.movedim((batch_axis, time_axis), (0, 1))
    rows = torch.arange(data.shape[0], device=input.device)[:, None]
    return data[rows, places].movedim((0, 1), (batch_axis, time_axis))
