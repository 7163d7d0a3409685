"""Decoding of image files."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError

_BYTES = np.array([bytes([value]) for value in range(256)], dtype=object)
_CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}


# One byte of a Portable Any Map's header: white space, or a comment up to the end of its line.
_GAP = r"(?:\s|#[^\n]*\n)+"
_PORTABLE = rf"^P([56]){_GAP}(\d+){_GAP}(\d+){_GAP}(\d+)\s"


@lower("ImageDecoder")
def image_decoder(encoded_stream, *, pixel_format="RGB"):
    """JPEG, PNG, BMP, WebP and GIF by TensorFlow, binary PGM and PPM by hand; JPEG 2000 and TIFF fail when the model runs."""
    if pixel_format not in _CHANNELS:
        raise RefusedError(f"pixel_format {pixel_format!r} is none of {', '.join(_CHANNELS)}")
    image = _decoded(_joined(encoded_stream))
    if pixel_format == "Grayscale":
        return _luma(image)
    return tf.reverse(image, [-1]) if pixel_format == "BGR" else image


def _joined(stream):
    """The bytes as one string."""
    return tf.strings.reduce_join(tf.gather(tf.constant(_BYTES), tf.cast(stream, tf.int32)))


def _decoded(contents):
    """``[height, width, 3]`` uint8."""
    is_portable = tf.strings.regex_full_match(tf.strings.substr(contents, 0, 3), r"P[56]\s")
    # The JPEG decoder rounds as libjpeg-turbo does by default, which ONNX asks for; decode_image takes a faster way.
    image = tf.case(
        [
            (tf.io.is_jpeg(contents), lambda: tf.io.decode_jpeg(contents, 3, dct_method="INTEGER_ACCURATE")),
            (is_portable, lambda: _portable(contents)),
        ],
        lambda: tf.io.decode_image(contents, 3, expand_animations=False),
    )
    return tf.ensure_shape(image, [None, None, 3])


def _portable(contents):
    """A binary Portable Gray Map (P5) or Pixel Map (P6) of 8 bits."""
    width, height, top = (_header_number(contents, group) for group in (2, 3, 4))
    with tf.control_dependencies([tf.debugging.assert_less(top, 256, "a Portable Any Map of more than 8 bits")]):
        pixels = tf.io.decode_raw(tf.strings.regex_replace(contents, _PORTABLE, ""), tf.uint8)
    image = tf.reshape(pixels, tf.stack([height, width, -1]))
    return tf.broadcast_to(image, tf.stack([height, width, 3]))


def _header_number(contents, group):
    # \\C is any byte; a dot would be any UTF-8 character, which pixels are not.
    text = tf.strings.regex_replace(contents, _PORTABLE + r"\C*$", rf"\{group}")
    return tf.strings.to_number(text, tf.int32)


def _luma(image):
    """ITU-R 601 in fixed point of 16 bits, ``[height, width, 1]``."""
    weights = tf.constant([19595, 38470, 7471], tf.int32)
    total = tf.reduce_sum(tf.cast(image, tf.int32) * weights, -1, keepdims=True)
    return tf.cast(tf.bitwise.right_shift(total + 0x8000, 16), tf.uint8)
