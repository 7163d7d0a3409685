"""The inputs of a check: what the caller gave, or the reference's example and a made suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from interop.errors import InputError
from interop.parity.inputs import QUICK, Case, Range, base_symbols, default_sizes, is_complete, make_case, make_suite
from interop.parity.vocabulary import module_ranges, onnx_ranges
from interop.parity.witness import ModuleWitness, Witness, naming_of, positional_names
from interop.signature import Signature

__all__ = ["Suite", "first_signature", "given_cases", "made_cases"]

GIVE = "give inputs={name: tensor} or inputs=(tensor, ...)"


@dataclass(frozen=True)
class Suite:
    """What inputs to make.

    Attributes:
        families: kinds of values, out of ``interop.parity.inputs.FAMILIES``.
        sizes: sizes of the symbolic dims, one dict a size; None for three default ones.
        ranges: ``{input name or wildcard: (low, high)}`` of integer inputs.
    """

    families: Sequence[str] = QUICK
    sizes: Sequence[Mapping[str, int]] | None = None
    ranges: Mapping[str, Range] | None = None


def first_signature(reference: Witness, candidates: Sequence[Witness]) -> Signature | None:
    """The signature that inputs are named by: the first complete one, candidates first."""
    witnesses = [*candidates, reference]
    signatures = [naming for naming in (naming_of(reference, witness) for witness in witnesses) if naming is not None]
    complete = [signature for signature in signatures if is_complete(signature)]
    return next(iter(complete or signatures), None)


def given_cases(inputs: Any, reference: Witness, candidates: Sequence[Witness]) -> Iterator[Case]:
    """The caller's inputs as cases.

    Args:
        inputs: one batch (a dict by name, a tuple by position, or a tensor) or an iterable of batches.
        reference: the model that is right.
        candidates: the models whose names count.

    Raises:
        InputError: something else, or a batch that fits no model.
    """
    for position, batch in enumerate(_batches(inputs)):
        args, kwargs = _arguments(batch)
        if isinstance(reference, ModuleWitness):
            reference.record(args, kwargs)
        yield _case(f"batch {position}", args, kwargs, reference, candidates)


def _case(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], reference: Witness, candidates: Sequence[Witness]
) -> Case:
    """One call under the names of each model.

    Raises:
        InputError: the arguments fit no model.
    """
    found: dict[Any, dict[str, Any]] = {}
    misfits: dict[Any, InputError] = {}
    unsure = isinstance(reference, ModuleWitness) and reference.signature is None  # such a one has no names of its own
    for witness in candidates if unsure else (*candidates, reference):
        try:
            found[witness] = _bind(args, kwargs, naming_of(reference, witness), reference)
        except InputError as error:
            misfits[witness] = error
    if isinstance(reference, ModuleWitness):
        fits = bool(found) or (unsure and reference.accepts(args, kwargs))
    else:
        fits = reference in found
    if not fits:
        raise next(iter(misfits.values()))
    tensors = next(iter(found.values())) if found else _bind(args, kwargs, None, reference)
    others = {witness: bound for witness, bound in found.items() if list(bound) != list(tensors)}
    return Case(name, tensors, others, {witness: str(error) for witness, error in misfits.items()})


def _batches(inputs: Any) -> Iterable[Any]:
    if isinstance(inputs, (Mapping, tuple)) or hasattr(inputs, "shape"):
        return [inputs]
    if isinstance(inputs, Iterable) and not isinstance(inputs, (str, bytes)):
        return inputs
    raise InputError(f"inputs are a dict, a tuple, a tensor, or an iterable of those; got {type(inputs).__name__}")


def _bind(
    args: tuple[Any, ...], kwargs: dict[str, Any], signature: Signature | None, reference: Witness
) -> dict[str, Any]:
    """One call's arguments as ``{input name: tensor}``."""
    if signature is None or not signature.inputs:
        return dict(zip(positional_names(reference, len(args)), args)) | kwargs if args else kwargs
    if not args and set(kwargs) == set(signature.input_names):
        return {name: kwargs[name] for name in signature.input_names}
    return signature.bind(args, kwargs)


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})


def made_cases(
    model: Any, reference: Witness, candidates: Sequence[Witness], suite: Suite, seed: int
) -> Iterator[Case]:
    """The example inputs of the reference, where it has some, and a suite made from the first complete signature.

    Args:
        model: the reference as the caller gave it.
        reference: the same, ready to run.
        candidates: the models whose signatures count first.
        suite: what to make.
        seed: of the made values.

    Raises:
        InputError: there is neither an example nor a complete signature.
    """
    example = _example_case(model, reference, candidates)
    signature = first_signature(reference, candidates)
    if example is not None:
        yield example
    if signature is None or not is_complete(signature):
        if example is None:
            raise InputError(f"the models do not say what inputs they take; {GIVE}")
        return
    sizes = suite.sizes or default_sizes(base_symbols(signature), _sizes_of(example, signature))
    probe = example or make_case(signature, "normal", sizes[0], suite.ranges, seed)
    ranges = _example_ranges(example)
    for one in (*candidates, reference):
        ranges |= onnx_ranges(one.path)
    ranges |= module_ranges(reference, probe.tensors, signature) | dict(suite.ranges or {})
    yield from make_suite(signature, families=suite.families, sizes=sizes, ranges=ranges, seed=seed)


def _example_case(model: Any, reference: Witness, candidates: Sequence[Witness]) -> Case | None:
    """The module's ``example_inputs()`` with its ``example_kwargs()``, where it has them."""
    make, make_kwargs = (getattr(model, name, None) for name in ("example_inputs", "example_kwargs"))
    if not callable(make) or not isinstance(reference, ModuleWitness):
        return None
    args, kwargs = _arguments(make())
    kwargs |= make_kwargs() if callable(make_kwargs) else {}
    reference.record(args, kwargs)
    return _case("example", args, kwargs, reference, candidates)


def _sizes_of(example: Case | None, signature: Signature) -> dict[str, int]:
    """The sizes that the example gives to the symbols."""
    found: dict[str, int] = {}
    for spec in signature.inputs if example is not None else ():
        assert example is not None
        for dim, size in zip(spec.shape or (), getattr(example.tensors.get(spec.name), "shape", ())):
            if isinstance(dim, str):
                found.setdefault(dim, int(size))
    return found


def _example_ranges(example: Case | None) -> dict[str, tuple[int, int]]:
    """Integer inputs stay inside what the example shows to be valid."""
    ranges = {}
    for name, tensor in (example.tensors if example is not None else {}).items():
        values = np.asarray(tensor) if hasattr(tensor, "shape") else np.empty(0)
        if values.dtype.kind in "iu" and values.size:
            ranges[name] = (int(values.min()), int(values.max()) + 1)
    return ranges
