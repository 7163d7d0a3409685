"""Models of one node, run with every dim unknown and with every dim known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from exporters.tensorflow._convert import lower_model
from interop.dtypes import dtype_of


def lower_node(
    operator: str,
    inputs: Sequence[Any],
    results: Sequence[np.dtype[Any]],
    attributes: dict[str, Any] | None = None,
    *,
    constants: Sequence[int] = (),
    known: Sequence[int] = (),
    unknown: bool = True,
    opset: int = 28,
) -> Any:
    """The lowered model of one node.

    Args:
        operator: operator type.
        inputs: example arrays; None where an optional input is left out.
        results: dtypes of the outputs.
        attributes: the node's attributes.
        constants: positions of the inputs that are initializers of the model.
        known: positions of the inputs with known dims in any case.
        unknown: whether all dims of the other inputs are unknown.
        opset: opset of the model.
    """
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = helper.make_node(operator, names, [f"y{i}" for i in range(len(results))], **(attributes or {}))
    given, fixed = [], []
    for i, (name, x) in enumerate(zip(names, inputs)):
        if x is None:
            continue
        if i in constants:
            fixed.append(numpy_helper.from_array(x, name))
        else:
            dims = [f"{name}_{axis}" for axis in range(x.ndim)] if unknown and i not in known else list(x.shape)
            given.append(helper.make_tensor_value_info(name, _element_type(x.dtype), dims))
    made = [helper.make_tensor_value_info(f"y{i}", _element_type(dtype), None) for i, dtype in enumerate(results)]
    graph = helper.make_graph([node], operator, given, made, fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return lower_model(ir.from_proto(model))


def check_node(
    operator: str,
    inputs: Sequence[Any],
    expected: Sequence[Any],
    attributes: dict[str, Any] | None = None,
    *,
    constants: Sequence[int] = (),
    known: Sequence[int] = (),
    rtol: float = 1e-5,
    opset: int = 28,
) -> None:
    """Compare the results with expected arrays, dtype and shape included, with unknown and with known dims."""
    inputs = [x if x is None else np.asarray(x) for x in inputs]
    expected = [np.asarray(x) for x in expected]
    for unknown in (True, False):
        options = {"constants": constants, "known": known, "unknown": unknown, "opset": opset}
        module = lower_node(operator, inputs, [x.dtype for x in expected], attributes, **options)
        feeds = [tf.constant(x) for i, x in enumerate(inputs) if x is not None and i not in constants]
        for want, result in zip(expected, module(*feeds).values(), strict=True):
            _compare(result.numpy(), want, rtol)


def gradients(
    operator: str, inputs: Sequence[Any], attributes: dict[str, Any] | None = None, *, constants: Sequence[int] = ()
) -> list[np.ndarray[Any, Any]]:
    """The gradients of the sum of the squared first result by the floating inputs that are fed."""
    module = lower_node(operator, inputs, [inputs[0].dtype], attributes, constants=constants)
    feeds = [tf.constant(x) for i, x in enumerate(inputs) if x is not None and i not in constants]
    sources = [x for x in feeds if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        loss = tf.reduce_sum(tf.square(next(iter(module(*feeds).values()))))
    return [tf.convert_to_tensor(gradient).numpy() for gradient in tape.gradient(loss, sources)]


def _element_type(dtype: np.dtype[Any]) -> int:
    return TensorProto.STRING if dtype.kind in "OU" else int(dtype_of(dtype).onnx or 0)


def _compare(result: Any, want: np.ndarray[Any, Any], rtol: float) -> None:
    result = np.asarray(result)
    if want.dtype.kind in "OU":
        assert result.shape == want.shape
        assert [item.decode() for item in result.reshape(-1)] == [str(item) for item in want.reshape(-1)]
        return
    assert result.dtype == want.dtype
    np.testing.assert_allclose(result.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=1e-6, strict=True)


assert onnx.defs.onnx_opset_version() >= 28, "the tests of single nodes are written in opset 28"
