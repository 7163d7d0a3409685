"""Names for the dims that TensorFlow leaves open, found by running the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from interop import Signature, TensorSpec
from interop.errors import InteropError
from interop.parity.inputs import make_case

__all__ = ["with_symbols"]

_FIRST = (2, 3, 5, 7, 11, 13, 17, 19)
_SECOND = (4, 6, 9, 10, 14, 15, 21, 22)
"""Sizes for open dims, no two equal, so that a dim of a result tells where it comes from."""


def with_symbols(runtime: Any) -> Signature:
    """The runtime's signature with a symbol for each open dim.

    Dim 0 of the inputs is ``batch``. TensorFlow does not say which open dims have to be equal: each is taken for its own where
    the model runs with all of them different, otherwise dims of the same axis are one. An open dim of a result gets the
    symbol that has its size in two runs.
    """
    signature: Signature = runtime.signature
    if not any(None in (spec.shape or ()) for spec in (*signature.inputs, *signature.outputs)):
        return signature
    tried = [_named(signature, shared=shared) for shared in ((True, False) if _is_one(signature) else (False, True))]
    for candidate in tried:
        runs = [_run(runtime, candidate, sizes) for sizes in (_FIRST, _SECOND)]
        if all(found is not None for found in runs):
            return replace(candidate, outputs=_outputs(candidate, runs))
    return tried[-1]


def _is_one(signature: Signature) -> bool:
    return len(signature.inputs) == 1


def _named(signature: Signature, *, shared: bool) -> Signature:
    count = sum(None in (spec.shape or ()) for spec in signature.inputs)
    inputs = tuple(replace(spec, shape=_dims(spec, shared, count)) for spec in signature.inputs)
    return replace(signature, inputs=inputs)


def _dims(spec: TensorSpec, shared: bool, count: int) -> tuple[Any, ...] | None:
    if spec.shape is None:
        return None
    own = "" if shared or count == 1 else f"{_identifier(spec.name)}_"
    return tuple(
        (f"{own}batch" if axis == 0 else f"{own}dim_{axis}") if dim is None else dim
        for axis, dim in enumerate(spec.shape)
    )


def _identifier(name: str) -> str:
    safe = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
    return safe if safe[:1].isalpha() else f"input_{safe}"


Run = tuple[Mapping[str, int], Mapping[str, tuple[int, ...]]]


def _run(runtime: Any, signature: Signature, sizes: Sequence[int]) -> Run | None:
    """The size of each symbol and the shape of each output; None where the model does not run like that."""
    symbols = signature.symbols
    if len(symbols) > len(sizes) or any(spec.shape is None for spec in signature.inputs):
        return None
    chosen = dict(zip(symbols, sizes))
    try:
        outputs = runtime.run(dict(make_case(signature, "normal", chosen).tensors))
    except InteropError:
        return None
    return chosen, {name: tuple(value.shape) for name, value in outputs.items()}


def _outputs(signature: Signature, runs: Sequence[Any]) -> tuple[TensorSpec, ...]:
    return tuple(
        replace(spec, shape=tuple(_symbol(dim, spec.name, axis, runs) for axis, dim in enumerate(spec.shape)))
        if spec.shape is not None
        else spec
        for spec in signature.outputs
    )


def _symbol(dim: Any, name: str, axis: int, runs: Sequence[Run]) -> Any:
    if dim is not None:
        return dim
    matching = [{symbol for symbol, size in chosen.items() if shapes[name][axis] == size} for chosen, shapes in runs]
    return next(iter(sorted(set.intersection(*matching))), None)
