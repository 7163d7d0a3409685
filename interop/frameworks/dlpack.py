"""Tensors of libraries that nobody here knows, by the exchange protocol alone (``__dlpack__``, ``__dlpack_device__``).

They can be converted from, not to. Their capsules are read and held, never consumed: a capsule that dies unconsumed frees
its memory, so it serves as the owner of the arrays made over it.

Source: ``dlpack.h`` 1.3 and the Python specification of DLPack.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from interop.dtypes import DTYPES
from interop.errors import ConversionError
from interop.frameworks._info import Framework, Needs, Shortcut, TensorInfo, Verdict
from interop.frameworks._memory import DLTensor, array_at, pointer_of

NAME = "dlpack"
NEEDS = Needs()


class _Nobody:
    """No class has a shortcut."""


PLAIN = _Nobody

Array = np.ndarray[Any, Any]

_NAMES = {entry.dlpack: name for name, entry in DTYPES.items() if entry.dlpack is not None and entry.bits >= 8}
_HOST = {1, 3}
"""Device types: the CPU, and host memory that CUDA pinned."""
_DEVICES = {
    2: "CUDA",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    13: "managed CUDA",
    14: "oneAPI",
    18: "Trainium",
    21: "Ascend",
}
_READ_ONLY = 1
_ERRORS = (BufferError, TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError)
"""What exporters raise where they cannot export."""


class _Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class _Export(NamedTuple):
    """A capsule and what it says; the addresses in it are good as long as the capsule lives."""

    capsule: Any
    tensor: DLTensor
    flags: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[axis] for axis in range(self.tensor.ndim))

    @property
    def strides(self) -> tuple[int, ...] | None:
        """In elements; None where rows are packed."""
        if not self.tensor.strides:
            return None
        return tuple(self.tensor.strides[axis] for axis in range(self.tensor.ndim))

    @property
    def address(self) -> int:
        return int((self.tensor.data or 0) + self.tensor.byte_offset)


def owns(kind: type) -> bool:
    """Whatever has both methods."""
    return hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")


def describe(x: Any) -> TensorInfo:
    """What the capsule says; an object that cannot be exported is refused with its own words."""
    try:
        device = int(x.__dlpack_device__()[0])
        if device not in _HOST:
            name = _DEVICES.get(device, f"DLPack device type {device}")
            advice = "import it with the from_dlpack of a framework that uses this device, and pass that tensor"
            return TensorInfo(NAME, "unknown", (), refusal=f"its memory is on {name}; {advice}")
        export = _export(x)
    except _ERRORS as error:
        return TensorInfo(NAME, "unknown", (), refusal=f"its __dlpack__ failed: {type(error).__name__}: {error}")
    dtype, shape = export.tensor.dtype, export.shape
    name = _NAMES.get((dtype.code, dtype.bits), f"DLPack type {dtype.code} of {dtype.bits} bits")
    contiguous = export.strides is None or _is_packed(shape, export.strides)
    locked = "its exporter says that it is read-only, and the target cannot mark memory read-only"
    return TensorInfo(
        NAME,
        name,
        shape,
        contiguous,
        None if contiguous else export.strides,
        locked=locked if export.flags & _READ_ONLY else "",
        refusal=_refusal(export, name),
    )


def _export(x: Any) -> _Export:
    """Ask for a versioned capsule, which can say read-only, and take a legacy one."""
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter from before DLPack 1.0
        capsule = x.__dlpack__()
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(pointer_of(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise BufferError(f"it speaks DLPack {managed.major}.{managed.minor}, and 1.x is understood")
        return _Export(capsule, managed.tensor, int(managed.flags))
    return _Export(capsule, DLTensor.from_address(pointer_of(capsule, b"dltensor")), 0)


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _is_packed(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Row-major without gaps; dimensions of one element may have any stride, and nothing has no layout."""
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            return 0 in shape
        expected *= length
    return True


def _refusal(export: _Export, name: str) -> str:
    tensor = export.tensor
    if tensor.dtype.lanes != 1 or name not in DTYPES:
        lanes = f" in {tensor.dtype.lanes} lanes" if tensor.dtype.lanes != 1 else ""
        return f"its elements are {name}{lanes}, which is none of {', '.join(_NAMES.values())}"
    if tensor.device_type not in _HOST:
        return "its capsule is on another device than __dlpack_device__ says"
    if any(length < 0 for length in export.shape):
        return f"its capsule has the shape {export.shape}"
    if not tensor.data and 0 not in export.shape:
        return "its capsule has elements but no memory"
    return ""


def address(x: Any) -> int:
    """Address of the first element."""
    return _export(x).address


def takes(dtype: str) -> Verdict:
    """Nothing: it is a way, not a place."""
    return Verdict("refuse", "DLPack is a way between frameworks; convert to one of them")


def reaches(device: str) -> bool:
    """Nothing."""
    return False


def to_array(x: Any) -> Array:
    """An array over the memory that holds the capsule."""
    export = _export(x)
    dtype = export.tensor.dtype
    found = DTYPES[_NAMES[dtype.code, dtype.bits]].numpy
    strides = export.strides
    steps = None if strides is None else tuple(stride * found.itemsize for stride in strides)
    return array_at(export.address, export.shape, found, export.capsule, bool(export.flags & _READ_ONLY), steps)


def from_array(array: Array) -> Any:
    """Not reached: see ``takes``."""
    raise ConversionError("DLPack is a way between frameworks; convert to one of them")


def to_capsule(x: Any) -> Any:
    """Not reached: only host memory passes."""
    raise ConversionError("only host memory is taken from an unknown exporter")


def from_capsule(capsule: Any) -> Any:
    """Not reached: see ``takes``."""
    raise ConversionError("DLPack is a way between frameworks; convert to one of them")


def settle(x: Any) -> Any:
    """The object itself."""
    return x


def clone(x: Any) -> Any:
    """Not reached: see ``takes``."""
    raise ConversionError("DLPack is a way between frameworks; convert to one of them")


def shortcut(target: Framework) -> Shortcut | None:
    """None: every exporter is asked anew."""
    return None
