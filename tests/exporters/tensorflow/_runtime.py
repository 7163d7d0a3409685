"""ONNX Runtime as the witness for models of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import tensorflow as tf
from onnx import ValueInfoProto, helper, numpy_helper

from exporters.tensorflow._convert import lower_model
from interop.dtypes import dtype_of


def node_model(
    operator: str,
    inputs: Sequence[Any],
    outputs: int = 1,
    attributes: dict[str, Any] | None = None,
    *,
    domain: str = "",
    constants: Sequence[int] = (),
    opset: int = 21,
) -> Any:
    """An ONNX model of one node whose inputs have unknown dims, but for those that are initializers."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, names, outs, domain=domain, **(attributes or {}))
    given = [
        helper.make_tensor_value_info(name, dtype_of(x.dtype).onnx, [f"{name}_{axis}" for axis in range(x.ndim)])
        for i, (name, x) in enumerate(zip(names, inputs))
        if x is not None and i not in constants
    ]
    fixed = [numpy_helper.from_array(inputs[i], names[i]) for i in constants]
    made = [ValueInfoProto(name=name) for name in outs]  # of a type that the runtime finds out
    graph = helper.make_graph([node], "node", given, made, fixed)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run_both(model: Any, inputs: Sequence[Any], constants: Sequence[int] = ()) -> tuple[list[Any], list[Any]]:
    """The results of the lowered model and those of ONNX Runtime."""
    fed = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i not in constants}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, fed)
    types = {value.name: value.type for value in session.get_outputs()}
    for value in model.graph.output:  # what ONNX Runtime inferred; onnx knows no types of its operators
        value.type.CopyFrom(helper.make_tensor_type_proto(_element_type(types[value.name]), None))
    results = lower_model(ir.from_proto(model))(*(tf.constant(x) for x in fed.values()))
    return [result.numpy() for result in results.values()], expected


def _element_type(text: str) -> int:
    """The number of a type that ONNX Runtime writes as ``tensor(float)``."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return int(dtype_of(name).onnx or 0)


def check_like_runtime(
    operator: str,
    inputs: Sequence[Any],
    outputs: int = 1,
    attributes: dict[str, Any] | None = None,
    *,
    domain: str = "",
    constants: Sequence[int] = (),
    rtol: float = 1e-5,
    atol: float = 1e-6,
    opset: int = 21,
) -> None:
    """Compare a node's results with ONNX Runtime's; ``atol=1`` lets quantised results differ by one step."""
    model = node_model(operator, inputs, outputs, attributes, domain=domain, constants=constants, opset=opset)
    for result, want in zip(*run_both(model, inputs, constants), strict=True):
        assert result.dtype == want.dtype
        np.testing.assert_allclose(
            result.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, strict=True
        )
