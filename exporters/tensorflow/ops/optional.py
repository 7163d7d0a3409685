"""Optionals: a value or none."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._sequences import Optional
from exporters.tensorflow._table import lower


@lower("Optional")
def optional(input=None, *, type=None):
    return input


@lower("OptionalHasElement")
def optional_has_element(input=None):
    return input.present if isinstance(input, Optional) else tf.constant(input is not None)


@lower("OptionalGetElement")
def optional_get_element(input):
    return input.value if isinstance(input, Optional) else input
