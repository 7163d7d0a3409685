"""Objects that speak only the DLPack protocol are sources like any tensor, or are refused with the reason."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto

import interop
from interop import ConversionError, CopyRequiredError, convert, explain, framework_of
from tests.interop.runtime_models import identity_onnx
from tests.interop.tensor_matrix import CONSUMERS, address_of, bytes_of, dtype_of, payload, shape_of

TARGETS = (*CONSUMERS, "jax")


class Modern:
    """An exporter of DLPack 1.0 over a NumPy array."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class Old(Modern):
    """An exporter from before: no keywords, a legacy capsule."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


class Edited(Old):
    """A legacy capsule with some bytes changed: offset in the struct, format, value."""

    def __init__(self, array: np.ndarray[Any, Any], *edits: tuple[int, Any, int]) -> None:
        super().__init__(array)
        self.edits = edits

    def __dlpack__(self) -> Any:  # type: ignore[override]
        capsule = self.array.__dlpack__()
        start = pointer(capsule, b"dltensor")
        for offset, kind, value in self.edits:
            kind.from_address(start + offset).value = value
        return capsule


pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)

# offsets in DLTensor: data 0, device type 8, device id 12, ndim 16, code 20, bits 21, lanes 22, shape 24, strides 32, offset 40
DATA, DEVICE, CODE, BITS, LANES, STRIDES, OFFSET = 0, 8, 20, 21, 22, 32, 40
U8, U16, I32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_int32, ctypes.c_uint64


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("exporter", [Modern, Old])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool", "float16"])
def test_convert_shares_memory_of_an_unknown_exporter(exporter: Any, dtype: str, to: str) -> None:
    array = payload(dtype, 12).reshape(3, 4)
    x = exporter(array)
    result = convert(x, to, copy=False)
    assert (bytes_of(result), shape_of(result), dtype_of(result)) == (array.tobytes(), (3, 4), dtype)
    assert address_of(result) == array.ctypes.data
    assert explain(x, to).outcome == "view" and framework_of(x) == "dlpack"
    copied = convert(x, to, copy=True)
    assert bytes_of(copied) == array.tobytes() and address_of(copied) != array.ctypes.data


LAYOUTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "transposed": lambda a: a.T,
    "strided": lambda a: a[::2, ::2],
    "flipped": lambda a: a[::-1],
    "broadcast": lambda a: np.lib.stride_tricks.as_strided(a, (3, 4), (0, 4)),
    "empty": lambda a: a[:0],
    "scalar": lambda a: a[0, 0, ...],
    "row": lambda a: a[1:2],
    "misaligned": lambda a: a.reshape(-1)[1:].reshape(1, 11),
}


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_convert_takes_every_layout_as_explained(layout: str, to: str) -> None:
    array = LAYOUTS[layout](payload("float32", 12).reshape(3, 4))
    x = Modern(array)
    result, explained = convert(x, to), explain(x, to)
    assert bytes_of(result) == np.ascontiguousarray(array).tobytes() and shape_of(result) == array.shape
    if array.size:
        assert (address_of(result) == array.ctypes.data) is (explained.outcome == "view")
    if explained.outcome == "copy":
        with pytest.raises(CopyRequiredError):
            convert(x, to, copy=False)


@pytest.mark.parametrize("to", CONSUMERS)
def test_convert_takes_bfloat16_and_float8_by_their_codes(to: str) -> None:
    bits = np.arange(1, 13, dtype=np.uint16)
    result = convert(Edited(bits, (CODE, U8, 4)), to)
    assert dtype_of(result) == "bfloat16" and bytes_of(result) == bits.tobytes()
    codes = np.arange(1, 13, dtype=np.uint8)
    result = convert(Edited(codes, (CODE, U8, 10)), to)
    assert dtype_of(result) == "float8_e4m3fn" and bytes_of(result) == codes.tobytes()


def test_convert_follows_byte_offset_and_missing_strides() -> None:
    array = payload("float32", 8)
    shifted = Edited(array[:4], (OFFSET, U64, 16))
    assert bytes_of(convert(shifted, "torch")) == array[4:].tobytes()
    packed = Edited(array.reshape(2, 4), (STRIDES, U64, 0))
    assert bytes_of(convert(packed, "torch")) == array.tobytes()


def test_convert_never_hands_out_readonly_memory_as_writable() -> None:
    array = payload("float32", 16)
    array.flags.writeable = False
    x = Modern(array)
    assert explain(x, "torch").outcome == "copy"
    convert(x, "torch").fill_(0)
    view = convert(x, "numpy")
    assert view.ctypes.data == array.ctypes.data and not view.flags.writeable
    assert array.tobytes() == payload("float32", 16).tobytes()


class Broken(Modern):
    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("not today")


class NotACapsule(Modern):
    def __dlpack__(self, **_: Any) -> Any:
        return 42


class NextMajor(Modern):
    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.__dlpack__(max_version=(1, 0))
        ctypes.c_uint32.from_address(pointer(capsule, b"dltensor_versioned")).value = 2
        return capsule


BASE = np.ones(4, np.float32)
REFUSED = {
    "CUDA": (Modern(BASE, (2, 0)), "memory is on CUDA"),
    "ROCm": (Modern(BASE, (10, 0)), "memory is on ROCm"),
    "unknown device": (Modern(BASE, (77, 0)), "device type 77"),
    "lying device": (Edited(BASE, (DEVICE, I32, 2)), "another device than"),
    "lanes": (Edited(BASE, (LANES, U16, 4)), "4 lanes"),
    "opaque": (Edited(BASE, (CODE, U8, 3)), "DLPack type 3"),
    "four bits": (Edited(BASE, (CODE, U8, 0), (BITS, U8, 4)), "of 4 bits"),
    "no memory": (Edited(BASE, (DATA, U64, 0)), "no memory"),
    "raises": (Broken(BASE), "not today"),
    "no capsule": (NotACapsule(BASE), "__dlpack__ failed"),
    "next major": (NextMajor(BASE), "DLPack 2"),
}


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", REFUSED)
def test_convert_refuses_what_it_cannot_read(name: str, to: str) -> None:
    x, says = REFUSED[name]
    with pytest.raises(ConversionError, match=says):
        convert(x, to)
    assert explain(x, to).outcome == "refuse"


def test_convert_refuses_dlpack_as_a_target() -> None:
    with pytest.raises(ConversionError, match="not a framework"):
        convert(torch.ones(1), "dlpack")


def test_convert_reaches_exporters_in_nested_structures() -> None:
    result = convert({"a": [Modern(np.ones(2))], "b": "text"}, "torch")
    assert torch.equal(result["a"][0], torch.ones(2, dtype=torch.float64)) and result["b"] == "text"


@pytest.mark.parametrize("to", TARGETS)
def test_result_keeps_the_memory_and_releases_it(to: str) -> None:
    class Owned(np.ndarray):
        pass

    array = payload("float32", 1 << 16).view(Owned)
    expected, gone = array.tobytes(), weakref.ref(array)
    result = convert(Modern(array), to)
    del array
    gc.collect()
    assert gone() is not None and bytes_of(result) == expected
    del result
    gc.collect()
    assert gone() is None


def test_runtime_takes_an_unknown_exporter_and_answers_in_numpy() -> None:
    runtime = interop.load(identity_onnx(TensorProto.FLOAT, ("n",), "Neg"))
    result = runtime(Modern(np.array([1.0, 2.0], np.float32)))
    assert isinstance(result, np.ndarray) and result.tolist() == [-1, -2]
    samples = [Modern(np.array(float(i), np.float32)) for i in range(3)]
    assert [float(value) for value in runtime.map(samples, batch_size=2)] == [0, -1, -2]
