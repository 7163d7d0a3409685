"""A loaded model as a module of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from interop.extras import require
from interop.frameworks import convert
from interop.operators._errors import OperatorError
from interop.operators._operator import Operator, is_differentiable
from interop.operators._runtime import bind, make_operator, shapes_of
from interop.runtimes import Runtime, load
from interop.runtimes._rebuild import rebuild

__all__ = ["RuntimeModule", "make_module"]


class RuntimeModule(torch.nn.Module):
    """Runs a loaded model; see ``interop.as_torch_module``."""

    def __init__(self, runtime: Runtime, name: str | None) -> None:
        super().__init__()
        self._runtime = runtime
        variables = _variables(runtime)
        for index, variable in enumerate(variables):
            values = torch.nn.Parameter(convert(variable, "torch", copy=True))
            self.register_parameter(_parameter_name(variable.name, index, self), values)
        self._operator = _operator(runtime, variables, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, as the runtime is called."""
        signature = self._runtime.signature
        inputs = bind(signature, args, kwargs)
        results = self._operator(inputs, list(self.parameters()))
        return signature.unflatten(results, rebuild)

    def extra_repr(self) -> str:
        """The runtime."""
        return repr(self._runtime)


def make_module(model: Any, name: str | None) -> torch.nn.Module:
    """The module of ``interop.as_torch_module``."""
    runtime = load(model)
    module = getattr(runtime, "module", None)
    if runtime.framework == "torch" and isinstance(module, torch.nn.Module):
        return module
    return RuntimeModule(runtime, name)


def _variables(runtime: Runtime) -> list[Any]:
    """What a TensorFlow model can train."""
    function = getattr(runtime, "_function", None) if runtime.framework == "tensorflow" else None
    return [
        variable for variable in getattr(function, "trainable_variables", ()) if is_differentiable(variable.dtype.name)
    ]


def _parameter_name(name: str, index: int, module: torch.nn.Module) -> str:
    wanted = name.split(":")[0].replace(".", "_").replace("/", "_") or f"variable_{index}"
    return f"{wanted}_{index}" if hasattr(module, wanted) else wanted


def _operator(runtime: Runtime, variables: Sequence[Any], name: str | None) -> Operator:
    if runtime.framework != "tensorflow":
        made = make_operator(lambda inputs, weights: runtime.run(inputs), "numpy", name, shapes_of(runtime))
        made.gradient(lambda *_: _refuse(runtime))
        return made

    def run(inputs: Mapping[str, Any], weights: Sequence[Any]) -> dict[str, Any]:
        for variable, weight in zip(variables, weights):
            variable.assign(weight)
        return runtime.run(inputs)

    made = make_operator(run, "tensorflow", name, shapes_of(runtime))
    if variables:
        made.once = True
        made.gradient(_gradient(run, variables))
    return made


def _gradient(run: Any, variables: Sequence[Any]) -> Any:
    """By a tape that sees the variables themselves, which the weights were assigned to."""
    tf = require("tensorflow", "to differentiate a SavedModel")

    def gradient(cotangents: Mapping[str, Any], inputs: Mapping[str, Any], weights: Sequence[Any]) -> list[Any]:
        primals = {name: tf.identity(value) for name, value in inputs.items()}
        real = [name for name, value in primals.items() if value.dtype.is_floating or value.dtype.is_complex]
        with tf.GradientTape() as tape:
            tape.watch([primals[name] for name in real])
            results = run(primals, weights)
        names = [name for name, value in cotangents.items() if value is not None]
        found = tape.gradient(
            [results[name] for name in names],
            [*(primals[name] for name in real), *variables],
            [cotangents[name] for name in names],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        dense = [tf.convert_to_tensor(value) for value in found]
        by_name = dict(zip(real, dense))
        return [*(by_name.get(name) for name in inputs), *dense[len(real) :]]

    return gradient


def _refuse(runtime: Runtime) -> Any:
    raise OperatorError(
        f"{runtime.name} computes no gradients, so nothing can be trained through {runtime!r}; call it under torch.no_grad() or "
        "detach its result, or take the torch module or the SavedModel of this model, which have gradients"
    )
