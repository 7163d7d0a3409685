"""NumPy, with ml_dtypes for the types that NumPy lacks; NumPy arrays are also how the others exchange host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from interop.dtypes import DTYPES
from interop.errors import ConversionError
from interop.extras import require
from interop.frameworks._info import Framework, Needs, Shortcut, TensorInfo, Verdict, lacks

NAME = "numpy"
NEEDS = Needs(writable=False)
PLAIN = np.ndarray

Array = np.ndarray[Any, Any]

_READONLY = "the NumPy array is read-only and the target cannot mark memory read-only"
_NO_NUMBERS = (np.flexible, np.object_, np.datetime64, np.timedelta64)
_NAMES: dict[Any, str] = {}


def owns(kind: type) -> bool:
    """Arrays of any subclass, and NumPy's numbers."""
    return issubclass(kind, np.ndarray) or (issubclass(kind, np.generic) and not issubclass(kind, _NO_NUMBERS))


def describe(x: Any) -> TensorInfo:
    """Dtype, shape, strides, and the oddities: masks, byte order, read-only memory, fields of records."""
    dtype, flags = x.dtype, x.flags
    name = _NAMES.get(dtype) or _name_of(x)
    locked = "" if flags.writeable else _READONLY
    if flags.c_contiguous and type(x) is np.ndarray and dtype.isnative:
        return TensorInfo(NAME, name, x.shape, True, None, "cpu", locked)
    unshareable, strides = _layout(x)
    return TensorInfo(NAME, name, x.shape, flags.c_contiguous, strides, "cpu", locked, unshareable, _refusal(x))


def _layout(x: Any) -> tuple[str, tuple[int, ...] | None]:
    """Why the memory cannot be shared, and the strides in elements."""
    item = x.dtype.itemsize
    if isinstance(x, np.generic):
        return "a NumPy scalar has no memory to share", None
    if not x.dtype.isnative:
        return "the array is not in native byte order", None
    if x.flags.c_contiguous or not item:
        return "", None
    if any(stride % item for stride in x.strides):
        return "the array steps by fractions of an element", None
    return "", tuple(stride // item for stride in x.strides)


def _name_of(x: Any) -> str:
    """Canonical name of an array's dtype; strings are told from other objects by looking at them."""
    dtype = x.dtype if x.dtype.isnative else x.dtype.newbyteorder("=")
    if dtype.kind in "UST" or (dtype.kind == "O" and all(isinstance(item, (str, bytes)) for item in x.flat)):
        return "string"
    if dtype.name in DTYPES and dtype.kind not in "OmM":
        return _NAMES.setdefault(dtype, dtype.name)
    return str(dtype)


def _refusal(x: Any) -> str:
    if isinstance(x, np.ma.MaskedArray):
        return "a mask does not cross; pass x.filled(value) or x.data"
    return ""


def address(x: Any) -> int:
    """Address of the first element."""
    return int(x.ctypes.data)


def takes(dtype: str) -> Verdict:
    """Everything that NumPy or ml_dtypes has; float4 and the like at a byte an element."""
    entry = DTYPES.get(dtype)
    if entry is None:
        return lacks(NAME, dtype)
    if entry.kind == "string":
        return Verdict("copy", "strings have no shared representation")
    try:
        _ = entry.numpy
    except ConversionError:
        return lacks(NAME, dtype, "view it as a type of the same width")
    return Verdict("view")


def reaches(device: str) -> bool:
    """Host memory only."""
    return False


def to_array(x: Any) -> Array:
    """The array itself, as a base-class array."""
    return np.asarray(x)


def from_array(array: Array) -> Array:
    """The array itself."""
    return array


def to_capsule(x: Any) -> Any:
    """Not reached: NumPy has host memory only."""
    raise ConversionError("NumPy arrays are in host memory")


def from_capsule(capsule: Any) -> Any:
    """Not reached: NumPy has host memory only."""
    raise ConversionError("NumPy arrays are in host memory")


def settle(x: Any) -> Array:
    """The array itself; a scalar becomes an array without dimensions."""
    return np.asarray(x) if isinstance(x, np.generic) else x


def clone(x: Any) -> Array:
    """A copy of a base-class array, in the same order of memory."""
    return np.array(x, order="K")


def shortcut(target: Framework) -> Shortcut | None:
    """By ``torch.from_numpy`` into torch; by the array's own capsule, after the checks that are missing, elsewhere."""
    if target.NAME == "torch":
        return _torch_shortcut(require("torch", "to convert").from_numpy)
    if target.NAME == "tensorflow":
        return _aligned_shortcut(target.NEEDS.alignment - 1, target.from_capsule)
    return _capsule_shortcut(target.from_capsule) if target.NAME == "onnxruntime" else None


def _torch_shortcut(take: Shortcut) -> Shortcut:
    def cross(x: Array) -> Any:
        if not x.flags.writeable or x.itemsize == 16:  # complex128 may not be aligned
            return None
        try:
            return take(x)
        except (TypeError, ValueError):  # types, byte orders and strides that torch lacks
            return None

    return cross


def _aligned_shortcut(mask: int, take: Shortcut) -> Shortcut:
    """``ctypes`` gives an address in a quarter of ``ndarray.ctypes``' time and refuses strided, read-only, empty memory."""
    address_of, cell = ctypes.addressof, cast("Callable[[Array], Any]", ctypes.c_char.from_buffer)

    def cross(x: Array) -> Any:
        try:
            return None if address_of(cell(x)) & mask else take(x.__dlpack__())
        except (TypeError, ValueError, BufferError):
            return None

    return cross


def _capsule_shortcut(take: Shortcut) -> Shortcut:
    def cross(x: Array) -> Any:
        if x.dtype.kind == "c" or not x.flags.c_contiguous:
            return None
        try:
            return take(x.__dlpack__())
        except BufferError:  # read-only, another byte order, or a type that NumPy does not export
            return None

    return cross
