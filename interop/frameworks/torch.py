"""PyTorch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack
from torch.utils.dlpack import to_dlpack as to_dlpack

from interop.dtypes import DTYPES
from interop.frameworks._info import Framework, Needs, Shortcut, TensorInfo, Verdict, lacks
from interop.frameworks._memory import bits_of, fresh, is_extension

NAME = "torch"
NEEDS = Needs(forward=True, natural=frozenset({"complex128"}))
"""torch's kernels load a complex128 with an aligned instruction: one at a multiple of 8 ends the process, even in clone()."""
PLAIN = torch.Tensor

Array = np.ndarray[Any, Any]

_NAMES: dict[torch.dtype, str] = {
    getattr(torch, entry.torch): name
    for name, entry in DTYPES.items()
    if entry.torch is not None and hasattr(torch, entry.torch)
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_BITS = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}


def owns(kind: type) -> bool:
    """Tensors of any subclass."""
    return issubclass(kind, torch.Tensor)


def describe(x: Any) -> TensorInfo:
    """Dtype, shape, strides, device; lazy bits make a tensor unshareable, a lack of memory refuses it."""
    name = _NAMES.get(x.dtype) or str(x.dtype)  # torch.int4 and its like are not the table's: they have no values yet
    refusal = _refusal(x)
    if refusal:
        return TensorInfo(NAME, name, _shape_of(x), refusal=refusal)
    device = "cpu" if x.is_cpu else str(x.device)
    unshareable = ""
    if x.is_conj():
        unshareable = "its conjugation is pending"
    elif x.is_neg():
        unshareable = "its negation is pending"
    if x.is_contiguous():
        return TensorInfo(NAME, name, tuple(x.shape), True, None, device, "", unshareable)
    return TensorInfo(NAME, name, tuple(x.shape), False, tuple(x.stride()), device, "", unshareable)


def _shape_of(x: Any) -> tuple[int, ...]:
    """The shape, as far as an odd tensor has one."""
    try:
        return tuple(x.shape)
    except RuntimeError:  # nested tensors
        return ()


def _refusal(x: Any) -> str:
    """Why a tensor has no dense memory of its own."""
    if x.layout is not torch.strided:
        return f"a {str(x.layout).removeprefix('torch.')} tensor is not dense; pass x.to_dense() or its parts"
    if x.is_nested:
        return "a nested tensor is not dense; pass torch.nested.to_padded_tensor(x, value) or x.unbind()"
    if x.is_quantized:
        return "a quantized tensor needs its scale; pass x.dequantize() or x.int_repr()"
    if x.is_meta or _is_fake(x):
        return "it has a shape but no values (meta or fake tensor); pass a real tensor"
    try:
        address = x.data_ptr()
    except RuntimeError:
        return "it is a tracer of torch.func (vmap, grad, ...) without memory; convert outside the transform"
    if address == 0 and x.numel():
        return "it has no memory of its own (a zero tensor of autograd, or a wrapper); pass x + 0 or the inner tensor"
    return ""


def _is_fake(x: Any) -> bool:
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(x, fake.FakeTensor)


def address(x: Any) -> int:
    """Address of the first element."""
    return int(x.data_ptr())


def takes(dtype: str) -> Verdict:
    """Every type of torch."""
    return Verdict("view") if dtype in _DTYPES else lacks(NAME, dtype)


def reaches(device: str) -> bool:
    """The accelerators that this build of torch sees."""
    return device.startswith("cuda") and torch.cuda.is_available()


def to_array(x: Any) -> Array:
    """A writable array over the memory; bfloat16 and float8 as ml_dtypes."""
    values = x.detach()
    if not values.is_cpu:
        values = values.cpu()
    if values.is_conj():  # resolved by NumPy, which can read memory that is not aligned
        return np.conj(to_array(values.conj()))
    values = values.resolve_neg()
    entry = DTYPES[_NAMES[values.dtype]]
    if entry.extension:
        return values.view(_BITS[entry.bits]).numpy().view(entry.numpy)  # type: ignore[no-any-return]
    return values.numpy()  # type: ignore[no-any-return]


def from_array(array: Array) -> Any:
    """A tensor over the array's memory."""
    if not is_extension(array.dtype):
        return torch.from_numpy(array)
    return torch.from_numpy(bits_of(array)).view(_DTYPES[array.dtype.name])


def to_capsule(x: Any) -> Any:
    """Waits for the tensor's stream: consumers differ in whose stream they use, so correct comes before overlapped."""
    values = x.detach().resolve_conj().resolve_neg()
    if values.is_cuda:
        torch.cuda.current_stream(values.device).synchronize()
    return to_dlpack(values)


from_capsule = getattr(torch._C, "_from_dlpack", from_dlpack)
"""torch's importer of bare capsules; the public one first looks for an object's protocol, half of its time."""


def settle(x: Any) -> Any:
    """The tensor itself, graph included."""
    return x


def clone(x: Any) -> Any:
    """A row-major copy, still in the graph."""
    if x.dtype is torch.complex128 and x.is_cpu and x.data_ptr() % 16:
        return from_array(fresh(to_array(x)))  # torch cannot read it
    return x.clone(memory_format=torch.contiguous_format)


def shortcut(target: Framework) -> Shortcut | None:
    """By ``Tensor.numpy`` into NumPy, which checks all that matters; by checked capsule elsewhere."""
    if target.NAME == "numpy":
        return _to_numpy
    if target.NAME not in ("tensorflow", "onnxruntime"):
        return None
    shared = {name: dtype for name, dtype in _DTYPES.items() if target.takes(name).outcome == "view"}
    real = frozenset(dtype for name, dtype in shared.items() if DTYPES[name].kind != "complex")
    return _capsule_shortcut(real, target.NEEDS.alignment - 1, target.from_capsule)


def _to_numpy(x: Any) -> Any:
    try:
        return x.numpy()
    except (RuntimeError, TypeError):  # gradients, lazy bits, other devices and layouts, types that NumPy lacks
        return None


def _capsule_shortcut(real: frozenset[torch.dtype], mask: int, take: Shortcut) -> Shortcut:
    """``to_dlpack`` is nine times quicker than ``Tensor.__dlpack__`` because it checks nothing: that is done here."""

    def cross(x: Any) -> Any:
        try:
            address = x.data_ptr()
            if not address or address & mask or x.dtype not in real or not x.is_contiguous():
                return None
            return None if x.requires_grad or x.is_neg() else take(to_dlpack(x))
        except RuntimeError:  # no dense memory of its own: the full description says why
            return None

    if not torch.accelerator.is_available():
        return cross
    return lambda x: cross(x) if x.is_cpu else None
