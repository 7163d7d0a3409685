"""Values of the lowered graph: tensors, and host arrays for what is known, or calculated from shapes, before the tensors.

A host array is a NumPy array: of numbers, of strings (which torch has no tensors for), or of Python objects where a dim is
symbolic (``torch.SymInt``) while torch.export traces the graph. Shape arithmetic on the host keeps dims symbolic, where a
tensor would forget what they are.

torch has no 4-bit and 2-bit types. Their values travel in the next wider type: int8, uint8, float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from exporters._graph.operator_table import RefusedError
from interop.dtypes import DType, dtype_of

__all__ = [
    "HALVES",
    "Array",
    "RefusedError",
    "array_to_tensor",
    "as_tensor",
    "host",
    "is_string",
    "known_true",
    "number",
    "numbers",
    "tensor_to_array",
    "through_float32",
    "through_int64",
    "torch_dtype",
]

Array = np.ndarray[Any, Any]

HALVES = (torch.float16, torch.bfloat16)

_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)

_CARRIERS = {
    "int4": torch.int8,
    "int2": torch.int8,
    "uint4": torch.uint8,
    "uint2": torch.uint8,
    "float4_e2m1fn": torch.float32,
    "float6_e2m3fn": torch.float32,
    "float6_e3m2fn": torch.float32,
}

_BITS = {8: torch.uint8, 16: torch.int16, 32: torch.int32}


def torch_dtype(dtype: Any) -> torch.dtype:
    """The dtype that carries an element type, given as ``dtype_of`` takes it."""
    entry = dtype_of(dtype)
    if entry.name in _CARRIERS:
        return _CARRIERS[entry.name]
    found = getattr(torch, entry.torch, None) if entry.torch else None
    if not isinstance(found, torch.dtype):
        raise RefusedError(f"torch has no type {entry.name}")
    return found


def host(values: Any, dtype: str = "int64") -> Array:
    """A host array of literal values."""
    return np.array(values, dtype_of(dtype).numpy)


def is_string(value: Any) -> bool:
    """Whether a value is a host array of strings."""
    return isinstance(value, np.ndarray) and (
        value.dtype.kind in "US"
        or (value.dtype == object and value.size > 0 and isinstance(value.flat[0], (str, bytes)))
    )


def as_tensor(value: Any, like: Any = None, dtype: str | None = None) -> Any:
    """A host array as a tensor; tensors, strings, sequences and None stay.

    Args:
        value: the value.
        like: a tensor whose device to use.
        dtype: canonical name of the element type, for arrays of symbolic numbers, which do not know it.
    """
    if not isinstance(value, (np.ndarray, np.generic)) or is_string(value):
        return value
    device = like.device if isinstance(like, torch.Tensor) else None
    array = np.asarray(value)
    if array.dtype == object:
        return _symbolic_tensor(array, torch.int64 if dtype is None else torch_dtype(dtype), device)
    return array_to_tensor(array).to(device)


def _symbolic_tensor(array: Array, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if all(isinstance(item, (int, float, np.number)) for item in array.flat):
        return torch.tensor(array.tolist(), dtype=dtype, device=device)
    items = [torch.scalar_tensor(item, dtype=dtype, device=device) for item in array.flat]
    return torch.stack(items).reshape(array.shape) if items else torch.empty(array.shape, dtype=dtype, device=device)


def array_to_tensor(array: Array) -> torch.Tensor:
    """A tensor of the same values, in the type that carries them; it shares no memory with the array."""
    entry = dtype_of(array.dtype)
    if entry.name in _CARRIERS:
        carrier = _CARRIERS[entry.name]
        return torch.tensor(array.astype(str(carrier).removeprefix("torch.")))
    if entry.extension:
        bits = torch.from_numpy(
            np.ascontiguousarray(array).view(f"i{entry.bits // 8}" if entry.bits > 8 else "u1").copy()
        )
        return bits.view(torch_dtype(entry)).reshape(array.shape)
    return torch.from_numpy(np.array(array, order="C"))


def tensor_to_array(tensor: torch.Tensor, dtype: DType | None = None) -> Array:
    """The array of a tensor; of the element type that the tensor carries, where that is given."""
    tensor = tensor.detach().cpu().resolve_conj()
    entry = dtype_of(tensor.dtype)
    if entry.extension:
        bits = tensor.contiguous().view(_BITS[entry.bits])
        array: Array = bits.numpy().view(entry.numpy).reshape(tuple(tensor.shape))
    else:
        array = tensor.numpy()
    return array if dtype is None or dtype is entry else array.astype(dtype.numpy)


def numbers(value: Any) -> list[Any]:
    """A static input as a flat list of Python numbers, some of them symbolic."""
    if isinstance(value, torch.Tensor):
        if 0 in value.shape:  # torch.export leaves a node for it that a file cannot hold
            return []
        return list(value.reshape(-1).tolist())
    if isinstance(value, np.ndarray):
        return list(value.reshape(-1).tolist())
    return list(value) if isinstance(value, Sequence) else [value]


def number(value: Any) -> Any:
    """A static input of one element as a Python number."""
    found = numbers(value)
    if len(found) != 1:
        raise RefusedError(f"one number is expected, got {len(found)}")
    return found[0]


def known_true(condition: Any) -> bool:
    """Whether a comparison of sizes holds; False where that depends on a symbol, which stays free."""
    return condition if isinstance(condition, bool) else bool(statically_known_true(condition))


def through_int64(function: Callable[..., Any], *tensors: Any) -> Any:
    """Call a function that torch has not for uint16, uint32 and uint64; integers wrap around as they should."""
    dtype = tensors[0].dtype
    if dtype not in _UNSIGNED:
        return function(*tensors)
    result = function(*(tensor.to(torch.int64) if tensor.dtype in _UNSIGNED else tensor for tensor in tensors))
    return result.to(dtype) if result.dtype == torch.int64 else result


def through_float32(function: Callable[..., Any], *tensors: Any) -> Any:
    """Call a function with half floats as float32, and give its result their type again."""
    dtype = tensors[0].dtype
    if dtype not in HALVES:
        return function(*tensors)
    return function(
        *(tensor.float() if tensor is not None and tensor.dtype in HALVES else tensor for tensor in tensors)
    ).to(dtype)
