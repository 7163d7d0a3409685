"""Compare an export with the original at several sizes, leaving out those that the original itself refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import interop
from exporters._exported import ExportedModel
from exporters._samples import one_dim_larger, sample_batches, sizes_of
from interop.errors import InputError

__all__ = ["compare"]


def compare(
    reference: Any, exported: ExportedModel, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[interop.ParityReport, tuple[str, ...]]:
    """The report on the example, at its own size and at others, and a sentence for each size that the original refuses.

    Raises:
        InputError: the original refuses the example itself.
    """
    signature = exported.signature
    batches = sample_batches(signature, args, kwargs)
    try:
        return interop.check(reference, exported, inputs=batches), ()
    except InputError as error:
        if len(batches) == 1:
            raise
        refused = _refusal(reference, exported, batches[0])
        if refused is not None:
            raise refused from error
    kept, skipped = batches[:1], dict[str, str]()
    for batch in [*batches[1:], *one_dim_larger(signature, args, kwargs)]:
        refused = _refusal(reference, exported, batch)
        if refused is None:
            kept.append(batch)
        else:
            skipped[sizes_of(signature, batch)] = f"the original refuses it: {_cause(refused)}"
    report = interop.check(reference, exported, inputs=kept)
    notices = tuple(f"not compared at {sizes}: {reason}" for sizes, reason in skipped.items())
    return replace(report, skipped=report.skipped | skipped), notices


def _refusal(reference: Any, exported: ExportedModel, batch: Mapping[str, Any]) -> InputError | None:
    """The error of the original on these inputs, or None where it takes them."""
    try:
        interop.check(reference, exported, inputs=[batch], locate=False, witnesses=False)
    except InputError as error:
        return error
    return None


def _cause(error: InputError) -> str:
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[0] if lines else ''}"[:200]
