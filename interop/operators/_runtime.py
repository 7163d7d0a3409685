"""A loaded model as an operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from interop.operators._errors import OperatorError
from interop.operators._operator import Operator, register
from interop.runtimes import Runtime
from interop.signature import Signature, TensorSpec

__all__ = ["bind", "make_operator", "shapes_of"]

_NUMBERS = itertools.count(1)


def make_operator(function: Callable[..., Any], framework: str, name: str | None, shape: Any = None) -> Operator:
    """An operator over a function made at run time; unnamed ones are numbered."""
    made = Operator(function, framework, name or f"model_{next(_NUMBERS)}", shape)
    register(made)
    return made


def bind(signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """``{input name: tensor}`` of a call."""
    if signature.arguments is None and not kwargs and len(args) == len(signature.inputs):
        return {spec.name: value for spec, value in zip(signature.inputs, args)}
    return signature.bind(args, kwargs)


def shapes_of(runtime: Runtime) -> Callable[..., dict[str, TensorSpec]]:
    """The shape function of a model, from its signature: ``(inputs, ...) -> {output name: spec}``."""
    signature = runtime.signature
    odd = [str(spec) for spec in (*signature.inputs, *signature.outputs) if spec.kind != "tensor"]
    if odd:
        raise OperatorError(f"a layer takes and gives tensors only; {runtime!r} has {', '.join(odd)}")

    def shape(inputs: Mapping[str, TensorSpec], *_: Any) -> dict[str, TensorSpec]:
        sizes: dict[Any, Any] = {}
        for spec in signature.inputs:
            given = inputs[spec.name].shape
            if spec.shape is not None and given is not None:
                sizes |= {dim: size for dim, size in zip(spec.shape, given) if isinstance(dim, str)}
        return {
            spec.name: TensorSpec(
                spec.name,
                spec.dtype,
                None
                if spec.shape is None
                else tuple(dim if isinstance(dim, int) else sizes.get(dim) for dim in spec.shape),
            )
            for spec in signature.outputs
        }

    return shape
