"""Tensors of every framework, dtype and layout, their bytes and their addresses, by means other than our own.

``build`` gives a tensor and the bytes that a right conversion of it must have; ``bytes_of`` and ``address_of`` read a tensor
through its framework's public calls or its raw memory. The payload is random bits, so that a value that went through
another type is noticed (no NaN is quieted, no subnormal flushed).
"""

from __future__ import annotations

import ctypes
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnxruntime
import tensorflow as tf
import torch

OrtValue = onnxruntime.OrtValue

INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NATIVE = (*INTEGERS, "float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
FOUR_BITS = ("int4", "uint4")
EXTENSION = ("bfloat16", *FLOAT8, "float8_e8m0fnu")

DTYPES = {
    "torch": (*NATIVE, *COMPLEX, "complex32", *EXTENSION),
    "numpy": (*NATIVE, *COMPLEX, *EXTENSION, *FOUR_BITS),
    "tensorflow": (*NATIVE, *COMPLEX, "bfloat16", *FLOAT8, *FOUR_BITS),
    "onnxruntime": (*NATIVE, *EXTENSION, *FOUR_BITS),
}

_STRIDED = ("contig", "transposed", "strided", "bcast0", "size0", "0d", "size1odd", "off_elem", "off_byte")
LAYOUTS = {
    "torch": (*_STRIDED, "reqgrad", "conj", "negbit"),
    "numpy": (*_STRIDED, "negstride", "readonly"),
    "tensorflow": ("contig", "size0", "0d"),
    "onnxruntime": ("contig", "size0", "0d"),
}
CONSUMERS = ("torch", "tensorflow", "numpy", "onnxruntime")


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name) if hasattr(np, name) or name == "bool" else np.dtype(getattr(ml_dtypes, name))


def payload(name: str, count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random bits of a dtype, at an address that is a multiple of 64."""
    dtype = numpy_dtype(name)
    raw = np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    if name == "bool":
        raw &= 1
    if name in FOUR_BITS:
        raw &= 15
    memory = np.empty(raw.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + raw.nbytes] = raw
    return memory[start : start + raw.nbytes].view(dtype)


def exists(framework: str, dtype: str, layout: str) -> bool:
    """Whether such a tensor can be made at all."""
    if layout == "conj":
        return dtype in COMPLEX
    if layout == "negbit":
        return dtype in ("float32", "float64")
    if layout == "reqgrad":
        return dtype.startswith(("float16", "float32", "float64", "bfloat", "complex64", "complex128"))
    if layout == "off_byte":
        return numpy_dtype(dtype).itemsize > 1
    return True


def build(framework: str, dtype: str, layout: str) -> tuple[Any, bytes]:
    """A tensor, and the bytes of its values in row-major order."""
    if framework == "numpy":
        array = _numpy(dtype, layout)
        return array, np.ascontiguousarray(array).tobytes()
    if framework == "torch":
        return _torch(dtype, layout)
    shape = {"contig": (3, 4), "size0": (0, 4), "0d": ()}[layout]
    array = payload(dtype, int(np.prod(shape))).reshape(shape)
    if framework == "tensorflow":
        return tf.constant(array), array.tobytes()
    return _ort(array, dtype), array.tobytes()


def _numpy(dtype: str, layout: str) -> np.ndarray[Any, Any]:
    base = payload(dtype, 72)
    item = base.dtype.itemsize
    if layout == "off_byte":
        array = payload("uint8", 12 * item + 1)[1:].view(base.dtype).reshape(3, 4)
        if dtype == "bool":
            array.view(np.uint8)[...] &= 1
        return array
    table = {
        "contig": lambda: base[:12].reshape(3, 4),
        "transposed": lambda: base[:12].reshape(4, 3).T,
        "strided": lambda: base.reshape(6, 12)[::2, ::3],
        "negstride": lambda: base[:12].reshape(3, 4)[::-1, ::-1],
        "bcast0": lambda: strided(base, (3, 4), (0, item)),
        "size0": lambda: base[:0].reshape(0, 4),
        "0d": lambda: base[:1].reshape(()),
        "size1odd": lambda: strided(base, (1, 4), (997 * item, item)),
        "off_elem": lambda: base[1:13].reshape(3, 4),
        "readonly": lambda: base[:12].reshape(3, 4),
    }
    array = table[layout]()
    if layout == "readonly":
        array.flags.writeable = False
    return array


def strided(array: np.ndarray[Any, Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """``as_strided`` for every dtype (NumPy's own knows only its own types)."""
    bits = array.view(f"V{array.dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(bits, shape, strides).view(array.dtype)


def torch_over(array: np.ndarray[Any, Any], dtype: str) -> torch.Tensor:
    """torch over NumPy memory, by the bit views of the field notes."""
    if hasattr(np, dtype) or dtype == "bool":
        return torch.from_numpy(array)
    bits = {1: np.uint8, 2: np.uint16, 4: np.uint32}[array.dtype.itemsize]
    return torch.from_numpy(array.view(bits)).view(getattr(torch, dtype))


def _torch(dtype: str, layout: str) -> tuple[torch.Tensor, bytes]:
    if layout in _STRIDED:
        array = _numpy(dtype, layout)
        return torch_over(array, dtype), np.ascontiguousarray(array).tobytes()
    if layout == "reqgrad":
        array = _numpy(dtype, "contig")
        return torch_over(array, dtype).requires_grad_(), array.tobytes()
    values = np.random.default_rng(1).standard_normal((3, 4, 2))
    if layout == "conj":
        array = (values[..., 0] + 1j * values[..., 1]).astype(dtype)
        return torch.from_numpy(array).conj(), np.conj(array).tobytes()
    array = (values[..., 0] + 1j * values[..., 1]).astype({"float32": "complex64", "float64": "complex128"}[dtype])
    return torch.from_numpy(array).conj().imag, np.ascontiguousarray(-array.imag).tobytes()


def _ort(array: np.ndarray[Any, Any], dtype: str) -> Any:
    """An OrtValue that owns its memory, filled by its address."""
    number = ORT_TYPES[dtype]
    value = OrtValue.ortvalue_from_shape_and_type(list(array.shape), number)
    data = array.tobytes()
    if dtype in FOUR_BITS:
        codes = list(data)
        codes += [0] * (len(codes) % 2)
        data = bytes(low | high << 4 for low, high in zip(codes[::2], codes[1::2]))
    assert len(data) == value.tensor_size_in_bytes()
    ctypes.memmove(value.data_ptr(), data, len(data))
    return value


ORT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18,
    "float8_e5m2": 19, "float8_e5m2fnuz": 20, "uint4": 21, "int4": 22, "float8_e8m0fnu": 24,
}  # fmt: skip
"""``onnx.TensorProto.DataType``."""


def bytes_of(x: Any) -> bytes:
    """The values of a tensor in row-major order, one byte for a 4-bit element."""
    if isinstance(x, torch.Tensor):
        return _bytes_of_torch(x.detach())
    if isinstance(x, OrtValue):
        data = ctypes.string_at(x.data_ptr(), x.tensor_size_in_bytes()) if x.tensor_size_in_bytes() else b""
        if x.element_type() not in (21, 22):
            return data
        return bytes([code for byte in data for code in (byte & 15, byte >> 4)][: int(np.prod(x.shape()))])
    data = np.ascontiguousarray(host_array(x)).tobytes()
    return bytes(code & 15 for code in data) if dtype_of(x) in FOUR_BITS else data


def _bytes_of_torch(x: torch.Tensor) -> bytes:
    """Through NumPy's copy: torch's own cannot read a complex128 that is not aligned."""
    if x.is_conj():
        return np.ascontiguousarray(np.conj(x.conj().numpy())).tobytes()
    x = x.resolve_neg()
    if str(x.dtype).removeprefix("torch.") in (*EXTENSION, "complex32"):
        x = x.view({1: torch.uint8, 2: torch.uint16, 4: torch.int32}[x.element_size()])
    return np.ascontiguousarray(x.numpy()).tobytes()


def host_array(x: Any) -> np.ndarray[Any, Any]:
    """NumPy over a TensorFlow or JAX tensor (TensorFlow gives no array for scalars of ml_dtypes' types)."""
    if isinstance(x, tf.Tensor) and x.shape.rank == 0:
        return np.asarray(tf.reshape(x, [1])).reshape(())
    return np.asarray(x)


def address_of(x: Any) -> int:
    """Where a host tensor's first element is."""
    if isinstance(x, (torch.Tensor, OrtValue)):
        return x.data_ptr()
    if isinstance(x, jax.Array):
        return x.unsafe_buffer_pointer()
    return host_array(x).ctypes.data


def dtype_of(x: Any) -> str:
    """Canonical dtype name, from the framework's own words."""
    if isinstance(x, OrtValue):
        return {number: name for name, number in ORT_TYPES.items()}[x.element_type()]
    return str(x.dtype.name if hasattr(x.dtype, "name") else x.dtype).removeprefix("torch.")


def shape_of(x: Any) -> tuple[int, ...]:
    return tuple(x.shape() if isinstance(x, OrtValue) else x.shape)
