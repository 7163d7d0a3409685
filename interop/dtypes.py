"""The one dtype table: how each element type is called by NumPy, torch, TensorFlow, ONNX and DLPack.

A dtype is known in this project by its canonical name (``"float32"``, ``"bfloat16"``, ``"float8_e4m3fn"``), which is
torch's and ml_dtypes' name for it. Nothing here imports a framework.

Sources: onnx ``TensorProto.DataType``, ``dlpack.h`` 1.3, ml_dtypes 0.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from interop.errors import ConversionError

__all__ = ["DTYPES", "DType", "dtype_of"]

Kind = Literal["bool", "int", "uint", "float", "complex", "string"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes:
        name: canonical name.
        kind: family of values.
        bits: storage bits of one element (0 for strings).
        onnx: ``onnx.TensorProto.DataType`` number, or None where ONNX lacks the type.
        dlpack: ``(type code, bits)`` of ``DLDataType`` with one lane, or None.
        torch: attribute of ``torch``, or None.
        tensorflow: what ``tf.dtypes.as_dtype`` takes, or None.
        extension: True where NumPy needs ml_dtypes for the type.
    """

    name: str
    kind: Kind
    bits: int
    onnx: int | None
    dlpack: tuple[int, int] | None
    torch: str | None
    tensorflow: str | None
    extension: bool = False

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype, from ml_dtypes where NumPy itself lacks it; ``object`` for strings."""
        if self.kind == "string":
            return np.dtype(object)
        if not self.extension:
            return np.dtype(self.name)
        import ml_dtypes

        scalar = getattr(ml_dtypes, self.name, None)
        if scalar is None:
            raise ConversionError(f"{self.name} has no NumPy type, not in ml_dtypes either; view it as bytes")
        made: np.dtype[Any] = np.dtype(scalar)
        return made

    @property
    def is_floating(self) -> bool:
        """True for real floating types of any width."""
        return self.kind == "float"


def _plain(name: str, kind: Kind, bits: int, onnx: int, code: int) -> DType:
    return DType(name, kind, bits, onnx, (code, bits), name, name)


_TABLE = (
    DType("bool", "bool", 8, 9, (6, 8), "bool", "bool"),
    _plain("int8", "int", 8, 3, 0),
    _plain("int16", "int", 16, 5, 0),
    _plain("int32", "int", 32, 6, 0),
    _plain("int64", "int", 64, 7, 0),
    _plain("uint8", "uint", 8, 2, 1),
    _plain("uint16", "uint", 16, 4, 1),
    _plain("uint32", "uint", 32, 12, 1),
    _plain("uint64", "uint", 64, 13, 1),
    _plain("float16", "float", 16, 10, 2),
    _plain("float32", "float", 32, 1, 2),
    _plain("float64", "float", 64, 11, 2),
    _plain("complex64", "complex", 64, 14, 5),
    _plain("complex128", "complex", 128, 15, 5),
    DType("bfloat16", "float", 16, 16, (4, 16), "bfloat16", "bfloat16", extension=True),
    DType("float8_e4m3fn", "float", 8, 17, (10, 8), "float8_e4m3fn", "float8_e4m3fn", extension=True),
    DType("float8_e4m3fnuz", "float", 8, 18, (11, 8), "float8_e4m3fnuz", "float8_e4m3fnuz", extension=True),
    DType("float8_e5m2", "float", 8, 19, (12, 8), "float8_e5m2", "float8_e5m2", extension=True),
    DType("float8_e5m2fnuz", "float", 8, 20, (13, 8), "float8_e5m2fnuz", "float8_e5m2fnuz", extension=True),
    DType("float8_e8m0fnu", "float", 8, 24, (14, 8), "float8_e8m0fnu", None, extension=True),
    DType("float4_e2m1fn", "float", 4, 23, (17, 4), None, "float4_e2m1fn", extension=True),
    DType("uint4", "uint", 4, 21, (1, 4), None, "uint4", extension=True),
    DType("int4", "int", 4, 22, (0, 4), None, "int4", extension=True),
    DType("uint2", "uint", 2, 25, (1, 2), None, "uint2", extension=True),
    DType("int2", "int", 2, 26, (0, 2), None, "int2", extension=True),
    DType("float6_e2m3fn", "float", 6, 27, (15, 6), None, None, extension=True),
    DType("float6_e3m2fn", "float", 6, 28, (16, 6), None, None, extension=True),
    DType("complex32", "complex", 32, None, (5, 32), "complex32", None, extension=True),
    DType("string", "string", 0, 8, None, None, "string"),
)

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _TABLE}

_BY_ONNX = {dtype.onnx: dtype for dtype in _TABLE if dtype.onnx is not None}
_ALIASES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "object": "string",
}


def dtype_of(value: Any) -> DType:
    """Find the table entry of a dtype given in any framework's form.

    Args:
        value: a ``DType``, a canonical name, an ONNX ``DataType`` number, a NumPy / ml_dtypes, torch, TensorFlow or JAX
            dtype.

    Returns:
        The entry.

    Raises:
        ConversionError: the type is not in the table (datetime, structured, quantised, ...).

    Example:
        >>> dtype_of(np.dtype("float32")).onnx
        1
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        found = _BY_ONNX.get(value)
    elif isinstance(value, str):
        found = DTYPES.get(_ALIASES.get(value, value))
    else:
        found = DTYPES.get(_name_of(value))
    if found is None:
        raise ConversionError(f"dtype {value!r} is not one of {', '.join(DTYPES)}")
    return found


def _name_of(value: Any) -> str:
    text = str(value)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    if isinstance(value, np.dtype) and value.kind in "USTO":
        return "string"
    name = getattr(value, "name", None)  # np.dtype and tf.DType
    if isinstance(name, str):
        return name
    return str(np.dtype(value)) if isinstance(value, type) else text
