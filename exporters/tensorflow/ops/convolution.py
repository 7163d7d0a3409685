"""Convolutions."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from exporters._graph.contrib import MICROSOFT
from exporters.tensorflow._convolutions import convolve, transpose_convolve
from exporters.tensorflow._layout import channels_first, channels_last, transpose
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of, static_shape
from exporters.tensorflow._windows import window_of


@lower("Conv")
def conv(X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    window = window_of(_kernel(W, kernel_shape), strides, dilations)
    x = channels_last(_wide(X))
    padding = window.pads(shape_of(x, tf.int32)[1:-1], auto_pad, pads)
    y = convolve(x, _spatial_first(_wide(W)), window, padding, group)
    return _finish(y, B, X.dtype)


def _wide(x):
    """float16 as float32: TensorFlow's CPU kernels add up float16 in float16."""
    return tf.cast(x, tf.float32) if x.dtype == tf.float16 else x


def _finish(y, B, dtype):
    y = y if B is None else tf.nn.bias_add(y, _wide(B))
    return channels_first(y if y.dtype == dtype else tf.cast(y, dtype))


def _spatial_first(W):
    """``[M, C, ...]`` to ``[..., C, M]``."""
    return transpose(W, [*range(2, rank_of(W)), 1, 0])


def _kernel(W, kernel_shape):
    known = static_shape(W)[2:]
    if len(known) not in (1, 2, 3):
        raise RefusedError(f"TensorFlow has convolutions over 1, 2 and 3 axes, not over {len(known)}")
    if None not in known:
        return known
    if kernel_shape is None:
        raise RefusedError("neither kernel_shape nor the shape of the weight is known while the graph is built")
    return list(kernel_shape)


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
    window = window_of(_kernel(W, kernel_shape), strides, dilations)
    x = channels_last(_wide(X))
    sizes = shape_of(x, tf.int32)[1:-1]
    extra = list(output_padding or [0] * window.rank)
    if output_shape is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = [size * stride for size, stride in zip(sizes, window.strides)]
    if output_shape is None:
        cut = window.pads(sizes, auto_pad, pads)
    else:
        cut = _cut_to(sizes, window, extra, output_shape[-window.rank :], auto_pad == "SAME_UPPER")
    cut = [(begin, end - more) for (begin, end), more in zip(cut, extra)]
    return _finish(transpose_convolve(x, _spatial_first(_wide(W)), window, cut, group), B, X.dtype)


@lower("ConvTransposeWithDynamicPads", domain=MICROSOFT, static=("Pads",))
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
    if Pads is not None and not isinstance(Pads, np.ndarray):
        raise RefusedError("its pads are known when it runs only")
    return conv_transpose(
        X,
        W,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=None if Pads is None else Pads.tolist(),
        strides=strides,
    )


def _cut_to(sizes, window, extra, wanted, upper):
    """What to cut from each end to reach an output shape; where the output is too small, zeros follow at its end."""
    cut = []
    for size, stride, span, more, target in zip(sizes, window.strides, window.spans, extra, wanted):
        total = stride * (size - 1) + more + span - target
        if isinstance(total, int):
            begin = max(total, 0) // 2 if upper else (max(total, 0) + 1) // 2
        else:
            begin = tf.maximum(total + (0 if upper else 1), 0) // 2
        cut.append((begin, total - begin))
    return cut


_ACTIVATIONS = {"none": tf.identity, "silu": tf.nn.silu, "swish": tf.nn.silu}


@lower("CausalConvWithState")
def causal_conv_with_state(input, weight, bias=None, past_state=None, *, activation="none"):
    """Depthwise over time; the state is the ``kernel - 1`` last steps of what came before."""
    state = _kernel(weight, None)[0] - 1
    if past_state is None:
        joined = tf.pad(input, [[0, 0], [0, 0], [state, 0]])
    else:
        joined = tf.concat([tf.cast(past_state, input.dtype), input], 2)
    operands = (None if x is None else _wide(x) for x in (joined, weight, bias))
    y = _ACTIVATIONS[activation](conv(*operands, group=static_shape(weight)[0]))
    last = shape_of(joined)[2]
    return tf.cast(y, input.dtype), joined[:, :, last - state :]


@lower("Col2Im", static=("image_shape", "block_shape"))
def col2im(input, image_shape, block_shape, *, dilations=None, pads=None, strides=None):
    """Adds each element of each block to its place in the image."""
    rank = static_shape(block_shape)[0]
    if rank is None:
        raise RefusedError("how many axes the blocks have is not known while the graph is built")
    image, block = _integers(image_shape, rank), _integers(block_shape, rank)
    window = window_of([1] * rank, strides, dilations)
    places = _block_places(image, block, window, pads or [0] * 2 * rank)
    batch, rows, columns = shape_of(input, tf.int32)
    size, area = math.prod(block), math.prod(image)
    channels = rows // size
    split = tf.reshape(input, tf.stack([batch, channels, size * columns]))
    joined = tf.math.unsorted_segment_sum(tf.transpose(split, [2, 0, 1]), places, area)
    return tf.reshape(tf.transpose(joined, [1, 2, 0]), tf.stack([batch, channels, *image]))


def _integers(vector, count):
    """The elements as ints where they are known, otherwise as scalar tensors."""
    if isinstance(vector, np.ndarray):
        return [int(item) for item in vector]
    return [tf.cast(vector[index], tf.int32) for index in range(count)]


def _block_places(image, block, window, pads):
    """The flat index in the image of each block element, ``[elements * blocks]``; -1 in the padding."""
    rank = window.rank
    place, is_inside = tf.zeros([1] * 2 * rank, tf.int32), tf.ones([1] * 2 * rank, tf.bool)
    for axis in range(rank):
        span = (block[axis] - 1) * window.dilations[axis] + 1
        count = (image[axis] + pads[axis] + pads[axis + rank] - span) // window.strides[axis] + 1
        taps = tf.range(block[axis]) * window.dilations[axis] - pads[axis]
        starts = tf.range(count) * window.strides[axis]
        line = tf.reshape(taps, [-1] + [1] * (2 * rank - 1 - axis)) + tf.reshape(starts, [-1] + [1] * (rank - 1 - axis))
        place = place * image[axis] + line
        is_inside &= (line >= 0) & (line < image[axis])
    return tf.reshape(tf.where(is_inside, place, -1), [-1])
