"""Conversion and reinterpretation of element types."""

from __future__ import annotations

import torch

from exporters.torch._casts import cast_to
from exporters.torch._table import lower
from exporters.torch._values import RefusedError, is_string, torch_dtype
from interop.dtypes import dtype_of


@lower("Cast")
def cast(input, *, to=None, saturate=1, round_mode="up"):
    return cast_to(input, to, saturate=bool(saturate), round_mode=round_mode)


@lower("CastLike")
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    to = "string" if is_string(target_type) else target_type.dtype
    return cast_to(input, to, saturate=bool(saturate), round_mode=round_mode)


@lower("BitCast")
def bit_cast(input, *, to=None):
    target = dtype_of(to)
    if target.bits < 8:
        raise RefusedError(f"BitCast to {target.name}, whose bits torch cannot hold")
    bits = input.to(torch.uint8) if input.dtype == torch.bool else input
    return bits.to(torch.bool) if target.name == "bool" else bits.view(torch_dtype(target))
