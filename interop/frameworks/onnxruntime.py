"""ONNX Runtime: its ``OrtValue``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnxruntime import OrtValue, get_available_providers

from interop.dtypes import DTYPES
from interop.frameworks._info import Framework, Needs, Shortcut, TensorInfo, Verdict, lacks
from interop.frameworks._memory import array_at, capsule_of

NAME = "onnxruntime"
NEEDS = Needs(contiguous=True)
PLAIN = OrtValue

Array = np.ndarray[Any, Any]

_NAMES = {entry.onnx: name for name, entry in DTYPES.items() if entry.onnx is not None}
_DTYPES = frozenset(
    name for name, entry in DTYPES.items() if entry.onnx is not None and entry.kind not in ("complex", "string")
)
_NUMPY = frozenset(DTYPES[name].onnx for name in _DTYPES if not DTYPES[name].extension)
_HOST_PROVIDERS = {"CPUExecutionProvider", "AzureExecutionProvider", "XnnpackExecutionProvider"}
_HOST_ONLY = _HOST_PROVIDERS.issuperset(get_available_providers())


def owns(kind: type) -> bool:
    """The public ``OrtValue``."""
    return issubclass(kind, OrtValue)


def describe(x: Any) -> TensorInfo:
    """Dtype, shape and device; ONNX Runtime tensors are always row-major."""
    if not x.is_tensor():
        return TensorInfo(NAME, x.data_type(), (), refusal="it holds a sequence, a map, a sparse tensor or nothing")
    number = x.element_type()
    name = _NAMES.get(number, f"onnx type {number}")
    unshareable = ""
    if name in DTYPES and 0 < DTYPES[name].bits < 8:
        unshareable = f"ONNX Runtime packs several {name} in a byte"
    array = _array_behind(x)
    locked = "the NumPy array behind it is read-only" if array is not None and not array.flags.writeable else ""
    return TensorInfo(NAME, name, tuple(x.shape()), True, None, _device_of(x), locked, unshareable)


def _array_behind(x: Any) -> Array | None:
    """The array that an ``OrtValue`` made by ``ortvalue_from_numpy`` aliases.

    Only the Python object holds that array: neither ``__dlpack__`` nor ``numpy()`` does, so what they give dangles once
    the object is gone.
    """
    array = getattr(x, "_numpy_obj", None)
    return array if isinstance(array, np.ndarray) else None


def _device_of(x: Any) -> str:
    name: str = x.device_name()
    return "cpu" if name == "cpu" else f"{name}:0"


def address(x: Any) -> int:
    """Address of the first element."""
    return int(x.data_ptr())


def takes(dtype: str) -> Verdict:
    """Every ONNX type but complex and string; types below a byte are packed, so they are copied."""
    if dtype == "string":
        return Verdict("refuse", "no OrtValue of strings can be made; give the NumPy array to session.run itself")
    if dtype not in _DTYPES:
        return lacks(NAME, dtype)
    if DTYPES[dtype].bits < 8:
        return Verdict("copy", f"ONNX Runtime packs several {dtype} in a byte")
    return Verdict("view")


def reaches(device: str) -> bool:
    """CUDA, where this build has the provider."""
    return device.startswith("cuda") and "CUDAExecutionProvider" in get_available_providers()


def to_array(x: Any) -> Array:
    """An array over the memory that keeps the ``OrtValue`` alive (packed types, strings and device memory: a copy)."""
    entry = DTYPES[_NAMES[x.element_type()]]
    if entry.kind == "string" or _device_of(x) != "cpu":
        return x.numpy()  # type: ignore[no-any-return]
    shape = tuple(x.shape())
    if 0 < entry.bits < 8:
        return _unpacked(x, shape, entry.bits, entry.numpy)
    array = _array_behind(x)
    return array_at(x.data_ptr(), shape, entry.numpy, x, readonly=array is not None and not array.flags.writeable)


def _unpacked(x: Any, shape: tuple[int, ...], bits: int, dtype: np.dtype[Any]) -> Array:
    """One element a byte, as ml_dtypes has it; the first element is in the low bits."""
    packed = array_at(x.data_ptr(), (x.tensor_size_in_bytes(),), np.dtype(np.uint8), x)
    codes = (packed[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
    return codes.reshape(-1)[: math.prod(shape)].view(dtype).reshape(shape)


def _packed(array: Array, bits: int) -> Array:
    """Several elements a byte, the first in the low bits."""
    codes = array.reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    per_byte = 8 // bits
    codes = np.pad(codes, (0, -codes.size % per_byte)).reshape(-1, per_byte)
    packed: Array = np.bitwise_or.reduce(codes << np.arange(0, 8, bits, dtype=np.uint8), axis=1, dtype=np.uint8)
    return packed


def from_array(array: Array) -> Any:
    """A value over the array's memory, by ``from_dlpack``, which keeps the array (``ortvalue_from_numpy`` does not)."""
    entry = DTYPES[array.dtype.name]
    if entry.bits >= 8:
        return from_capsule(capsule_of(array))
    value = OrtValue.ortvalue_from_shape_and_type(list(array.shape), entry.onnx)
    packed = _packed(array, entry.bits)
    array_at(value.data_ptr(), packed.shape, np.dtype(np.uint8), value)[...] = packed
    return value


def to_capsule(x: Any) -> Any:
    """ONNX Runtime's own exporter; runs are synchronous, so nothing is pending."""
    return x.__dlpack__()


def _importer() -> Shortcut:
    """The function under ``OrtValue.from_dlpack``, as far as it is where it was; else that itself."""
    public: Shortcut = OrtValue.from_dlpack
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import OrtValue as Inner

        inner = Inner.from_dlpack
        made = OrtValue(inner(np.zeros(0, np.uint8).__dlpack__()))
    except (ImportError, AttributeError, TypeError):
        return public
    if vars(made) != {"_ortvalue": made._ortvalue, "_numpy_obj": None, "_session": None}:
        return lambda capsule: OrtValue(inner(capsule))
    new = OrtValue.__new__

    def take(capsule: Any) -> Any:
        """What ``OrtValue(...)`` makes; its checks of the type are a tenth of the whole crossing."""
        value = new(OrtValue)
        value._ortvalue = inner(capsule)
        value._numpy_obj = value._session = None
        return value

    return take


from_capsule = _importer()


def settle(x: Any) -> Any:
    """The value itself."""
    return x


def clone(x: Any) -> Any:
    """A copy in host memory."""
    return from_array(np.array(to_array(x), order="C"))


def shortcut(target: Framework) -> Shortcut | None:
    """By ``OrtValue.numpy`` into NumPy, by capsule elsewhere; only for values that own their memory."""
    if target.NAME == "numpy":
        return _numpy_shortcut
    if target.NAME not in ("torch", "tensorflow"):
        return None
    names = [name for name in _DTYPES if takes(name).outcome == target.takes(name).outcome == "view"]
    shared = frozenset(DTYPES[name].onnx for name in names)
    return _capsule_shortcut(shared, target.NEEDS.alignment - 1, target.from_capsule)


def _numpy_shortcut(x: Any) -> Any:
    try:
        if x._numpy_obj is None and x.element_type() in _NUMPY and (_HOST_ONLY or x.device_name() == "cpu"):
            return x.numpy()
    except (RuntimeError, AttributeError):  # not a tensor; another version's OrtValue
        pass
    return None


def _capsule_shortcut(shared: frozenset[int | None], mask: int, take: Shortcut) -> Shortcut:
    def cross(x: Any) -> Any:
        try:
            if x._numpy_obj is not None or x.element_type() not in shared:
                return None
            if not (_HOST_ONLY or x.device_name() == "cpu") or x.data_ptr() & mask:
                return None
            return take(x.__dlpack__())
        except (RuntimeError, AttributeError):  # not a tensor; another version's OrtValue
            return None

    return cross
