"""Whole models, written as onnx's text, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import tensorflow as tf

from exporters.tensorflow._convert import lower_model


def lower_text(text: str, opset: int = 21) -> Any:
    """The lowered model of a graph in onnx's text."""
    return lower_model(ir.from_proto(parse(text, opset)))


def parse(text: str, opset: int = 21, more: str = "") -> onnx.ModelProto:
    """The model of a graph in onnx's text."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{more}]> {text}')


def run_runtime(model: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    """The results of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {value.name: x for value, x in zip(session.get_inputs(), inputs)}))


def run_tensorflow(module: Any, inputs: list[Any]) -> list[Any]:
    """The results of a lowered model."""
    return [result.numpy() for result in module(*map(tf.constant, inputs)).values()]


def check_model(model: onnx.ModelProto, *calls: list[Any], rtol: float = 1e-5) -> None:
    """Compare a lowered model with ONNX Runtime, dtype and shape included, in one or more calls."""
    module = lower_model(ir.from_proto(model))
    for inputs in calls:
        for result, want in zip(run_tensorflow(module, inputs), run_runtime(model, inputs), strict=True):
            if want.dtype == object:
                assert [item.decode() for item in result.reshape(-1)] == want.reshape(-1).tolist()
                assert result.shape == want.shape
            else:
                assert result.dtype == want.dtype
                np.testing.assert_allclose(result, want, rtol=rtol, atol=1e-5, strict=True)
