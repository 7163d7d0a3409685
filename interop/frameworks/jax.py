"""JAX arrays."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from interop.dtypes import DTYPES
from interop.frameworks._info import Framework, Needs, Shortcut, TensorInfo, Verdict, lacks
from interop.frameworks._memory import ALIGNMENT, Capsule, capsule_of, fresh

NAME = "jax"
NEEDS = Needs(contiguous=True, alignment=ALIGNMENT)
PLAIN = type(jax.numpy.zeros(0, "float32"))

Array = np.ndarray[Any, Any]

_WIDE = {"int64", "uint64", "float64", "complex128"}
_DTYPES = frozenset(
    name
    for name, entry in DTYPES.items()
    if entry.dlpack is not None and name != "complex32" and not name.startswith("float6_")
)


def owns(kind: type) -> bool:
    """Arrays and tracers."""
    return issubclass(kind, jax.Array | jax.core.Tracer)


def describe(x: Any) -> TensorInfo:
    """Dtype, shape and device; tracers and arrays over several devices have no memory of their own."""
    name, shape, refusal = x.dtype.name, tuple(x.shape), _refusal(x)
    if refusal:
        return TensorInfo(NAME, name, shape, refusal=refusal)
    private = f"JAX packs several {name} in a byte" if name in DTYPES and DTYPES[name].bits < 8 else ""
    if not _is_row_major(x):
        private = "JAX keeps it in memory in another order of its axes"
    return TensorInfo(NAME, name, shape, device=_device_of(x), unshareable=private)


_ROW_MAJOR: set[Any] = set()
"""The layouts seen so far that are row-major: looking one up takes a tenth of asking JAX what it means."""


def _is_row_major(x: Any) -> bool:
    """Whether the elements lie in the order of the shape; of another layout JAX's exporters make copies, aligned or not."""
    layout = getattr(x, "_pjrt_layout", None)
    if layout is not None and layout in _ROW_MAJOR:
        return True
    found = tuple(x.format.layout.major_to_minor) == tuple(range(x.ndim))
    if found and layout is not None:
        _ROW_MAJOR.add(layout)
    return found


def _refusal(x: Any) -> str:
    if isinstance(x, jax.core.Tracer):
        return "it is a tracer (jit, grad, vmap) without values; convert outside, or in jax.pure_callback"
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
        return "keys of random numbers are no numbers; pass jax.random.key_data(x)"
    if x.is_deleted():
        return "its buffer was donated or deleted"
    if len(x.devices()) != 1:
        return "it is spread over several devices; gather it first with jax.device_put(x, device)"
    return ""


def _device_of(x: Any) -> str:
    device = next(iter(x.devices()))
    if device.platform == "cpu":
        return "cpu"
    return f"{'cuda' if device.platform in ('gpu', 'cuda') else device.platform}:{device.local_hardware_id or 0}"


def address(x: Any) -> int:
    """Address of the first element."""
    return int(x.unsafe_buffer_pointer())


def takes(dtype: str) -> Verdict:
    """JAX's types; 64-bit ones only where they are switched on, since JAX would narrow them without a word."""
    if dtype not in _DTYPES:
        return lacks(NAME, dtype)
    if dtype in _WIDE and not jax.config.jax_enable_x64:
        advice = "call jax.config.update('jax_enable_x64', True) first, or cast to 32 bits"
        return Verdict("refuse", f"JAX would narrow {dtype} to 32 bits; {advice}")
    return Verdict("copy", f"JAX cannot import {dtype} memory") if DTYPES[dtype].bits < 8 else Verdict("view")


def reaches(device: str) -> bool:
    """The GPUs that JAX sees."""
    return device.startswith("cuda") and jax.default_backend() == "gpu"


def to_array(x: Any) -> Array:
    """A read-only array over the memory."""
    return np.asarray(x)


def from_array(array: Array) -> Any:
    """An array over the NumPy array's memory; a copy for types below a byte."""
    if DTYPES[array.dtype.name].bits < 8:
        return jax.numpy.array(array, copy=True)
    return _from_host(capsule_of(array))


def to_capsule(x: Any) -> Any:
    """JAX's own exporter, after the array is computed."""
    return x.block_until_ready().__dlpack__()


def _importer() -> Shortcut:
    """The function under ``jax.dlpack.from_dlpack``, as far as it is where it was; else that itself.

    The public one asks a host device for a stream and catches the C++ exception that says there is none: half of its
    time. It also narrows 64-bit types where those are switched off, which ``takes`` refuses before.
    """
    try:
        from jax._src.lib import _jax

        inner, device = _jax.dlpack_managed_tensor_to_buffer, jax.local_devices(backend="cpu")[0]
        made = inner(np.zeros(1, np.float32).__dlpack__(), device, None, None, 1)
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return _from_any_device
    return (lambda capsule: inner(capsule, device, None, None, 1)) if isinstance(made, PLAIN) else _from_any_device


def _from_any_device(capsule: Any) -> Any:
    """JAX takes objects only."""
    return jax.dlpack.from_dlpack(Capsule(capsule))


from_capsule = _from_any_device
_from_host = _importer()


def settle(x: Any) -> Any:
    """The array itself."""
    return x


def clone(x: Any) -> Any:
    """A copy."""
    return from_array(fresh(to_array(x))) if _device_of(x) == "cpu" else jax.numpy.array(x, copy=True)


def shortcut(target: Framework) -> Shortcut | None:
    """By JAX's own read-only view into NumPy, by capsule elsewhere; only where all JAX arrays are on one host device."""
    devices = jax.devices()
    if len(devices) != 1 or devices[0].platform != "cpu":
        return None
    names = [name for name in _DTYPES if DTYPES[name].bits >= 8 and target.takes(name).outcome == "view"]
    shared = frozenset(DTYPES[name].numpy for name in names)
    if target.NAME == "numpy":
        return _numpy_shortcut(shared)
    if target.NAME in ("torch", "tensorflow", "onnxruntime"):
        return _capsule_shortcut(shared, target.NEEDS.alignment - 1, target.from_capsule)
    return None


def _numpy_shortcut(shared: frozenset[Any]) -> Shortcut:
    def cross(x: Any) -> Any:
        return np.asarray(x) if x.dtype in shared and not x.is_deleted() and _is_row_major(x) else None

    return cross


def _capsule_shortcut(shared: frozenset[Any], mask: int, take: Shortcut) -> Shortcut:
    def cross(x: Any) -> Any:
        if x.dtype not in shared or x.is_deleted():
            return None
        if x.block_until_ready().unsafe_buffer_pointer() & mask or not _is_row_major(x):
            return None
        return take(x.__dlpack__())

    return cross
