"""Convolutions."""

from __future__ import annotations

import torch
from torch.nn import functional

from exporters.torch._table import lower
from exporters.torch._values import RefusedError, numbers
from exporters.torch._windows import pad_spatial, window_of

_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def _of_rank(functions, rank):
    if rank not in functions:
        raise RefusedError(f"torch has convolutions over 1, 2 and 3 axes, not over {rank}")
    return functions[rank]


@lower("Conv")
def conv(X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    window = window_of(W.shape[2:], strides, dilations)
    edges = window.pads(X.shape[2:], auto_pad, pads)
    function = _of_rank(_CONV, window.rank)
    if all(begin is end or begin == end for begin, end in edges) and all(begin >= 0 for begin, _ in edges):
        return function(X, W, B, window.strides, [begin for begin, _ in edges], window.dilations, group)
    return function(pad_spatial(X, edges), W, B, window.strides, 0, window.dilations, group)


@lower("ConvTranspose")
def conv_transpose(
    X,
    W,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    output_padding=None,
    output_shape=None,
    pads=None,
    strides=None,
):
    window = window_of(W.shape[2:], strides, dilations)
    extra = list(output_padding or [0] * window.rank)
    sizes = X.shape[2:]
    if output_shape is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = [size * stride for size, stride in zip(sizes, window.strides)]
    if output_shape is None:
        cut = window.pads(sizes, auto_pad, pads)
    else:
        cut = _cut_to(sizes, window, extra, output_shape[-window.rank :], auto_pad == "SAME_UPPER")
    function = _of_rank(_TRANSPOSED, window.rank)
    if all(begin == end and begin >= 0 for begin, end in cut) and _fits(extra, window):
        return function(X, W, B, window.strides, [begin for begin, _ in cut], extra, group, window.dilations)
    full = function(X, W, B, window.strides, 0, 0, group, window.dilations)
    bias = 0 if B is None else B.reshape(-1, *[1] * window.rank)
    grown = pad_spatial(full - bias, [(-begin, more - end) for (begin, end), more in zip(cut, extra)])
    return grown + bias


def _fits(extra, window):
    """Torch takes an output padding that is smaller than the stride or the dilation."""
    return all(more < max(s, d) for more, s, d in zip(extra, window.strides, window.dilations))


def _cut_to(sizes, window, extra, wanted, upper):
    """What to cut from each end to reach an output shape; where the output is too small, zeros follow at its end."""
    cut = []
    for size, stride, span, more, target in zip(sizes, window.strides, window.spans, extra, wanted):
        total = stride * (size - 1) + more + span - target
        begin = max(total, 0) // 2 if upper else (max(total, 0) + 1) // 2
        cut.append((begin, total - begin))
    return cut


@lower("ConvTransposeWithDynamicPads", domain="com.microsoft", static=("Pads",))
def conv_transpose_with_dynamic_pads(
    X,
    W,
    Pads=None,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    output_padding=None,
    strides=None,
):
    return conv_transpose(
        X,
        W,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        output_padding=output_padding,
        pads=None if Pads is None else numbers(Pads),
        strides=strides,
    )


@lower("CausalConvWithState")
def causal_conv_with_state(input, weight, bias=None, past_state=None, *, activation="none"):
    """Depthwise over time; the state is the ``kernel - 1`` last steps of what came before."""
    state = weight.shape[2] - 1
    if past_state is None:
        joined = functional.pad(input, [state, 0])
    else:
        joined = torch.cat([past_state.to(input.dtype), input], 2)
    y = functional.conv1d(joined, weight, bias, groups=weight.shape[0])
    if activation not in ("none", "silu", "swish"):
        raise RefusedError(f"activation {activation!r} is not none, silu or swish")
    y = y if activation == "none" else functional.silu(y)
    return y, joined[:, :, joined.shape[2] - state :]


@lower("Col2Im", static=("image_shape", "block_shape"))
def col2im(input, image_shape, block_shape, *, dilations=None, pads=None, strides=None):
    """Adds each element of each block to its place in the image."""
    image, block = ([int(size) for size in numbers(shape)] for shape in (image_shape, block_shape))
    window = window_of(block, strides, dilations)
    edges = window.pads(image, "NOTSET", pads)
    padded = [size + begin + end for size, (begin, end) in zip(image, edges)]
    counts = [(size - span) // step + 1 for size, span, step in zip(padded, window.spans, window.strides)]
    place = torch.zeros([1] * 2 * window.rank, dtype=torch.int64, device=input.device)
    for axis in range(window.rank):
        taps = torch.arange(block[axis], device=input.device) * window.dilations[axis]
        starts = torch.arange(counts[axis], device=input.device) * window.strides[axis]
        place = place * padded[axis] + taps.reshape(-1, *[1] * (2 * window.rank - 1 - axis))
        place = place + starts.reshape(-1, *[1] * (window.rank - 1 - axis))
    batch = input.shape[0]
    blocks = input.reshape(batch, -1, place.numel())
    total = torch.zeros([batch, blocks.shape[1], _area(padded)], dtype=input.dtype, device=input.device)
    total = total.index_add(2, place.reshape(-1), blocks)
    result = total.reshape(batch, blocks.shape[1], *padded)
    return pad_spatial(result, [(-begin, -end) for begin, end in edges])


def _area(sizes):
    area = 1
    for size in sizes:
        area *= size
    return area
