"""One case through the torch exporter: convert and run; or convert, export, save, load and run."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from exporters.torch._convert import lower_model
from exporters.torch._values import array_to_tensor, tensor_to_array
from interop import TensorSpec
from interop.dtypes import dtype_of
from tests.node_suite.cases import Case, judge


def run_case(case: Case, *, saved: bool = False) -> None:
    """Raise unless the case passes; ``saved=True`` runs what ``torch.export`` makes of the module."""
    torch.manual_seed(0)
    module = lower_model(ir.from_proto(case.model))
    signature = module.meta["signature"]
    for inputs, expected in case.data():
        given = tuple(_given(value) for value in inputs)
        function = _reloaded(module, given) if saved else module
        with torch.no_grad():
            results = function(*given)
        results = results if isinstance(results, tuple) else (results,)
        for wanted, result, spec in zip(expected, results, signature.outputs, strict=True):
            _judge(case, wanted, _array(result, spec))


def _reloaded(module: Any, inputs: tuple[Any, ...]) -> Any:
    program = torch.export.export(module, inputs)
    stream = io.BytesIO()
    torch.export.save(program, stream)
    stream.seek(0)
    return torch.export.load(stream).module()


def _given(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_given(item) for item in value]
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "OUS" else array_to_tensor(array)


def _array(value: Any, spec: TensorSpec) -> Any:
    if isinstance(value, list):
        return [_array(item, spec) for item in value]
    if isinstance(value, torch.Tensor):
        entry = dtype_of(spec.dtype)
        carried = entry.bits < 8
        return tensor_to_array(value, entry if carried else None)
    return value


def _judge(case: Case, expected: Any, output: Any) -> None:
    """Compare one output; onnx's runner itself trips over a scalar inside a sequence."""
    if isinstance(expected, list):
        assert isinstance(output, list), f"a sequence was expected, got {type(output).__name__}"
        assert len(output) == len(expected), f"{len(expected)} tensors were expected, got {len(output)}"
    judge(case, *(value if isinstance(value, list) else [value] for value in (expected, output)))
