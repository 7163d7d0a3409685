"""CuPy: device memory only."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from interop.dtypes import DTYPES
from interop.frameworks._info import Framework, Needs, Shortcut, TensorInfo, Verdict, lacks

NAME = "cupy"
NEEDS = Needs(host=False)
PLAIN = cupy.ndarray

Array = np.ndarray[Any, Any]

_DTYPES = frozenset(name for name, entry in DTYPES.items() if not entry.extension and entry.kind != "string")


def owns(kind: type) -> bool:
    """Arrays of any subclass."""
    return issubclass(kind, cupy.ndarray)


def describe(x: Any) -> TensorInfo:
    """Dtype, shape, strides and device."""
    contiguous = bool(x.flags.c_contiguous)
    strides = None if contiguous else tuple(stride // x.itemsize for stride in x.strides)
    return TensorInfo(NAME, x.dtype.name, tuple(x.shape), contiguous, strides, f"cuda:{x.device.id}")


def address(x: Any) -> int:
    """Address of the first element."""
    return int(x.data.ptr)


def takes(dtype: str) -> Verdict:
    """NumPy's own types."""
    return Verdict("view") if dtype in _DTYPES else lacks(NAME, dtype)


def reaches(device: str) -> bool:
    """CUDA devices."""
    return device.startswith("cuda")


def to_array(x: Any) -> Array:
    """A host copy."""
    return cupy.asnumpy(x)  # type: ignore[no-any-return]


def from_array(array: Array) -> Any:
    """A device copy."""
    return cupy.asarray(array)


def to_capsule(x: Any) -> Any:
    """CuPy's own exporter, after the stream's work is done."""
    cupy.cuda.get_current_stream().synchronize()
    return x.toDlpack()


def from_capsule(capsule: Any) -> Any:
    """CuPy's own importer."""
    return cupy.fromDlpack(capsule)


def settle(x: Any) -> Any:
    """The array itself."""
    return x


def clone(x: Any) -> Any:
    """A row-major copy."""
    return x.copy(order="C")


def shortcut(target: Framework) -> Shortcut | None:
    """None: a launch on the device outweighs our checks."""
    return None
