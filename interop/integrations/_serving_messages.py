"""The messages of TensorFlow Serving's Predict protocol, built at run time.

The package tensorflow-serving-api has them as generated code, but it requires the distribution ``tensorflow``, which does not
install beside ``tensorflow-cpu``. These have the same full names and field numbers, so their bytes are the same, and stand in a
descriptor pool of their own: the generated code may be imported in the same process. They need protobuf, not TensorFlow.

Source: ``tensorflow_serving/apis/{model,predict,prediction_log}.proto`` and ``tensorflow/core/framework/tensor.proto``, of which
only the fields that Predict uses are declared; a message keeps the others as unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

from interop.dtypes import dtype_of
from interop.errors import ConversionError

__all__ = [
    "ModelSpec",
    "PredictRequest",
    "PredictResponse",
    "PredictionLog",
    "TensorProto",
    "read_tensor",
    "request_of",
    "tensor_of",
]

_TENSOR = {
    "TensorShapeProto.Dim": {"size": (1, "int64"), "name": (2, "string")},
    "TensorShapeProto": {"dim": (2, "*.tensorflow.TensorShapeProto.Dim"), "unknown_rank": (3, "bool")},
    "TensorProto": {
        "dtype": (1, "int32"),  # an enum there; both are varints
        "tensor_shape": (2, ".tensorflow.TensorShapeProto"),
        "version_number": (3, "int32"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "*float"),
        "double_val": (6, "*double"),
        "int_val": (7, "*int32"),
        "string_val": (8, "*bytes"),
        "scomplex_val": (9, "*float"),
        "int64_val": (10, "*int64"),
        "bool_val": (11, "*bool"),
        "dcomplex_val": (12, "*double"),
        "half_val": (13, "*int32"),
        "uint32_val": (16, "*uint32"),
        "uint64_val": (17, "*uint64"),
        "float8_val": (18, "bytes"),
    },
}
_SERVING = {
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, ".google.protobuf.Int64Value"),
        "signature_name": (3, "string"),
        "version_label": (4, "string"),
    },
    "PredictRequest": {
        "model_spec": (1, ".tensorflow.serving.ModelSpec"),
        "inputs": (2, "map"),
        "output_filter": (3, "*string"),
    },
    "PredictResponse": {"outputs": (1, "map"), "model_spec": (2, ".tensorflow.serving.ModelSpec")},
    "PredictLog": {
        "request": (1, ".tensorflow.serving.PredictRequest"),
        "response": (2, ".tensorflow.serving.PredictResponse"),
    },
    "PredictionLog": {"predict_log": (6, ".tensorflow.serving.PredictLog")},
}
_ONE_OF = {
    "ModelSpec": ("version_choice", ("version", "version_label")),
    "PredictionLog": ("log_type", ("predict_log",)),
}

Fields = Mapping[str, tuple[int, str]]


def _file(name: str, package: str, messages: Mapping[str, Fields], *imports: str) -> Any:
    """The descriptor of a file; a dot in a message's name nests it in the one before the dot."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
    made: dict[str, Any] = {}
    for full in sorted(messages):  # the outer message comes before what is nested in it
        outer, _, inner = full.rpartition(".")
        message = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
        made[full] = message
        for field, (number, kind) in messages[full].items():
            _add_field(message, f".{package}.{full}", field, number, kind)
        _add_choice(message, full)
    return file


def _add_field(message: Any, full_name: str, field: str, number: int, kind: str) -> None:
    if kind == "map":  # from names to tensors
        entry = message.nested_type.add(name=f"{field.capitalize()}Entry")
        entry.options.map_entry = True
        _add_field(entry, "", "key", 1, "string")
        _add_field(entry, "", "value", 2, ".tensorflow.TensorProto")
        kind = f"*{full_name}.{entry.name}"
    proto = descriptor_pb2.FieldDescriptorProto
    label = proto.LABEL_REPEATED if kind.startswith("*") else proto.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    made = message.field.add(name=field, number=number, label=label)
    if kind.startswith("."):
        made.type, made.type_name = proto.TYPE_MESSAGE, kind
    else:
        made.type = proto.Type.Value(f"TYPE_{kind.upper()}")


def _add_choice(message: Any, name: str) -> None:
    if name in _ONE_OF:
        choice, fields = _ONE_OF[name]
        message.oneof_decl.add(name=choice)
        for field in message.field:
            if field.name in fields:
                field.oneof_index = 0


def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    tensor = _file("interop/tensor.proto", "tensorflow", _TENSOR)
    serving = _file("interop/serving.proto", "tensorflow.serving", _SERVING, tensor.name, wrappers_pb2.DESCRIPTOR.name)
    for file in (tensor, serving):
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"tensorflow.{name}"))


TensorProto: Any = _message("TensorProto")
ModelSpec: Any = _message("serving.ModelSpec")
PredictRequest: Any = _message("serving.PredictRequest")
PredictResponse: Any = _message("serving.PredictResponse")
PredictionLog: Any = _message("serving.PredictionLog")

_DTYPES = {
    "float32": (1, "float_val"),
    "float64": (2, "double_val"),
    "int32": (3, "int_val"),
    "uint8": (4, "int_val"),
    "int16": (5, "int_val"),
    "int8": (6, "int_val"),
    "string": (7, "string_val"),
    "complex64": (8, "scomplex_val"),
    "int64": (9, "int64_val"),
    "bool": (10, "bool_val"),
    "bfloat16": (14, "half_val"),
    "uint16": (17, "int_val"),
    "complex128": (18, "dcomplex_val"),
    "float16": (19, "half_val"),
    "uint32": (22, "uint32_val"),
    "uint64": (23, "uint64_val"),
    "float8_e5m2": (24, "float8_val"),
    "float8_e4m3fn": (25, "float8_val"),
    "float8_e4m3fnuz": (26, "float8_val"),
    "float8_e5m2fnuz": (28, "float8_val"),
    "int4": (29, "int_val"),
    "uint4": (30, "int_val"),
}
"""Canonical dtype -> TensorFlow's ``DataType`` number, and the field that holds its elements where they are not raw bytes."""

_BY_NUMBER = {number: (name, field) for name, (number, field) in _DTYPES.items()}


def tensor_of(array: Any) -> Any:
    """A tensor as a message.

    Args:
        array: a NumPy array; strings are ``str`` or ``bytes`` in an array of dtype object.

    Raises:
        ConversionError: the protocol has no such dtype.
    """
    array = np.asarray(array)
    name = dtype_of(array.dtype).name if array.dtype.kind not in "SU" else "string"
    if name not in _DTYPES:
        raise ConversionError(f"TensorFlow Serving takes no {name}; it takes {', '.join(_DTYPES)}")
    message = TensorProto(dtype=_DTYPES[name][0])
    message.tensor_shape.SetInParent()  # also a scalar has a shape
    for size in array.shape:
        message.tensor_shape.dim.add(size=size)
    if name == "string":
        message.string_val.extend(
            item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1).tolist()
        )
    else:
        message.tensor_content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return message


def read_tensor(message: Any) -> np.ndarray[Any, Any]:
    """The NumPy array of a message; strings become an array of ``bytes`` of dtype object.

    Raises:
        ConversionError: a dtype that NumPy lacks, or data that does not fill the shape.
    """
    if message.dtype not in _BY_NUMBER:
        raise ConversionError(f"a tensor of TensorFlow's type number {message.dtype} has no NumPy array here")
    name, field = _BY_NUMBER[message.dtype]
    shape = [dim.size for dim in message.tensor_shape.dim]
    dtype = dtype_of(name).numpy
    values = _raw(message, dtype) if message.tensor_content else _listed(getattr(message, field), field, dtype)
    size = int(np.prod(shape, dtype=np.int64))
    if 0 < len(values) < size and not message.tensor_content:  # the last one stands for all that follow
        values = np.concatenate([values, np.repeat(values[-1:], size - len(values))])
    if min(shape, default=0) < 0 or len(values) != size:
        raise ConversionError(f"a tensor message says the shape {shape} and holds {len(values)} elements")
    return values.reshape(shape)


def _raw(message: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.hasobject or len(message.tensor_content) % dtype.itemsize:
        raise ConversionError(f"{len(message.tensor_content)} raw bytes are no whole number of elements")
    values = np.frombuffer(message.tensor_content, dtype.newbyteorder("<"))
    return values.astype(dtype, copy=False)


def _listed(values: Any, field: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if field == "float8_val":
        return np.frombuffer(values, dtype)
    if field == "half_val":  # the bits of a 16-bit float
        return np.array(values, np.uint16).view(dtype)
    if field in ("scomplex_val", "dcomplex_val"):  # real and imaginary parts in turn
        part = np.float32 if field == "scomplex_val" else np.float64
        return np.array(values, part)[: len(values) // 2 * 2].view(dtype)
    return np.array(list(values), dtype)


def request_of(
    model: str, inputs: Mapping[str, Any], *, signature: str = "serving_default", version: int | None = None
) -> Any:
    """A ``PredictRequest``.

    Args:
        model: the name that the server knows the model by.
        inputs: ``{input name of the signature: NumPy array}``.
        signature: which signature to call.
        version: version of the model; None leaves it to the server.
    """
    request = PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    for name, array in inputs.items():
        request.inputs[name].CopyFrom(tensor_of(array))
    return request
