"""Smaller ONNX models: float16 and int8, by ONNX Runtime's own tools."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

import interop
from exporters._precision import bound, example_of, holds_mark, measured
from exporters._request import ExportRequest
from exporters.errors import TranslationError
from exporters.onnx._artifact import SINGLE_FILE_BYTES, OnnxArtifact
from exporters.onnx._metadata import stamp_precision

__all__ = ["at_precision"]

RECURRENT = ("GRU", "LSTM", "RNN")
"""They stay in float32: ONNX Runtime has no float16 kernel for them on the CPU."""


_STEPS = 255
"""Of a range in int8."""

QUANTISED = frozenset({"DequantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeLinear", "QuantizeLinear"})
"""What every int8 operator comes with."""


def at_precision(artifact: OnnxArtifact, precision: str, representative: Any, request: ExportRequest) -> OnnxArtifact:
    """The same model with smaller weights, and how far it is from the float32 one.

    Args:
        artifact: the float32 model.
        precision: ``"float16"`` or ``"int8"``.
        representative: batches of typical inputs, for int8 activations, or None.
        request: what was exported, for its example.

    Returns:
        An artifact that is marked as approximate; inputs and outputs keep names and dtypes, and its notices tell the distance.

    Raises:
        TranslationError: the tool refuses the model, or ONNX Runtime cannot run the result.
    """
    batches = list(bound(artifact.signature, representative))
    with _refused(precision), _quiet():
        model = _float16(artifact.model) if precision == "float16" else _int8(artifact.model, batches)
    model.metadata_props.update(artifact.model.metadata_props)
    parameters = stamp_precision(model, precision, artifact.parameters)
    smaller = replace(artifact, model=model, parameters=parameters, approximate=True)
    inputs = [*example_of(request, artifact.signature), *batches]
    notices = (*artifact.notices, *measured(artifact.load(), smaller.load(), inputs, precision))
    return replace(smaller, notices=notices)


def _float16(model: ir.Model) -> ir.Model:
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    proto = ir.to_proto(model)
    large = proto.ByteSize() > SINGLE_FILE_BYTES  # shape inference in memory ends at 2 GiB
    kept = [*DEFAULT_OP_BLOCK_LIST, *RECURRENT]
    proto = convert_float_to_float16(proto, keep_io_types=True, disable_shape_infer=large, op_block_list=kept)
    del proto.graph.value_info[:]  # some of it still says float32
    smaller = ir.from_proto(proto)
    smaller.graph.sort()  # the tool puts its casts at the end
    _open_apart(smaller)
    return smaller


def _open_apart(model: ir.Model) -> None:
    """Open a model in a process of its own first: ONNX Runtime's NchwcTransformer ends the process on some float16 models.

    Seen with onnxruntime 1.32 on a product that follows a transposed LSTM or GRU.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ir.save(model, path, external_data="model.onnx.data")
        script = (
            "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
        )
        done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=False)
    if done.returncode < 0:
        raise TranslationError(
            "ONNX Runtime's process dies when it opens the float16 model (a fault of its optimizer on the CPU); "
            "ask for precision='int8' or 'float32'"
        )


def _int8(model: ir.Model, batches: Sequence[Mapping[str, Any]]) -> ir.Model:
    """Weights as int8; with typical inputs the activations too, each with the range that it was seen to have."""
    from onnxruntime.quantization import quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    proto = ir.to_proto(model)
    for number, node in enumerate(proto.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"  # the tools leave a node alone by its name
    large = proto.ByteSize() > SINGLE_FILE_BYTES
    with tempfile.TemporaryDirectory() as folder:
        prepared, target = Path(folder) / "prepared.onnx", Path(folder) / "int8.onnx"
        # Without optimisation: a float32 model that ONNX Runtime optimised holds its own operators, for one machine.
        quant_pre_process(
            proto, prepared, skip_optimization=True, skip_symbolic_shape=True, save_as_external_data=large
        )
        common: dict[str, Any] = {"per_channel": True, "use_external_data_format": large}
        if batches:
            quantize_static(prepared, target, _Reader(batches), **common)
            if marked := _beside_marks(onnx.load(prepared, load_external_data=False), onnx.load(target)):
                quantize_static(prepared, target, _Reader(batches), nodes_to_exclude=marked, **common)
        else:
            quantize_dynamic(prepared, target, extra_options={"EnableSubgraph": True}, **common)
        smaller = ir.from_proto(onnx.load(target))
    if not any(node.op_type in QUANTISED for node in ir.traversal.RecursiveGraphIterator(smaller.graph)):
        raise TranslationError(
            "onnxruntime's tools make no operator of this model an int8 one; ask for float16 or float32"
        )
    return smaller


def _beside_marks(model: onnx.ModelProto, quantised: onnx.ModelProto) -> list[str]:
    """Names of the nodes that give or take a value whose range holds the mark of a mask.

    Args:
        model: before quantisation.
        quantised: after it, with a range for every activation.
    """
    scales = {tensor.name: tensor for tensor in quantised.graph.initializer}
    ranges = [
        node.input for node in quantised.graph.node if node.op_type == "QuantizeLinear" and node.input[1] in scales
    ]
    marked = {value for value, scale, *_ in ranges if holds_mark(numpy_helper.to_array(scales[scale]) * _STEPS)}
    return [node.name for node in model.graph.node if marked & {*node.input, *node.output}]


class _Reader:
    """The batches, one at a time, as ONNX Runtime's calibration asks for them."""

    def __init__(self, batches: Sequence[Mapping[str, Any]]) -> None:
        self._left = iter(batches)

    def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
        batch = next(self._left, None)
        return None if batch is None else {name: interop.convert(value, "numpy") for name, value in batch.items()}


@contextlib.contextmanager
def _refused(precision: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        # The tools raise whatever an operator that they do not expect leads to.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TranslationError(f"onnxruntime cannot make a {precision} model of this one: {reason}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the tools' advice, which speaks to those who call them by hand."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(before)
