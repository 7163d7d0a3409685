"""Operators that change the shape of a tensor and keep its elements."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._layout import transpose as undo_or_transpose
from exporters.tensorflow._movement import carried, dims_tensor, is_known, normal_axis, partial_dims, product
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of, static_shape, through


@lower("Reshape", static=("shape",))
def reshape(data, shape, *, allowzero=0):
    if is_known(shape):
        dims = [int(dim) for dim in shape]
        if data.shape.rank == 0 and len(dims) == 1:
            return _as_vector(data)
        return tf.reshape(data, dims if allowzero else _with_copied_dims(data, dims))
    if allowzero:
        return tf.reshape(data, shape)
    return _reshape_by_tensor(data, shape)


def _with_copied_dims(data, dims):
    """The target with the input's dims in the place of zeros; a single unknown one is left to TensorFlow as -1."""
    if 0 not in dims:
        return dims
    given = static_shape(data)
    copied = [given[axis] if dim == 0 else dim for axis, dim in enumerate(dims)]
    if copied.count(None) == 1 and -1 not in copied and 0 not in copied:
        return [-1 if dim is None else dim for dim in copied]
    known = shape_of(data)
    return dims_tensor([known[axis] if dim == 0 else dim for axis, dim in enumerate(dims)])


def _reshape_by_tensor(data, shape):
    """A target that is calculated: its zeros copy the input's dims, which only the run can tell."""
    known = partial_dims(shape)
    if known is not None and all(dim for dim in known):
        return tf.reshape(data, shape)
    given = tf.shape(data, out_type=shape.dtype)
    length = shape.shape[0]
    if length is None:
        padded = tf.concat([given, tf.zeros_like(shape)], 0)[: tf.size(shape)]
    else:
        padded = given[:length] if length <= rank_of(data) else tf.pad(given, [[0, length - rank_of(data)]])
    result = tf.reshape(data, tf.where(shape == 0, padded, shape))
    if known is not None:
        result.set_shape([dim or None for dim in known])
    return result


@lower("Transpose")
def transpose(data, *, perm=None):
    order = list(perm) if perm else list(reversed(range(rank_of(data))))
    if order == list(range(len(order))):
        return data
    data, restore = carried(data)
    return restore(undo_or_transpose(data, order))


@lower("Squeeze", static=("axes",))
def squeeze(data, axes=None):
    rank = rank_of(data)
    if axes is None:
        axes = [axis for axis, dim in enumerate(static_shape(data)) if dim == 1]
        if None in static_shape(data):
            return tf.squeeze(data)
    if is_known(axes):
        places = sorted({normal_axis(int(axis), rank) for axis in np.atleast_1d(axes)})
        if places == [0] and rank == 1:
            return data[0]  # a dim taken out of a shape; TensorFlow's shape inference sees through this form only
        return tf.squeeze(data, places) if places else data
    kept = _kept_axes(axes, rank)
    result = tf.reshape(data, tf.boolean_mask(tf.shape(data), kept))
    removed = axes.shape.num_elements()
    return result if removed is None else tf.ensure_shape(result, [None] * (rank - removed))


def _kept_axes(axes, rank):
    """A mask of length ``rank`` that is False at the axes, known only when the graph runs."""
    places = tf.reshape(axes, [-1, 1])
    places = tf.where(places < 0, places + rank, places)
    return tf.tensor_scatter_nd_update(tf.ones([rank], tf.bool), places, tf.zeros(tf.shape(places)[:1], tf.bool))


@lower("Unsqueeze", static=("axes",))
def unsqueeze(data, axes):
    if not is_known(axes):
        return _unsqueeze_by_tensor(data, axes)
    places = [int(axis) for axis in np.atleast_1d(axes)]
    if data.shape.rank == 0 and len(places) == 1:
        return _as_vector(data)
    if data.shape.rank is not None:
        places = [normal_axis(axis, rank_of(data) + len(places)) for axis in places]
    # From the front the axes count with those before them in place, from the back with those behind them.
    for place in sorted(places, key=lambda axis: (axis < 0, abs(axis))):
        data = tf.expand_dims(data, place)
    return data


def _as_vector(scalar):
    """A vector of one element, in the form in which TensorFlow builds shapes: its shape inference sees through it."""
    return tf.stack([scalar])


def _unsqueeze_by_tensor(data, axes):
    count = axes.shape.num_elements()
    if count is None:
        raise RefusedError("the number of axes to insert is not known while the graph is built")
    rank = rank_of(data) + count
    places = tf.where(_kept_axes(axes, rank))
    dims = tf.tensor_scatter_nd_update(tf.ones([rank], tf.int32), places, tf.shape(data))
    return tf.ensure_shape(tf.reshape(data, dims), [None] * rank)


@lower("Flatten")
def flatten(input, *, axis=1):
    dims = static_shape(input)
    cut = axis + len(dims) if axis < 0 else axis
    left, right = product(dims[:cut]), product(dims[cut:])
    if right:
        return tf.reshape(input, [-1 if left is None else left, right])
    if left:
        return tf.reshape(input, [left, -1 if right is None else right])
    shape = tf.shape(input)
    return tf.reshape(input, tf.stack([tf.reduce_prod(shape[:cut]), tf.reduce_prod(shape[cut:])]))


@lower("Expand", static=("shape",))
def expand(input, shape):
    data, restore = carried(input)
    if is_known(shape):
        dims = _expanded_dims(data, [int(dim) for dim in shape])
        return input if dims == static_shape(input) else restore(tf.broadcast_to(data, dims_tensor(dims)))
    result = tf.broadcast_to(data, tf.broadcast_dynamic_shape(tf.shape(data, out_type=shape.dtype), shape))
    wanted = partial_dims(shape)
    if wanted is not None:
        result.set_shape(_broadcast(static_shape(data), wanted))
    return restore(result)


def _expanded_dims(data, wanted):
    """The target of a broadcast to known dims: where the wish is 1, or the input is longer, the input's own dim stays."""
    rank = max(rank_of(data), len(wanted))
    wanted = [1] * (rank - len(wanted)) + wanted
    own = [1] * (rank - rank_of(data)) + shape_of(data)
    return [dim if wish == 1 or (isinstance(dim, int) and dim != 1) else wish for dim, wish in zip(own, wanted)]


def _broadcast(first, second):
    """The dims of a broadcast, None where they depend on the run."""
    rank = max(len(first), len(second))
    pairs = zip([1] * (rank - len(first)) + first, [1] * (rank - len(second)) + second)
    return [b if a == 1 else a if b == 1 or a is not None else None if b is None else b for a, b in pairs]


@lower("Tile", static=("repeats",))
def tile(input, repeats):
    if is_known(repeats) and all(repeat == 1 for repeat in repeats):
        return input
    data, restore = carried(input)
    return restore(through(lambda x: tf.tile(x, repeats), (tf.uint16,))(data))


@lower("Concat")
def concat(*inputs, axis):
    if len(inputs) == 1:
        return inputs[0]
    parts, restores = zip(*(carried(x) for x in inputs))
    return restores[0](tf.concat(parts, axis))


@lower("Split", static=("split",), takes=("outputs",))
def split(input, split=None, *, axis=0, num_outputs=None, outputs=1):
    axis = axis if axis >= 0 else normal_axis(axis, rank_of(input))
    data, restore = carried(input)
    if split is not None:
        sizes = [int(size) for size in split] if is_known(split) else split
    else:
        dims = tf.shape(data) if data.shape.rank is None else shape_of(data)
        sizes = outputs if num_outputs is None else _even_sizes(dims[axis], num_outputs)
    return tuple(restore(part) for part in tf.split(data, sizes, axis, num=outputs))


def _even_sizes(size, count):
    """Equal parts, the last one shorter where the size is no multiple of the count."""
    if isinstance(size, int):
        part = -(-size // count)
        return count if size % count == 0 else [max(0, min(part, size - i * part)) for i in range(count)]
    part = (size + count - 1) // count
    return tf.clip_by_value(size - part * tf.range(count, dtype=size.dtype), tf.zeros_like(part), part)


@lower("Shape")
def shape(data, *, start=0, end=None):
    wanted = slice(start, end)
    if data.shape.rank is None:
        return tf.shape(data, out_type=tf.int64)[wanted]
    dims = static_shape(data)
    if None not in dims[wanted]:
        return tf.constant(dims[wanted], tf.int64)
    found = tf.shape(data, out_type=tf.int64)
    first, last, _ = wanted.indices(len(dims))
    return found if (first, last) == (0, len(dims)) else found[first:last]


@lower("Size")
def size(data):
    return tf.size(data, out_type=tf.int64)


@lower("DepthToSpace")
def depth_to_space(input, *, blocksize, mode="DCR"):
    batch, depth, height, width = shape_of(input)
    inner = depth // blocksize**2
    if mode == "DCR":
        split_dims, perm = [batch, blocksize, blocksize, inner, height, width], [0, 3, 4, 1, 5, 2]
    else:
        split_dims, perm = [batch, inner, blocksize, blocksize, height, width], [0, 1, 4, 2, 5, 3]
    blocks = tf.transpose(tf.reshape(input, dims_tensor(split_dims)), perm)
    return tf.reshape(blocks, dims_tensor([batch, inner, height * blocksize, width * blocksize]))


@lower("SpaceToDepth")
def space_to_depth(input, *, blocksize, mode="DCR"):
    batch, depth, height, width = shape_of(input)
    rows, columns = height // blocksize, width // blocksize
    perm = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    blocks = tf.reshape(input, dims_tensor([batch, depth, rows, blocksize, columns, blocksize]))
    return tf.reshape(tf.transpose(blocks, perm), dims_tensor([batch, depth * blocksize**2, rows, columns]))
