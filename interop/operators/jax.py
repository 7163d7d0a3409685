"""JAX: bodies written in it, and calls from it, also inside ``jit``.

Gradients of complex numbers are conjugated here: JAX's convention is the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from interop.frameworks import convert
from interop.operators._call import Call
from interop.operators._errors import OperatorError
from interop.operators._operator import Operator, run
from interop.operators._shapes import infer as infer_results
from interop.signature import TensorSpec

__all__ = ["apply", "differentiate", "infer", "zeros_like"]

zeros_like = jax.numpy.zeros_like


# Bodies


def differentiate(
    made: Operator, function: Callable[..., list[Any]], inputs: int, wrt: tuple[int, ...]
) -> Callable[..., list[Any]]:
    """The vector-Jacobian product of a function of flat arrays, by ``jax.vjp``."""

    def gradient(*tensors: Any) -> list[Any]:
        def chosen(*sources: Any) -> list[Any]:
            primals = list(tensors[:inputs])
            for index, source in zip(wrt, sources):
                primals[index] = source
            return [result for result in function(*primals) if _floats(result)]

        _, pull = jax.vjp(chosen, *(tensors[index] for index in wrt))
        return [jax.numpy.conj(value) for value in pull([jax.numpy.conj(value) for value in tensors[inputs:]])]

    return gradient


def _floats(array: Any) -> bool:
    return bool(jax.numpy.issubdtype(array.dtype, jax.numpy.inexact))


def infer(made: Operator, call: Call, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """By abstract evaluation."""
    wanted = [jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in specs]
    try:
        results = jax.eval_shape(made.at(call), *wanted)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise OperatorError(
            f"the shapes of {made.name!r} cannot be told before it runs ({str(error).strip().splitlines()[0][:200]}); give "
            "the operator a shape="
        ) from error
    return [TensorSpec("", result.dtype.name, tuple(result.shape)) for result in results]


# Calls from JAX


def apply(made: Operator, call: Call, tensors: Sequence[Any]) -> list[Any]:
    """Call with a gradient that is such a call again, so that transformations nest."""
    return list(made.cached(("jax", call), lambda: _step(made, call))(*tensors))


def _step(made: Operator, call: Call) -> Any:
    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def step(*tensors: Any) -> list[Any]:
        return _forward(made, call, tensors)

    def forward(*tensors: Any) -> Any:
        return step(*tensors), tensors

    def backward(tensors: Sequence[Any], upstream: Sequence[Any]) -> Any:
        wrt = tuple(index for index, tensor in enumerate(tensors) if _floats(tensor))
        cotangents = [jax.numpy.conj(value) for value in upstream if _floats(value)]
        found = dict(zip(wrt, apply(made, call.derive(len(tensors), wrt), [*tensors, *cotangents])))
        none = [np.zeros(tensor.shape, jax.dtypes.float0) for tensor in tensors]
        return tuple(jax.numpy.conj(found[index]) if index in found else none[index] for index in range(len(tensors)))

    step.defvjp(forward, backward)
    return step


def _forward(made: Operator, call: Call, tensors: Sequence[Any]) -> list[Any]:
    if not any(isinstance(tensor, jax.core.Tracer) for tensor in tensors):
        return run(made, call, tensors, "jax")
    specs = infer_results(
        made, call, tuple(TensorSpec("", tensor.dtype.name, tuple(tensor.shape)) for tensor in tensors)
    )
    if any(spec.shape is None or None in spec.shape for spec in specs):
        raise OperatorError(
            f"{made.name!r} has sizes that depend on values, which JAX cannot trace; call it outside jit"
        )
    wanted = [jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in specs]

    def host(*given: Any) -> list[Any]:
        return [convert(value, "numpy") for value in run(made, call, given, made.framework)]

    return list(jax.pure_callback(host, wanted, *tensors, vmap_method="sequential"))
