"""Small ONNX models, and how a rebuilt module compares with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper

from exporters.torch._convert import lower_model


def model_of(text: str, initializers: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    """A model from onnx's text form of a graph, ``name (inputs) => (outputs) { nodes }``."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), k) for k, x in (initializers or {}).items())
    return model


def node_model(
    operator: str, inputs: Sequence[Any], results: Sequence[Any], attributes: Mapping[str, Any], *, opset: int = 21
) -> onnx.ModelProto:
    """A model of one node; an input is an array, or None where it is left out; a result is a dtype."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = helper.make_node(operator, names, [f"y{i}" for i in range(len(results))], **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape))
        for name, x in zip(names, inputs)
        if x is not None
    ]
    made = [
        helper.make_tensor_value_info(f"y{i}", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
        for i, dtype in enumerate(results)
    ]
    graph = helper.make_graph([node], operator, given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def runtime_outputs(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """What ONNX Runtime answers."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip([value.name for value in session.get_inputs()], inputs, strict=True))))


def rebuilt(model: onnx.ModelProto) -> torch.fx.GraphModule:
    """The module of a model."""
    import onnx_ir as ir

    return lower_model(ir.from_proto(model))


def check_model(model: onnx.ModelProto, *batches: Sequence[Any], rtol: float = 1e-5, atol: float = 1e-6) -> Any:
    """Compare with ONNX Runtime on each batch of inputs; gives the module."""
    module = rebuilt(model)
    for inputs in batches:
        expected = runtime_outputs(model, inputs)
        with torch.no_grad():
            found = module(*(torch.from_numpy(np.array(x)) for x in inputs))
        found = found if isinstance(found, tuple) else (found,)
        for got, want in zip(found, expected, strict=True):
            assert got.numpy().dtype == want.dtype
            np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=atol)
    return module
