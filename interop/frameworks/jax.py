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
    packed = f"JAX packs several {name} in a byte" if name in DTYPES and DTYPES[name].bits < 8 else ""
    return TensorInfo(NAME, name, shape, device=_device_of(x), unshareable=packed)


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
    return jax.dlpack.from_dlpack(Capsule(capsule_of(array)))


def to_capsule(x: Any) -> Any:
    """JAX's own exporter, after the array is computed."""
    return x.block_until_ready().__dlpack__()


def from_capsule(capsule: Any) -> Any:
    """JAX takes objects only."""
    return jax.dlpack.from_dlpack(Capsule(capsule))


def settle(x: Any) -> Any:
    """The array itself."""
    return x


def clone(x: Any) -> Any:
    """A copy."""
    return from_array(fresh(to_array(x))) if _device_of(x) == "cpu" else jax.numpy.array(x, copy=True)


def shortcut(target: Framework) -> Shortcut | None:
    """None: JAX's own exchange takes so long that our checks do not show."""
    return None
