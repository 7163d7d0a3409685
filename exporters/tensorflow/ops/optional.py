"""Optionals: a value or none."""

from __future__ import annotations

import tensorflow as tf

from exporters.tensorflow._sequences import Optional
from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError


@lower("Optional")
def optional(input=None, *, type=None):
    return input


@lower("OptionalHasElement")
def optional_has_element(input=None):
    return input.present if isinstance(input, Optional) else tf.constant(input is not None)


@lower("OptionalGetElement")
def optional_get_element(input=None):
    if input is None:
        raise RefusedError("the optional is known to be empty")
    return input.value if isinstance(input, Optional) else input
