"""The lowered model as a ``tf.Module``: variables under the parameters' names, signatures with the ONNX names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from exporters._graph.context import find_unsupported
from exporters._graph.nodes import array_of, domain_of
from exporters.errors import OptionsError, UnsupportedOperatorError
from exporters.tensorflow._boundary import decode, encode, part_specs
from exporters.tensorflow._lowering import Lowerer, LoweringContext
from exporters.tensorflow._names import safe_names, variable_names
from exporters.tensorflow._outline import outline_of, tensor_names
from exporters.tensorflow._signatures import part_of
from exporters.tensorflow._storage import stored_order
from exporters.tensorflow._table import TABLE
from exporters.tensorflow._tensors import tf_dtype
from interop import Signature

__all__ = ["LoweredModule"]

# A table of indices or shapes up to this size stays a constant, which TensorFlow's optimizer can use.
CONSTANT_BYTES = 64 * 1024


class LoweredModule(tf.Module):  # type: ignore[misc]  # tf.Module is untyped
    """An ONNX graph as a TensorFlow module.

    Calling it with tensors, in the order of the model's inputs, gives ``{output name: tensor}``. A sequence or an optional
    is several tensors there, see ``exporters.tensorflow._boundary``.

    Args:
        model: the prepared model.
        signature: its inputs and outputs.
        parameters: ``{initializer name: trainable}`` of the torch parameters and buffers; None where the model does not
            say which they are: then all its float initializers are parameters.
        trainable: whether parameters are trainable variables.
        training: offer a second signature in which BatchNormalization (with updates of its running statistics) and Dropout
            behave as in training.
        signatures: ``{name: output names}`` of further signatures, see ``exporters.tensorflow._signatures``.

    Attributes:
        weights: ``{initializer name: variable}``. Filters of convolutions and matrices of linear and recurrent layers stand in
            TensorFlow's own layout, (height, width, in, out) and (in, out), where nothing else reads them and the module is
            not trainable; all others have the shape that they have in the graph.
        onnx_model: the model that was lowered.
        interop_metadata: the signatures and the name map, as they are stored in the SavedModel.

    Raises:
        UnsupportedOperatorError: naming every node that has no lowering.
        OptionsError: a further signature wants an output that the model does not have.
    """

    def __init__(
        self,
        model: ir.Model,
        signature: Signature,
        parameters: Mapping[str, bool] | None = None,
        *,
        trainable: bool = False,
        training: bool = False,
        signatures: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(name="model")
        functions = dict(model.functions.items())
        context = LoweringContext(dict(model.opset_imports), functions)
        if unsupported := find_unsupported(model, context, TABLE):
            raise UnsupportedOperatorError("TensorFlow", unsupported)
        parts = {name: part_of(model.graph, signature, name, names) for name, names in (signatures or {}).items()}
        self.onnx_model = model
        self._graph = model.graph
        self._tensors: dict[str, str] = {}
        self._signature = signature
        self._parts = [part for spec in signature.inputs for part in part_specs(spec)]
        self._input_names = safe_names([part.name for part in self._parts])
        self.weights, self._constants = _split_initializers(model, parameters, trainable)
        initializers = model.graph.initializers
        self._orders = {} if trainable else {name: stored_order(initializers[name]) for name in self.weights}
        whole = (model.graph, signature)
        self._concrete = self._trace(context, *whole)
        learning = replace(context, training=True, update=self._update)
        self._training = self._trace(learning, *whole) if training else None
        self._further_signatures = {name: part for name, (_, part) in parts.items()}
        self._further = {name: self._trace(context, *part) for name, part in parts.items()}

    def _trace(self, context: LoweringContext, graph: ir.Graph | ir.GraphView, signature: Signature) -> Any:
        lowerer = Lowerer(context)

        def forward(**inputs: Any) -> dict[str, Any]:
            return self._forward(lowerer, graph, signature, inputs)

        return tf.function(forward, autograph=False).get_concrete_function(**self._specs(signature))

    def _update(self, value: ir.Value, moved: Any) -> None:
        """Give a running statistic its new value."""
        if value.name in self.weights:
            self.weights[value.name].assign(moved)

    def _specs(self, signature: Signature) -> dict[str, tf.TensorSpec]:
        return {
            self._input_names[part.name]: tf.TensorSpec(
                _dims(part.shape), tf_dtype(part.dtype), name=self._input_names[part.name]
            )
            for spec in signature.inputs
            for part in part_specs(spec)
        }

    def _forward(
        self, lowerer: Lowerer, graph: ir.Graph | ir.GraphView, signature: Signature, inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        env: dict[ir.Value, Any] = {}
        for name, value in self._graph.initializers.items():
            weight = self.weights.get(name)
            env[value] = self._constants[name] if weight is None else _Read(weight, self._orders.get(name))
        parts = {part.name: inputs[self._input_names[part.name]] for s in signature.inputs for part in part_specs(s)}
        env.update(zip(_real_inputs(graph), (decode(spec, parts) for spec in signature.inputs)))
        reading = _Reading(env)
        results = lowerer.run_graph(graph, reading, annotate=True)
        if not self._tensors:  # the serving signature is traced first
            self._tensors = tensor_names(reading)
        outputs: dict[str, Any] = {}
        for spec, result in zip(signature.outputs, results):
            outputs |= encode(spec, result)
        return outputs

    def __call__(self, *inputs: Any, training: bool = False) -> dict[str, Any]:
        """Run the model on tensors in the order of its inputs.

        Args:
            *inputs: the tensors.
            training: use the training signature; the module must have been made with ``training=True``.
        """
        function = self._training if training else self._concrete
        if function is None:
            raise OptionsError(
                "the model was exported without a training signature; export it with options={'training': True}"
            )
        names = (self._input_names[part.name] for part in self._parts)
        return dict(function(**dict(zip(names, inputs, strict=True))))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The model's own input names, in order."""
        return self._signature.input_names

    def outline(self) -> bytes | None:
        """The graph without its weights, as a serialized ONNX model whose nodes say which TensorFlow tensors they became."""
        return outline_of(self._graph, self._tensors)

    @property
    def trains(self) -> bool:
        """Whether it has a training signature."""
        return self._training is not None

    def serving_signature(self) -> Any:
        """The concrete function that serves the model; its keywords are the TensorFlow-safe input names."""
        return self._concrete

    def signatures_to_save(self) -> dict[str, Any]:
        """``serving_default``, ``training`` where the module has it, and the further signatures."""
        training = {} if self._training is None else {"training": self._training}
        return {"serving_default": self._concrete, **training, **self._further}

    @property
    def interop_metadata(self) -> dict[str, Any]:
        """Signature and name map as plain JSON data, and under ``"signatures"`` the same of each further signature."""
        data = self._metadata_of(self._signature)
        data["names"]["variables"] = {name: variable.name.split(":")[0] for name, variable in self.weights.items()}
        further = {name: self._metadata_of(signature) for name, signature in self._further_signatures.items()}
        return data | {"signatures": further} if further else data

    def _metadata_of(self, signature: Signature) -> dict[str, Any]:
        inputs, outputs = (
            [part.name for spec in specs for part in part_specs(spec)]
            for specs in (signature.inputs, signature.outputs)
        )
        return {
            "signature": signature.to_json(),
            "names": {
                "inputs": {name: self._input_names[name] for name in inputs},
                "outputs": {name: name for name in outputs},
            },
        }


class _Read:
    """A variable that is read where it is used, so that a branch or a loop body reads it inside."""

    def __init__(self, variable: tf.Variable, order: list[int] | None) -> None:
        self._variable = variable
        self._order = order

    def tensor(self) -> Any:
        """The value in ONNX's layout; the lowering of its node undoes the transpose, and neither is left."""
        value = tf.convert_to_tensor(self._variable)
        return value if self._order is None else tf.transpose(value, np.argsort(self._order))


class _Reading(dict[Any, Any]):
    """An environment that reads variables on the way out."""

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        return value.tensor() if isinstance(value, _Read) else value


def _dims(shape: tuple[Any, ...] | None) -> list[int | None] | None:
    return None if shape is None else [dim if isinstance(dim, int) else None for dim in shape]


def _real_inputs(graph: ir.Graph | ir.GraphView) -> list[ir.Value]:
    """The inputs without those that only give an initializer another value."""
    return [value for value in graph.inputs if value.name not in graph.initializers]


def _split_initializers(
    model: ir.Model, parameters: Mapping[str, bool] | None, trainable: bool
) -> tuple[dict[str, tf.Variable], dict[str, np.ndarray[Any, Any]]]:
    """Variables for weights and everything large; arrays for what shapes the graph."""
    names = variable_names(model.graph.initializers)
    opsets = dict(model.opset_imports)
    weights, constants = {}, {}
    for name, value in model.graph.initializers.items():
        assert value.const_value is not None
        tensor = value.const_value
        if _is_weight(value, parameters, opsets):
            is_trainable = trainable and (parameters is None or parameters.get(name, False))
            array = array_of(tensor)
            if not trainable and (order := stored_order(value)) is not None:
                array = np.ascontiguousarray(array.transpose(order))
            weights[name] = tf.Variable(array, trainable=is_trainable, name=names[name])
        else:
            constants[name] = array_of(tensor)
    return weights, constants


def _is_weight(value: ir.Value, parameters: Mapping[str, bool] | None, opsets: Mapping[str, int]) -> bool:
    tensor = value.const_value
    assert tensor is not None
    if tensor.dtype == ir.DataType.STRING:
        return False
    if tensor.nbytes > CONSTANT_BYTES or (parameters is not None and value.name in parameters):
        return True
    is_float = tensor.dtype.is_floating_point()
    return is_float and parameters is None and len(tensor.shape) > 0 and not _only_static_uses(value, opsets)


def _only_static_uses(value: ir.Value, opsets: Mapping[str, int]) -> bool:
    """Whether every node that uses the value wants to know it while the graph is built, such as Resize its scales."""
    table = TABLE.resolve(opsets)
    for node, position in value.uses():
        entry = table.get((domain_of(node), node.op_type))
        if entry is None or not entry.is_static(position):
            return False
    return True
