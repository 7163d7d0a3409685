"""A torch module, or a loaded model, as a layer of Keras on TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interop.extras import loaded, require
from interop.frameworks import convert
from interop.operators._errors import OperatorError
from interop.operators._operator import Operator
from interop.operators._runtime import bind, make_operator, shapes_of
from interop.runtimes import Runtime, load
from interop.runtimes._rebuild import rebuild

__all__ = ["make_layer"]

tf = require("tensorflow", "to make a Keras layer")
keras = require("keras", "to make a Keras layer")


class TorchLayer(keras.layers.Layer):  # type: ignore[misc, name-defined]  # keras is untyped
    """Runs a torch module; see ``interop.as_keras_layer``."""

    def __init__(self, module: Any, **options: Any) -> None:
        super().__init__(autocast=False, **options)
        self._module = module
        named = dict(module.named_parameters())
        self._names = list(named)
        self._values = [self._add(name, parameter) for name, parameter in named.items()]
        self._operator = _module_operator(module, self._names)
        self.built = True

    def _add(self, name: str, parameter: Any) -> Any:
        values = convert(parameter, "tensorflow")
        return self.add_weight(
            name=name.replace(".", "_"),
            shape=tuple(parameter.shape),
            dtype=values.dtype.name,
            initializer=lambda shape, dtype: tf.identity(values),
            trainable=parameter.requires_grad,
            autocast=False,
        )

    def call(self, inputs: Any) -> Any:
        """One tensor, a list of arguments, or a dict by parameter names."""
        args, kwargs = _arguments(inputs)
        return self._operator(args, kwargs, [tf.convert_to_tensor(value.value) for value in self._values])

    def update_module(self) -> None:
        """Copy the weights into the torch module."""
        torch = require("torch", "to write to a torch module")
        parameters = dict(self._module.named_parameters())
        with torch.no_grad():
            for name, value in zip(self._names, self._values):
                parameters[name].copy_(convert(value.value, "torch"))


class RuntimeLayer(keras.layers.Layer):  # type: ignore[misc, name-defined]  # keras is untyped
    """Runs a loaded model, without gradients."""

    def __init__(self, runtime: Runtime, **options: Any) -> None:
        super().__init__(autocast=False, **options)
        self._runtime = runtime
        self._operator = make_operator(runtime.run, "numpy", None, shapes_of(runtime))
        self.built = True

    def call(self, inputs: Any) -> Any:
        """One tensor, a list in the order of the inputs, or a dict by their names."""
        args, kwargs = _arguments(inputs)
        signature = self._runtime.signature
        return signature.unflatten(self._operator(bind(signature, args, kwargs)), rebuild)


def make_layer(model: Any, name: str | None, options: Mapping[str, Any]) -> Any:
    """The layer of ``interop.as_keras_layer``."""
    if keras.backend.backend() != "tensorflow":
        raise OperatorError(
            f"the layer is for Keras on TensorFlow, and keras uses {keras.backend.backend()!r}; set KERAS_BACKEND"
        )
    torch = loaded("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        model = load(model)
        model = getattr(model, "module", model) if model.framework == "torch" else model
    if isinstance(model, Runtime):
        if model.framework == "tensorflow":
            raise OperatorError(
                "a SavedModel is TensorFlow's already: keras.layers.TFSMLayer(path), or exporters.tensorflow.as_keras_layer for "
                "a model exported in this process"
            )
        return RuntimeLayer(model, name=name, **options)
    if model.training:
        raise OperatorError(
            "the module is in training mode: a layer runs it again for the gradient, so dropout would differ and batch "
            "statistics would be counted twice; call module.eval() first (its weights still train)"
        )
    return TorchLayer(model, name=name, **options)


def _module_operator(module: Any, names: Sequence[str]) -> Operator:
    torch = require("torch", "to run a torch module")

    def run(args: tuple[Any, ...], kwargs: dict[str, Any], weights: Sequence[Any]) -> Any:
        return torch.func.functional_call(module, dict(zip(names, weights)), args, kwargs)

    return make_operator(run, "torch", None)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)), {}
