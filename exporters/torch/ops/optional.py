"""Optionals: a value or None."""

from __future__ import annotations

import torch

from exporters.torch._table import lower


@lower("Optional")
def optional(input=None, *, type=None):
    return input


@lower("OptionalHasElement")
def optional_has_element(input=None):
    return torch.tensor(input is not None)


@lower("OptionalGetElement")
def optional_get_element(input):
    return input
