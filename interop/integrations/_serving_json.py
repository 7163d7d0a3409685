"""TensorFlow Serving's REST messages: tensors as nested lists of JSON, by columns (a tensor a name) or by rows (samples).

Source: https://www.tensorflow.org/tfx/serving/api_rest and ``tensorflow_serving/util/json_tensor.cc``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from interop.dtypes import dtype_of
from interop.errors import InputError
from interop.signature import Signature, TensorSpec

__all__ = [
    "JSON_DTYPES",
    "Layout",
    "read_inputs",
    "read_metadata",
    "read_outputs",
    "write_inputs",
    "write_metadata",
    "write_outputs",
]

Array = np.ndarray[Any, Any]
Layout = Literal["columns", "rows"]
Names = Mapping[str, TensorSpec]

JSON_DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool", "string")
"""What the server takes and gives as JSON."""


def write_inputs(arrays: Mapping[str, Array], layout: Layout) -> dict[str, Any]:
    """The part of a request that holds the inputs.

    Raises:
        InputError: a dtype or an empty shape that JSON cannot carry; by rows, tensors without a common first axis.
    """
    if layout == "columns":
        return {"inputs": {name: _encode(array, name) for name, array in arrays.items()}}
    counts = {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or None in counts.values():
        raise InputError(f"by rows every input has the same first axis, got {counts}; give layout='columns'")
    columns = {name: _encode(array, name) for name, array in arrays.items()}
    return {"instances": [dict(zip(columns, row)) for row in zip(*columns.values())]}


def read_outputs(answer: Any, specs: Names) -> dict[str, Array]:
    """The outputs of an answer, in the dtypes that are expected.

    Args:
        answer: parsed JSON, by columns or by rows.
        specs: what the server's outputs are, by its names.

    Raises:
        InputError: something else than these outputs.
    """
    if not isinstance(answer, Mapping) or not {"outputs", "predictions"} & answer.keys():
        raise InputError(f"the answer has neither outputs nor predictions: {str(answer)[:200]}")
    found = answer["outputs"] if "outputs" in answer else _columns(answer["predictions"], specs)
    if len(specs) == 1 and not (isinstance(found, Mapping) and found.keys() == specs.keys()):
        found = dict.fromkeys(specs, found)  # a single output comes without its name
    return _decode_all(found, specs, "output")


def read_inputs(message: Any, signature: Signature) -> tuple[dict[str, Array], Layout]:
    """The inputs of a request, as a server reads them, and how they were laid out.

    Raises:
        InputError: no request, or not the inputs of the signature.
    """
    specs = {spec.name: spec for spec in signature.inputs}
    if not isinstance(message, Mapping) or len({"inputs", "instances"} & message.keys()) != 1:
        raise InputError(
            'a request is a JSON object with "inputs" (a tensor a name) or "instances" (a list of samples)'
        )
    layout: Layout = "columns" if "inputs" in message else "rows"
    found = message["inputs"] if layout == "columns" else _columns(message["instances"], specs)
    if len(specs) == 1 and not _is_named(found):
        found = dict.fromkeys(specs, found)
    return _decode_all(found, specs, "input"), layout


def write_outputs(arrays: Mapping[str, Array], layout: Layout) -> dict[str, Any]:
    """An answer, by rows or by columns; a single output comes without its name.

    Raises:
        InputError: an output that JSON cannot carry; by rows, one without the first axis of the others.
    """
    if layout == "columns":
        columns = {name: _encode(array, name) for name, array in arrays.items()}
        return {"outputs": next(iter(columns.values())) if len(columns) == 1 else columns}
    rows = write_inputs(arrays, "rows")["instances"]
    return {"predictions": [next(iter(row.values())) for row in rows] if len(arrays) == 1 else rows}


def _is_named(found: Any) -> bool:
    """False for a bare tensor, which as a string may be a JSON object itself."""
    return isinstance(found, Mapping) and found.keys() != {"b64"}


def _columns(rows: Any, specs: Names) -> Any:
    """Rows as one nested list a name; rows without names are those of the only one."""
    if not isinstance(rows, list):
        raise InputError(f"rows are a list, got {type(rows).__name__}")
    if not rows:
        return {name: [] for name in specs}
    if all(isinstance(row, Mapping) and row.keys() == specs.keys() for row in rows):
        return {name: [row[name] for row in rows] for name in specs}
    return rows


def _decode_all(found: Any, specs: Names, kind: str) -> dict[str, Array]:
    if not isinstance(found, Mapping) or found.keys() != specs.keys():
        given = list(found) if isinstance(found, Mapping) else f"a {type(found).__name__} without names"
        raise InputError(f"the {kind}s are {list(specs)}, got {given}")
    return {name: _decode(found[name], spec, kind) for name, spec in specs.items()}


def _encode(array: Array, name: str) -> Any:
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"{name!r} is a {type(array).__name__}, which the REST protocol cannot carry; it has tensors only"
        )
    kind = "string" if array.dtype.kind in "OSUT" else dtype_of(array.dtype).name
    if kind not in JSON_DTYPES:
        raise InputError(f"{name!r} is {kind}, which the REST protocol cannot carry; use protocol='grpc', or cast it")
    if 0 in array.shape[:-1]:
        raise InputError(
            f"{name!r} has the shape {array.shape}: nested lists lose what follows a 0; use protocol='grpc'"
        )
    if kind == "string":
        return _encode_strings(array.tolist())
    # float32 by way of float64: the same number in more digits, which the server rounds to the same float32
    return (array.astype(np.float64) if kind == "float32" else array).tolist()


def _encode_strings(value: Any) -> Any:
    if isinstance(value, list):
        return [_encode_strings(item) for item in value]
    return {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else str(value)


def _decode(value: Any, spec: TensorSpec, kind: str) -> Array:
    try:
        array = _array_of(value, spec.dtype)
    except (TypeError, ValueError, ArithmeticError) as error:  # also of base64, and of numbers too large
        raise InputError(f"{kind} {spec} cannot be read from JSON: {str(error)[:200]}") from error
    if array.size or spec.shape is None or array.ndim == len(spec.shape):
        return array
    return array.reshape(
        [dim if isinstance(dim, int) and dim > 0 and axis else 0 for axis, dim in enumerate(spec.shape)]
    )


def _array_of(value: Any, dtype: str) -> Array:
    shape = _shape(value)
    leaves = list(_leaves(value, len(shape)))
    if dtype == "string":
        strings = np.empty(len(leaves), object)
        strings[:] = [_bytes(leaf) for leaf in leaves]
        return strings.reshape(shape)
    if dtype not in JSON_DTYPES:
        raise TypeError(f"JSON carries no {dtype}")
    wanted = (bool,) if dtype == "bool" else (int, float) if dtype.startswith("float") else (int,)
    for leaf in leaves:
        if type(leaf) not in wanted:
            raise TypeError(f"{leaf!r:.60} is no {dtype}")
    if dtype == "float32":  # without numpy's own warning where a number is too large
        with np.errstate(over="raise"):
            return np.array(leaves, np.float64).astype(np.float32).reshape(shape)
    return np.array(leaves, dtype_of(dtype).numpy).reshape(shape)


def _shape(value: Any) -> tuple[int, ...]:
    sizes = []
    while isinstance(value, list):
        sizes.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(sizes)


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, list) != (depth > 0):
        raise ValueError("lists of different depth in one tensor")
    if not depth:
        yield value
        return
    sizes = {len(item) if isinstance(item, list) else -1 for item in value}
    if len(sizes) > 1:
        raise ValueError(f"lists of different lengths in one tensor: {sorted(sizes)[:5]}")
    for item in value:
        yield from _leaves(item, depth - 1)


def _bytes(leaf: Any) -> bytes:
    if isinstance(leaf, str):
        return leaf.encode()
    if isinstance(leaf, Mapping) and leaf.keys() == {"b64"} and isinstance(leaf["b64"], str):
        return base64.b64decode(leaf["b64"], validate=True)
    raise TypeError(f'{leaf!r:.60} is neither a string nor {{"b64": ...}}')


_ENUM = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF"}
_CANONICAL = {theirs: ours for ours, theirs in _ENUM.items()}


def read_metadata(answer: Any, signature: str) -> Signature:
    """A signature out of what ``GET .../metadata`` gives.

    Raises:
        InputError: there is no such signature.
        KeyError, TypeError, ValueError, AttributeError, ConversionError: no metadata, or a dtype that has no name here.
    """
    found = answer["metadata"]["signature_def"]["signature_def"]
    if signature not in found:
        raise InputError(f"no signature {signature!r}; there are {', '.join(sorted(found))}")
    inputs, outputs = (
        tuple(_read_spec(name, tensors[name]) for name in sorted(tensors))  # the server's map has no order
        for tensors in (found[signature]["inputs"], found[signature]["outputs"])
    )
    return Signature(inputs, outputs)


def write_metadata(signature: Signature, model: str, name: str) -> dict[str, Any]:
    """The inverse: what a server says about its only signature."""
    inputs, outputs = (
        {spec.name: _write_spec(spec) for spec in specs} for specs in (signature.inputs, signature.outputs)
    )
    found = {name: {"inputs": inputs, "outputs": outputs, "method_name": "tensorflow/serving/predict"}}
    spec = {"name": model, "signature_name": "", "version": "1"}
    return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": found}}}


def _read_spec(name: str, info: Any) -> TensorSpec:
    kind, shape = str(info["dtype"]), info["tensor_shape"]
    sizes = [int(dim["size"]) for dim in shape.get("dim", ())]
    dims = None if shape.get("unknown_rank") else tuple(size if size >= 0 else None for size in sizes)
    return TensorSpec(name, dtype_of(_CANONICAL.get(kind, kind.removeprefix("DT_").lower())).name, dims)


def _write_spec(spec: TensorSpec) -> dict[str, Any]:
    sizes = [dim if isinstance(dim, int) else -1 for dim in spec.shape or ()]
    shape = {"dim": [{"size": str(size), "name": ""} for size in sizes], "unknown_rank": spec.shape is None}
    return {"dtype": _ENUM.get(spec.dtype, f"DT_{spec.dtype.upper()}"), "tensor_shape": shape, "name": spec.name}
