"""One case through the exporter: convert, save, reload, run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from exporters.tensorflow._convert import lower_model
from exporters.tensorflow._module import LoweredModule
from exporters.tensorflow._savedmodel import write_savedmodel
from interop.dtypes import dtype_of
from tests.node_suite.cases import Case, judge


def run_case(case: Case, *, saved: bool = True) -> None:
    """Raise unless the case passes; ``saved=False`` runs the live module, which is quicker while developing."""
    tf.random.set_seed(0)  # a case that draws random numbers fails, or passes, the same way in every run
    module = lower_model(ir.from_proto(case.model))
    if not saved:
        _check(case, module, module.serving_signature())
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        write_savedmodel(module, path)
        loaded = tf.saved_model.load(str(path))
        _check(case, module, loaded.signatures["serving_default"])


def _check(case: Case, module: LoweredModule, function: Any) -> None:
    names = module.interop_metadata["names"]["inputs"]
    signature = module.interop_metadata["signature"]
    for inputs, expected in case.data():
        feeds = {}
        for spec, x in zip(signature["inputs"], inputs):
            feeds |= {names[name]: tf.constant(array) for name, array in _parts(spec, x).items()}
        results = function(**feeds)
        for wanted, spec in zip(expected, signature["outputs"], strict=True):
            _judge(case, wanted, _value(spec, results))


def _judge(case: Case, expected: Any, output: Any) -> None:
    """Compare one output; onnx's runner itself trips over a scalar inside a sequence."""
    if isinstance(expected, list):
        assert isinstance(output, list), f"a sequence was expected, got {type(output).__name__}"
        assert len(output) == len(expected), f"{len(expected)} tensors were expected, got {len(output)}"
    judge(case, *(value if isinstance(value, list) else [value] for value in (expected, output)))


def _parts(spec: dict[str, Any], value: Any) -> dict[str, Any]:
    """The arrays that carry an input; a sequence is its elements one after the other and a table of shapes."""
    name, kind = spec["name"], spec.get("kind", "tensor")
    if kind == "tensor":
        return {name: np.asarray(value)}
    items = [] if value is None else value if isinstance(value, list) else [value]
    items = [np.asarray(item) for item in items]
    rank = max((item.ndim for item in items), default=0)
    rows = [[*item.shape, *[-1] * (rank - item.ndim)] for item in items]
    values = np.concatenate([item.ravel() for item in items] or [np.zeros(0, dtype_of(spec["dtype"]).numpy)])
    parts = {f"{name}.values": values, f"{name}.shapes": np.array(rows, np.int64).reshape(len(items), rank)}
    return parts | {f"{name}.present": np.array(value is not None)} if kind == "optional_sequence" else parts


def _value(spec: dict[str, Any], results: dict[str, Any]) -> Any:
    """An output, put together again."""
    name, kind = spec["name"], spec.get("kind", "tensor")
    if kind == "tensor":
        return _array(results[name])
    if kind == "optional_sequence" and not results[f"{name}.present"]:
        return None
    values, shapes = _array(results[f"{name}.values"]), _array(results[f"{name}.shapes"])
    shapes = [row[row >= 0] for row in shapes]
    ends = np.cumsum([0, *(row.prod() for row in shapes)]).astype(int)
    items = [values[start:end].reshape(row) for start, end, row in zip(ends, ends[1:], shapes)]
    return (items[0] if items else None) if kind == "optional" else items


def _array(value: Any) -> Any:
    array = value.numpy() if hasattr(value, "numpy") else value
    if isinstance(array, bytes):
        array = np.array(array, dtype=object)
    array = np.asarray(array)
    if array.dtype == object:
        return np.vectorize(lambda item: item.decode() if isinstance(item, bytes) else item, otypes=[object])(array)
    return array
