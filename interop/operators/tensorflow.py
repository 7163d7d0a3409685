"""TensorFlow: bodies written in it, and calls from it, eagerly and inside ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from interop.dtypes import DTYPES
from interop.operators._call import Call
from interop.operators._errors import OperatorError
from interop.operators._operator import Operator, run
from interop.operators._shapes import infer as infer_results
from interop.operators._shapes import infer_symbolic
from interop.signature import TensorSpec

__all__ = ["apply", "differentiate", "infer", "zeros_like"]

_UNKNOWN = "unknown"
_TRY = 4  # what an unknown size is tried at

zeros_like = tf.zeros_like


# Bodies


def differentiate(
    made: Operator, function: Callable[..., list[Any]], inputs: int, wrt: tuple[int, ...]
) -> Callable[..., list[Any]]:
    """The vector-Jacobian product of a function of flat tensors, by a tape."""

    def gradient(*tensors: Any) -> list[Any]:
        # Identities: one object twice among the inputs would count twice.
        primals = [tf.identity(tensor) if index in wrt else tensor for index, tensor in enumerate(tensors[:inputs])]
        sources = [primals[index] for index in wrt]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            results = [result for result in function(*primals) if _floats(result)]
        found = tape.gradient(
            results, sources, list(tensors[inputs:]), unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return [tf.convert_to_tensor(value) for value in found]

    return gradient


def _floats(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def infer(made: Operator, call: Call, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """By tracing the body."""
    wanted = [tf.TensorSpec(spec.shape, DTYPES[spec.dtype].tensorflow) for spec in specs]
    try:
        results = tf.function(made.at(call), autograph=False).get_concrete_function(*wanted).structured_outputs
    except (tf.errors.OpError, ValueError, TypeError, NotImplementedError) as error:
        raise OperatorError(
            f"the shapes of {made.name!r} cannot be told before it runs ({str(error).strip().splitlines()[0][:200]}); give "
            "the operator a shape="
        ) from error
    return [TensorSpec("", result.dtype.name, _dims(result.shape)) for result in results]


def _dims(shape: Any) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


# Calls from TensorFlow


def apply(made: Operator, call: Call, tensors: Sequence[Any]) -> list[Any]:
    """Call with a gradient that is such a call again, so that tapes nest."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def step(*given: Any) -> Any:
        results = _forward(made, call, given)

        def gradient(*upstream: Any) -> list[Any]:
            wrt = tuple(index for index, tensor in enumerate(given) if _floats(tensor))
            cotangents = [value for value, result in zip(upstream, results) if _floats(result)]
            found = dict(zip(wrt, apply(made, call.derive(len(given), wrt), [*given, *cotangents])))
            return [found.get(index) for index in range(len(given))]

        return tuple(results), gradient

    # Identities: the graph of a gradient takes tensors of the forward graph as inputs of its operators, not of ours.
    return list(step(*[tf.identity(tensor) for tensor in tensors]))


def _forward(made: Operator, call: Call, tensors: Sequence[Any]) -> list[Any]:
    if tf.executing_eagerly():
        return run(made, call, tensors, "tensorflow")
    kinds = _results_of(made, call, tensors)
    results = tf.py_function(lambda *given: run(made, call, given, "tensorflow"), tensors, [kind for kind, _ in kinds])
    for result, (_, shape) in zip(results, kinds):
        result.set_shape(shape)
    return list(results)


def _results_of(made: Operator, call: Call, tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Dtype and static shape of each result, inferred where the inputs' sizes are known, else at two sizes."""
    if call.derivatives:
        return [(tensors[index].dtype, tensors[index].shape) for index in call.derivatives[-1].wrt]
    if any(tensor.shape.rank is None for tensor in tensors):
        raise OperatorError(f"{made.name!r} was given a tensor of unknown rank; call tf.ensure_shape on it first")
    unknown = any(size is None for tensor in tensors for size in tensor.shape)

    def infer_at(values: Mapping[str, int]) -> Sequence[TensorSpec]:
        return infer_results(made, call, tuple(_spec_at(tensor, values.get(_UNKNOWN)) for tensor in tensors))

    found = infer_symbolic(infer_at, {_UNKNOWN: _TRY} if unknown else {})
    shapes = [[None if dim is None or dim.slopes else dim.constant for dim in dims] for _, dims in found]
    return [(tf.as_dtype(DTYPES[dtype].tensorflow), shape) for (dtype, _), shape in zip(found, shapes)]


def _spec_at(tensor: Any, size: int | None) -> TensorSpec:
    return TensorSpec("", tensor.dtype.name, tuple(size if dim is None else dim for dim in tensor.shape))
