"""Rounding inside a quantised ONNX model, where one unit in the last place may become a whole quantisation step.

A value that lies between two steps falls on one side or the other by rounding alone, and what follows sees a difference of a
step. Moving the inputs does not show that: few values lie so near to a boundary. So the model runs with all its float constants
(weights, biases and above all scales) moved by a few ulp, which is what the rounding of other kernels amounts to, and its values
cross the boundaries that other kernels cross. ONNX Runtime also rewrites quantised graphs, and then rounds elsewhere: these
versions run as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.extras import loaded, require
from interop.runtimes import Runtime, load

__all__ = ["MOVED_ULP", "VERSIONS", "moved_versions"]

MOVED_ULP = 16
"""How far a constant is moved at most: sums of many products round that much."""
VERSIONS = 4
"""Versions of the model; a step is crossed in some of them only."""
_LIMIT = 1 << 28
"""Bytes of a model that is copied a few times."""

_STEPS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QGemm"})
_ARITHMETIC = frozenset(
    {"Conv", "ConvTranspose", "DequantizeLinear", "GRU", "Gemm", "LSTM", "LayerNormalization", "MatMul", "Mul"}
)
"""Whose constants are moved, beside those of the steps: others may be sizes, such as the scales of Resize."""


def moved_versions(source: Any, seed: int) -> Iterator[Runtime]:
    """A model with its float constants moved, run as it is written; nothing where it is no quantised ONNX model.

    Args:
        source: the path of a file, or an ONNX model in memory, which stays as it is; anything else gives nothing.
        seed: of the moves.

    Raises:
        ModelFileError: the runtime does not take the moved constants.
    """
    onnx, model = loaded("onnx"), _read(source)
    if onnx is None or model is None or not any(map(_is_step, model.graph.node)):
        return
    if model.ByteSize() + sum(map(_size_outside, model.graph.initializer)) > _LIMIT:
        return
    if isinstance(source, Path):
        onnx.external_data_helper.load_external_data_for_model(model, str(source.parent))
    reals = list(_movable(onnx, model.graph))
    originals = [onnx.numpy_helper.to_array(tensor) for tensor in reals]
    for version in range(VERSIONS):
        rng = np.random.default_rng([seed, 2, version])
        for tensor, original in zip(reals, originals):
            tensor.CopyFrom(onnx.numpy_helper.from_array(_moved(original, rng), tensor.name))
        yield _not_optimised(model.SerializeToString())


def _read(source: Any) -> Any:
    """The model as a message that may be changed, without what lies in other files; None for what is none, or is large."""
    onnx, onnx_ir = loaded("onnx"), loaded("onnx_ir")
    if onnx is None:
        return None
    if isinstance(source, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return copy
    if onnx_ir is not None and isinstance(source, onnx_ir.Model):
        stored = (value.const_value for value in source.graph.initializers.values())
        small = sum(tensor.nbytes for tensor in stored if tensor is not None) <= _LIMIT
        return onnx_ir.to_proto(source) if small else None
    if not isinstance(source, Path) or source.suffix != ".onnx" or not source.is_file():
        return None
    return onnx.load(source, load_external_data=False) if source.stat().st_size <= _LIMIT else None


def _size_outside(tensor: Any) -> int:
    """The bytes of a tensor that lie in another file."""
    return sum(int(entry.value) for entry in tensor.external_data if entry.key == "length")


def _not_optimised(content: bytes) -> Runtime:
    ort = require("onnxruntime", "to run a quantised model as it is written")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return load(content, runtime="onnxruntime", session_options=options)


def _is_step(node: Any) -> bool:
    return node.op_type in _STEPS or node.op_type.startswith("QLinear")


def _movable(onnx: Any, graph: Any) -> Iterator[Any]:
    """The float constants that only arithmetic reads."""
    used = [(name, _is_step(node) or node.op_type in _ARITHMETIC) for node in graph.node for name in node.input]
    names = {name for name, moves in used if moves} - {name for name, moves in used if not moves}
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    return (tensor for tensor in graph.initializer if tensor.name in names and tensor.data_type in kinds)


def _moved(values: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    steps = rng.uniform(-MOVED_ULP, MOVED_ULP, values.shape) * np.finfo(values.dtype).eps
    moved: npt.NDArray[Any] = (values.astype(np.float64) * (1 + steps)).astype(values.dtype)
    return moved
