"""Further batches for the check: the example at other sizes of the symbolic dims.

They are made by repeating rows of the example, so that token numbers, masks and ranges stay as valid as they are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interop import Signature
from interop.extras import require

__all__ = ["sample_batches"]


def sample_batches(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Flat inputs for each size to check: the example's own, all symbols larger, and a batch of one.

    Args:
        signature: the exported signature, with the structure of the arguments.
        args: the example's positional arguments.
        kwargs: its keyword arguments.
    """
    example = signature.bind(args, kwargs)
    sizes = _example_sizes(signature, example)
    batches = [_resized(signature, example, sizes)]
    if sizes:
        batches.append(_resized(signature, example, {name: size + 1 for name, size in sizes.items()}))
    first = next(iter(sizes), None)
    if first is not None and sizes[first] > 1:
        batches.append(_resized(signature, example, sizes | {first: 1}))
    return batches


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
