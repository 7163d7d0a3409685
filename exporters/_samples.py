"""Further batches for the check: the example at other sizes of the symbolic dims.

They are made by repeating rows of the example, so that token numbers, masks and ranges stay as valid as they are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interop import Signature
from interop.extras import require

__all__ = ["one_dim_larger", "sample_batches", "sizes_of"]


def sample_batches(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Flat inputs for each size to check: the example's own, all symbols larger, and a batch of one.

    Args:
        signature: the exported signature, with the structure of the arguments.
        args: the example's positional arguments.
        kwargs: its keyword arguments.
    """
    example = signature.bind(args, kwargs)
    if not all(hasattr(value, "detach") for value in example.values()):
        return [example]  # sequences and strings stay as they are
    sizes = _example_sizes(signature, example)
    batches = [_resized(signature, example, sizes)]
    if sizes:
        batches.append(_resized(signature, example, {name: size + _step(name) for name, size in sizes.items()}))
    first = next(iter(sizes), None)
    if first is not None and sizes[first] > 1:
        batches.append(_resized(signature, example, sizes | {first: 1}))
    return batches


def one_dim_larger(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Flat inputs with one symbol larger at a time, for a model that does not take all of them larger at once."""
    example = signature.bind(args, kwargs)
    sizes = _example_sizes(signature, example)
    return [_resized(signature, example, sizes | {name: size + 1}) for name, size in sizes.items() if len(sizes) > 1]


def sizes_of(signature: Signature, batch: Mapping[str, Any]) -> str:
    """The sizes of the symbols in a batch: ``batch=1, sequence=8``."""
    return ", ".join(f"{name}={size}" for name, size in _example_sizes(signature, batch).items())


def _step(name: str) -> int:
    """How much larger a symbol is where all are; ``total_sequence`` counts what is cached and what is new."""
    return 2 if name.startswith("total_") else 1


def _example_sizes(signature: Signature, example: Mapping[str, Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for spec in signature.inputs:
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str) and dim.isidentifier():
                sizes.setdefault(dim, int(example[spec.name].shape[axis]))
    return sizes


def _resized(signature: Signature, example: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    torch = require("torch", "to make inputs")
    batch = {}
    for spec in signature.inputs:
        tensor = example[spec.name].detach()
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str) and dim in sizes and tensor.shape[axis] not in (0, sizes[dim]):
                rows = torch.arange(sizes[dim], device=tensor.device) % tensor.shape[axis]
                tensor = tensor.index_select(axis, rows)
        batch[spec.name] = tensor.clone()
    return batch
