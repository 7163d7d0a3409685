"""Matrix products and determinants."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._rows import multiply_rows
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, static_shape, through

_NO_PRODUCT = (tf.int8, tf.int16, tf.uint8, tf.uint16, tf.uint32, tf.uint64)


@lower("MatMul")
def mat_mul(A, B):
    return through(_mat_mul, _NO_PRODUCT)(A, B)


def _mat_mul(a, b):
    rank_a, rank_b = a.shape.rank, b.shape.rank  # one that is not known counts as a matrix: TensorFlow checks it
    if rank_a == 1 and rank_b == 1:
        return tf.reduce_sum(a * b)
    if rank_a == 1:
        return tf.squeeze(tf.matmul(a[tf.newaxis], b), -2)
    if rank_b == 1:
        return tf.linalg.matvec(a, b)
    if rank_a is not None and rank_a > 2 and rank_b == 2 and a.shape[-1] and b.shape[-1]:
        return multiply_rows(a, b)
    return tf.matmul(a, b)


@lower("Gemm")
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    def product(a, b):
        return tf.matmul(a, b, transpose_a=bool(transA), transpose_b=bool(transB))

    result = _scaled(through(product, _NO_PRODUCT)(A, B), alpha)
    if C is None or beta == 0:
        return result
    return _add_bias(result, _scaled(C, beta))


def _add_bias(result, bias):
    """The sum, as BiasAdd where it is one: TensorFlow fuses that into the product.

    It fuses an addition of shape [1, n] too, but then fails when the product transposes its first matrix.
    """
    columns = static_shape(result)[-1]
    if columns is not None and bias.dtype.is_floating and static_shape(bias) in ([columns], [1, columns]):
        return tf.nn.bias_add(result, bias if rank_of(bias) == 1 else tf.reshape(bias, [columns]))
    return result + bias


def _scaled(x, factor):
    if factor == 1:
        return x
    if x.dtype.is_floating:
        return x * tf.constant(factor, x.dtype)
    return tf.cast(tf.cast(x, tf.float64) * factor, x.dtype)


@lower("Einsum")
def einsum(*Inputs, equation):
    equation = equation.replace(" ", "")
    return through(lambda *tensors: tf.einsum(equation, *tensors), _NO_PRODUCT)(*Inputs)


@lower("Det")
def det(X):
    return through(tf.linalg.det, (tf.float16, tf.bfloat16))(X)


@lower("AffineGrid", static=("size",))
def affine_grid(theta, size, *, align_corners=0):
    rank = rank_of(theta)
    spatial = static_shape(theta)[1] or (None if size.shape[0] is None else size.shape[0] - 2)
    if rank != 3 or spatial is None:
        raise RefusedError("the number of spatial axes is not known while the graph is built")
    dims = [size[i + 2] for i in range(spatial)]
    axes = [_centres(dim, bool(align_corners), theta.dtype) for dim in dims]
    # The coordinates of a point run from the last axis to the first: x, y, z, 1.
    places = tf.meshgrid(*axes, indexing="ij")[::-1]
    points = tf.stack([tf.reshape(place, [-1]) for place in (*places, tf.ones_like(places[0]))], axis=-1)
    grid = tf.matmul(points[tf.newaxis], theta, transpose_b=True)
    return tf.reshape(grid, tf.stack([-1, *(tf.cast(dim, tf.int32) for dim in dims), spatial]))


def _centres(size, align_corners, dtype):
    """The places of the elements along one axis, which reaches from -1 to 1."""
    steps, count = tf.range(tf.cast(size, tf.int64)), tf.cast(size, tf.int64)
    wide = dtype if dtype == tf.float64 else tf.float32
    if not align_corners:
        return tf.cast(tf.cast(2 * steps + 1 - count, wide) / tf.cast(count, wide), dtype)
    places = tf.cast(2 * steps + 1 - count, wide) / tf.cast(tf.maximum(count - 1, 1), wide)
    return tf.cast(places, dtype)  # a single element lies at 0
