"""TensorFlow and Keras variables."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

from interop.dtypes import DTYPES
from interop.frameworks._info import Framework, Needs, Shortcut, TensorInfo, Verdict, lacks
from interop.frameworks._memory import ALIGNMENT, capsule_of, fresh, is_extension

NAME = "tensorflow"
NEEDS = Needs(contiguous=True, alignment=ALIGNMENT)
PLAIN = tf.__internal__.EagerTensor

Array = np.ndarray[Any, Any]

_TYPES = {name: tf.as_dtype(entry.tensorflow) for name, entry in DTYPES.items() if entry.tensorflow is not None}
_NAMES = {id(dtype): name for name, dtype in _TYPES.items()}
"""TensorFlow keeps one object a dtype, and hashing it takes longer than all of our work on a small tensor."""

_COPIED = frozenset(name for name in _TYPES if DTYPES[name].bits < 8 or (DTYPES[name].extension and name != "bfloat16"))
"""float8 and the 4-bit types: TensorFlow has them, its DLPack import and ``tf.bitcast`` do not."""

_CACHED = "TensorFlow gives out one cached buffer for equal scalar constants, so a write would change them all"

_HOST_ONLY = not tf.config.list_physical_devices("GPU")
_to_dlpack = tf.experimental.dlpack.to_dlpack


def owns(kind: type) -> bool:
    """Tensors, variables, composite tensors, and what Keras wraps around them."""
    if issubclass(kind, (tf.Tensor, tf.Variable, tf.__internal__.CompositeTensor)):
        return True
    keras = sys.modules.get("keras")
    if keras is None or not hasattr(keras, "KerasTensor") or keras.backend.backend() != "tensorflow":
        return False
    return issubclass(kind, (keras.Variable, keras.KerasTensor))


def describe(x: Any) -> TensorInfo:
    """Dtype, shape and device; only eager tensors have memory to share, and a variable's is never shared."""
    if isinstance(x, PLAIN):
        name = _NAMES.get(id(x.dtype)) or x.dtype.name
        shape = tuple(x.shape.as_list())
        return TensorInfo(NAME, name, shape, True, None, _device_of(x), "" if shape else _CACHED)
    name = tf.as_dtype(x.dtype).name if x.dtype is not None else "unknown"
    shape = _shape_of(x)
    if _is_variable(x):
        reason = "a variable's memory moves on assignment, and a write to it would change the variable"
        return TensorInfo(NAME, name, shape, unshareable=reason)
    return TensorInfo(NAME, name, shape, refusal=_refusal(x))


def _shape_of(x: Any) -> tuple[int, ...]:
    """The shape, as far as an odd value has one; unknown sizes are -1."""
    rank = tf.TensorShape(x.shape).rank
    return () if rank is None else tuple(-1 if size is None else int(size) for size in x.shape)


def _device_of(x: Any) -> str:
    """Where the memory really is (int32 tensors "on" a GPU are in host memory)."""
    device: str = x.backing_device
    if device.endswith("CPU:0"):
        return "cpu"
    kind, index = device.rsplit(":", 2)[-2:]
    return "cpu" if kind == "CPU" else f"{'cuda' if kind == 'GPU' else kind.lower()}:{index}"


def _is_variable(x: Any) -> bool:
    return isinstance(x, tf.Variable) or isinstance(getattr(x, "value", None), tf.Variable)


def _refusal(x: Any) -> str:
    if isinstance(x, tf.RaggedTensor):
        return "a ragged tensor is not dense; pass x.to_tensor() or x.flat_values and x.row_splits"
    if isinstance(x, tf.SparseTensor):
        return "a sparse tensor is not dense; pass tf.sparse.to_dense(x) or its indices and values"
    if isinstance(x, tf.IndexedSlices):
        return "indexed slices are not dense; pass tf.convert_to_tensor(x)"
    if isinstance(x, tf.__internal__.CompositeTensor):
        return f"a {type(x).__name__} is not one dense tensor; pass its components"
    return "it is symbolic (tf.function or a Keras graph) and has no values yet; convert outside, or in tf.py_function"


def address(x: Any) -> int:
    """Address of the first element of a host tensor."""
    return int(_array_over(x).ctypes.data)


def takes(dtype: str) -> Verdict:
    """Every type of TensorFlow; strings, float8 and 4-bit types by a copy."""
    if dtype not in _TYPES:
        return lacks(NAME, dtype)
    if dtype == "string":
        return Verdict("copy", "strings have no shared representation")
    if dtype in _COPIED:
        return Verdict("copy", f"TensorFlow cannot import {dtype} memory")
    return Verdict("view")


def reaches(device: str) -> bool:
    """The GPUs that TensorFlow sees."""
    return device in {f"cuda:{index}" for index, _ in enumerate(tf.config.list_logical_devices("GPU"))}


def to_array(x: Any) -> Array:
    """A read-only array over the memory (strings and device tensors: a copy)."""
    array = _array_over(settle(x))
    if array.flags.writeable:  # it is for ml_dtypes' types
        array = array.view()
        array.flags.writeable = False
    return array


def _array_over(x: Any) -> Array:
    """Scalars of ml_dtypes' types make no array; a reshape shares the buffer and does."""
    if x.shape.rank or x.dtype == tf.string:
        return np.asarray(x)
    return np.asarray(tf.reshape(x, [1])).reshape(())


def from_array(array: Array) -> Any:
    """A tensor over the array's memory, or a copy where the type cannot be imported."""
    if array.dtype.kind in "USTO":
        return tf.constant(array.astype(object))
    if not is_extension(array.dtype) or array.dtype.name == "bfloat16":
        return from_capsule(capsule_of(array))
    return tf.constant(array)


def to_capsule(x: Any) -> Any:
    """TensorFlow's own exporter; pending work is waited for."""
    if hasattr(tf.test.experimental, "sync_devices"):
        tf.test.experimental.sync_devices()
    return _to_dlpack(settle(x))


def _importer() -> Shortcut:
    """The function under ``tf.experimental.dlpack.from_dlpack``, as far as it is where it was; else that itself."""
    public: Shortcut = tf.experimental.dlpack.from_dlpack
    public(np.zeros(0, np.uint8).__dlpack__())  # starts the eager context, which the inner function takes for given
    try:
        from tensorflow.python import pywrap_tfe
        from tensorflow.python.eager import context

        inner, handle = pywrap_tfe.TFE_FromDlpackCapsule, context.context()._handle
        inner(np.zeros(0, np.uint8).__dlpack__(), handle)
    except (ImportError, AttributeError, TypeError):
        return public
    return lambda capsule: inner(capsule, handle)


from_capsule = _importer()


def settle(x: Any) -> Any:
    """The tensor itself, or a variable's present value (TensorFlow copies it when the variable is assigned to)."""
    return x if isinstance(x, PLAIN) else tf.convert_to_tensor(x)


def clone(x: Any) -> Any:
    """A copy; ``tf.identity`` would share the buffer."""
    if x.dtype == tf.string or _device_of(x) != "cpu":
        return tf.raw_ops.DeepCopy(x=x)
    return from_array(fresh(to_array(x)))


def shortcut(target: Framework) -> Shortcut | None:
    """By read-only view into NumPy; by capsule elsewhere, except for scalars and types that DLPack lacks."""
    if not (hasattr(PLAIN, "_datatype_enum") and hasattr(PLAIN, "_rank")):
        return None  # the public ``dtype`` and ``shape`` take as long as the whole crossing
    names = [name for name in _TYPES if takes(name).outcome == target.takes(name).outcome == "view"]
    shared = frozenset(_TYPES[name].as_datatype_enum for name in names)
    if target.NAME == "numpy":
        return _numpy_shortcut(shared - {tf.bfloat16.as_datatype_enum})
    return _capsule_shortcut(shared, target.from_capsule) if target.NAME in ("torch", "onnxruntime") else None


def _numpy_shortcut(shared: frozenset[int]) -> Shortcut:
    as_array = np.asarray

    def cross(x: Any) -> Any:
        return as_array(x) if x._datatype_enum() in shared and (_HOST_ONLY or _device_of(x) == "cpu") else None

    return cross


def _capsule_shortcut(shared: frozenset[int], take: Shortcut) -> Shortcut:
    def cross(x: Any) -> Any:
        if x._datatype_enum() in shared and x._rank() and (_HOST_ONLY or _device_of(x) == "cpu"):
            return take(_to_dlpack(x))
        return None

    return cross
