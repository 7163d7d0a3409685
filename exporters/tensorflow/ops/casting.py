"""Conversion and reinterpretation of element types."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._bits import from_bytes, to_bytes
from exporters.tensorflow._casts import cast_to
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, np_dtype, tf_dtype
from interop.dtypes import dtype_of


# round_mode concerns float8_e8m0fnu only, which TensorFlow lacks.
@lower("Cast")
def cast(input, *, to=None, saturate=1, round_mode="up"):
    return cast_to(input, tf_dtype(to), saturate=bool(saturate))


@lower("CastLike")
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    return cast_to(input, target_type.dtype, saturate=bool(saturate))


@lower("BitCast")
def bit_cast(input, *, to=None):
    source, target = np_dtype(input), dtype_of(to)
    if source.bits != target.bits:
        raise RefusedError(f"BitCast from {source.name} ({source.bits} bits) to {target.name} ({target.bits} bits)")
    if source.bits <= 8:
        return from_bytes(to_bytes(input), tf_dtype(target))
    return tf.bitcast(input, tf_dtype(target))
