"""Conversion between any two element types, by ONNX's rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from exporters.torch._values import Array, as_tensor, is_string, torch_dtype
from interop.dtypes import DType, dtype_of

__all__ = ["cast_to"]

_FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def cast_to(x: Any, to: Any, *, saturate: bool = True, round_mode: str = "up") -> Any:
    """Convert a tensor or an array of strings.

    Args:
        x: the value.
        to: the element type, as ``dtype_of`` takes it.
        saturate: for float8, whether what is out of range becomes the largest value or else infinity or NaN.
        round_mode: for float8_e8m0fnu: up, down or nearest.
    """
    entry = dtype_of(to)
    if is_string(x):
        return _from_string(x, entry)
    if entry.name == "string":
        return _to_string(x)
    if entry.name == "float4_e2m1fn":
        return _to_float4(x)
    if entry.name == "float8_e8m0fnu":
        return _to_power_of_two(x, saturate, round_mode)
    if entry.name.startswith("float8"):
        return _to_float8(x, torch_dtype(entry), saturate)
    target = torch_dtype(entry)
    if entry.bits < 8:
        return _wrapped(x, entry).to(target)
    if x.dtype.is_floating_point and x.dtype.itemsize == 1:
        x = x.float()
    if entry.kind == "uint" and x.dtype.is_floating_point:
        return x.to(torch.int64).to(target)
    return x.to(target)


def _wrapped(x: torch.Tensor, entry: DType) -> torch.Tensor:
    """Integers of fewer than 8 bits: the lower bits, with their sign."""
    whole = (x.float() if x.dtype.is_floating_point and x.dtype.itemsize == 1 else x).to(torch.int64)
    size = 1 << entry.bits
    low = whole & (size - 1)
    return torch.where(low >= size // 2, low - size, low) if entry.kind == "int" else low


def _to_float4(x: torch.Tensor) -> torch.Tensor:
    """The nearest value, ties to the even code; what is out of range becomes the largest value."""
    values = torch.from_numpy(_FLOAT4).to(x.device)
    magnitude = x.float().abs()
    middle = (values[1:] + values[:-1]) / 2
    below, reached = torch.bucketize(magnitude, middle), torch.bucketize(magnitude, middle, right=True)
    code = torch.where(below % 2 == 0, below, reached)  # a tie lies between an even and an odd code
    signed = torch.copysign(values[code.clamp(max=7)], x.float())
    return torch.where(torch.isnan(magnitude), -0.0, signed)  # there is no NaN


def _to_float8(x: torch.Tensor, dtype: torch.dtype, saturate: bool) -> torch.Tensor:
    real = x.float() if x.dtype.itemsize <= 2 or not x.dtype.is_floating_point else x
    largest = torch.finfo(dtype).max
    if saturate:
        return torch.clamp(real, -largest, largest).to(dtype)
    code = torch.abs(real).to(dtype)
    step = largest - _before(dtype)
    beyond = torch.abs(real) >= largest + step / 2
    nothing = float("inf") if dtype == torch.float8_e5m2 else float("nan")
    real = torch.where(beyond, torch.copysign(torch.full_like(real, nothing), real), real)
    return real.to(dtype) if code.numel() else code


def _before(dtype: torch.dtype) -> float:
    """The largest value but one."""
    return {torch.float8_e4m3fn: 416.0, torch.float8_e4m3fnuz: 224.0}.get(dtype, 49152.0)


def _to_power_of_two(x: torch.Tensor, saturate: bool, round_mode: str) -> torch.Tensor:
    """float8_e8m0fnu: the exponent of float32, rounded."""
    bits = x.float().view(torch.int32)
    exponent, rest = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if round_mode == "up":
        more = (rest > 0) & (exponent < 254 if saturate else exponent < 255) & ((exponent > 0) | (rest > 0x400000))
    elif round_mode == "nearest":
        more = (rest >= 0x400000) & (exponent < 254 if saturate else exponent < 255)
    else:
        more = torch.zeros_like(rest, dtype=torch.bool)
    code = exponent + more.int()
    code = torch.where(torch.isinf(x.float()), 254 if saturate else 255, code)
    return torch.where(torch.isnan(x.float()), 255, code).to(torch.uint8).view(torch.float8_e8m0fnu)


def _from_string(x: Array, entry: DType) -> Any:
    if entry.name == "string":
        return x
    texts = [item.decode() if isinstance(item, bytes) else str(item) for item in x.flat]
    if entry.kind == "float":
        array = np.array([float(text) for text in texts], np.float64).reshape(x.shape)
        return cast_to(as_tensor(array), entry)
    return as_tensor(np.array([int(float(text)) for text in texts], np.int64).reshape(x.shape)).to(torch_dtype(entry))


def _to_string(x: torch.Tensor) -> Array:
    """The shortest decimal text that reads back as the same value."""
    from exporters.torch._values import tensor_to_array

    array = tensor_to_array(x)
    return np.array([str(item) for item in array.reshape(-1)], dtype=object).reshape(array.shape)
