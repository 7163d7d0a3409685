"""Raw memory: NumPy arrays over foreign addresses, aligned copies, and DLPack capsules under another element type."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from interop.dtypes import DTYPES

__all__ = [
    "ALIGNMENT",
    "Capsule",
    "DLTensor",
    "array_at",
    "bits_of",
    "capsule_of",
    "fresh",
    "is_extension",
    "pointer_of",
    "regular",
    "unlocked",
]

ALIGNMENT = 64
"""Bytes. TensorFlow's kernels abort the process on less; torch, TensorFlow and ONNX Runtime allocate with it."""

Array = np.ndarray[Any, Any]

_BITS: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32)}


class _Memory:
    """What NumPy's array interface reads, holding the owner of the memory for as long as the array lives."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is one of ml_dtypes' (or somebody else's), which NumPy keeps but does not export."""
    return dtype.isbuiltin == 2


def array_at(
    address: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    owner: Any,
    readonly: bool = False,
    strides: tuple[int, ...] | None = None,
) -> Array:
    """An array over memory that somebody else owns.

    Args:
        address: of the first element; may be 0 where there is none.
        shape: sizes.
        dtype: element type, one of ml_dtypes' included (whole bytes only).
        owner: kept alive by the array.
        readonly: whether NumPy refuses writes.
        strides: in bytes; None is row-major without gaps.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    carrier: np.dtype[Any] = _BITS[dtype.itemsize * 8] if is_extension(dtype) else dtype
    interface = {"version": 3, "shape": shape, "typestr": carrier.str, "data": (address, readonly), "strides": strides}
    return np.asarray(_Memory(interface, owner)).view(dtype)


def unlocked(array: Array) -> Array:
    """A writable alias of a read-only array, for frameworks without that notion; only where the plan allows sharing."""
    if array.flags.writeable:
        return array
    return array_at(array.ctypes.data, array.shape, array.dtype, array)


def regular(array: Array) -> Array:
    """The same memory under plain row-major strides.

    Dimensions of one element or none may carry any stride. Torch and NumPy's own export refuse a negative one or a fraction
    of an element; JAX takes others for another order of the axes.
    """
    if not array.flags.c_contiguous or array.strides == _row_major(array):
        return array
    return array_at(array.ctypes.data, array.shape, array.dtype, array, readonly=not array.flags.writeable)


def _row_major(array: Array) -> tuple[int, ...]:
    strides, step = [], array.itemsize
    for size in reversed(array.shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def fresh(array: Array) -> Array:
    """A copy that every framework can take: row-major, native byte order, writable, aligned."""
    dtype = array.dtype
    if dtype.hasobject or dtype.kind not in "biufcV" or dtype.names is not None:
        return array.copy()
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy


def bits_of(array: Array) -> Array:
    """The same memory as unsigned integers of the same width, which every framework knows."""
    return array.view(_BITS[array.dtype.itemsize * 8])


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    """``DLTensor`` of ``dlpack.h`` 1.3; the legacy capsule starts with it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = ctypes.c_void_p
pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


def capsule_of(array: Array) -> Any:
    """A legacy DLPack capsule of a writable array, also for element types that NumPy cannot export.

    NumPy exports the bits and the element type is put right in the capsule, so that the consumer sees, say, a bfloat16
    tensor over the array's own memory.
    """
    if not is_extension(array.dtype):
        return array.__dlpack__()
    capsule = bits_of(array).__dlpack__()
    kind = DTYPES[array.dtype.name].dlpack
    assert kind is not None  # every whole-byte extension type has a DLPack code
    tensor = DLTensor.from_address(pointer_of(capsule, b"dltensor"))
    tensor.dtype.code = kind[0]
    return capsule


class Capsule:
    """An object with the exchange methods over a legacy capsule, for consumers that take no bare capsule."""

    __slots__ = ("_capsule", "_device")

    def __init__(self, capsule: Any) -> None:
        tensor = DLTensor.from_address(pointer_of(capsule, b"dltensor"))
        self._capsule, self._device = capsule, (tensor.device_type, tensor.device_id)

    def __dlpack__(self, **_: Any) -> Any:
        """The capsule; it can be consumed once."""
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where the capsule says its memory is."""
        return self._device
