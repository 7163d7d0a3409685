"""What the formats of lower precision share: the words, the typical inputs, and the distance to the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import interop
from exporters._request import ExportRequest
from exporters._samples import sample_batches
from exporters.errors import OptionsError, TranslationError
from interop import Runtime, Signature

__all__ = ["PRECISIONS", "bound", "check_options", "example_of", "holds_mark", "measured"]

PRECISIONS = ("float32", "float16", "int8")

_MARK = 1e4
"""What masks add to scores to hide them goes from here (-1e4, -1e9, the lowest float) to minus infinity."""


def holds_mark(span: Any) -> bool:
    """Whether a range that int8 would cover in 255 steps holds the mark of a mask, beside which other values are all the same.

    Args:
        span: one or several ranges, from the lowest value to the highest; an activation's, not a weight's.
    """
    return not np.max(span) < _MARK  # not a number is one too


def check_options(precision: str, representative: Any) -> None:
    """Refuse options that do not fit each other.

    Raises:
        OptionsError: an unknown precision, or representative batches for another one than int8.
    """
    if precision not in PRECISIONS:
        raise OptionsError(f"precision is one of {', '.join(PRECISIONS)}, got {precision!r}")
    if representative is not None and precision != "int8":
        raise OptionsError(f"representative batches are for precision='int8', got {precision!r}")


def bound(signature: Signature, batches: Iterable[Any] | None) -> Iterator[dict[str, Any]]:
    """Each batch, which may be a tensor, a tuple of positional arguments or a dict by name, as ``{input name: tensor}``."""
    for batch in batches if batches is not None else ():
        if isinstance(batch, Mapping):
            flat = set(batch) == set(signature.input_names)
            yield dict(batch) if flat else signature.bind((), batch)
        else:
            yield signature.bind(batch if isinstance(batch, tuple) else (batch,), {})


def example_of(request: ExportRequest, signature: Signature) -> list[dict[str, Any]]:
    """The example at the sizes that every export is checked at; nothing where the source has no example."""
    if not request.args and not request.kwargs:
        return []
    return sample_batches(signature, request.args, request.kwargs)


def measured(reference: Runtime, candidate: Runtime, inputs: Sequence[Any], precision: str) -> Iterator[str]:
    """One sentence an output: how far the file is from the float32 model, at its worst over the inputs.

    Args:
        reference: the float32 model.
        candidate: the file.
        inputs: flat inputs by name; where there are none, inputs are made from the signature.
        precision: the word for the file.

    Raises:
        TranslationError: the file does not run.
    """
    report = interop.check(reference, candidate, inputs=inputs or None, atol=0.0, rtol=0.0)
    for failure in report.failures:
        if failure.error:
            raise TranslationError(f"the {precision} file does not run on inputs {failure.case!r}: {failure.error}")
    for name, output in report.outputs.items():
        if output.dtype.startswith(("float", "bfloat", "complex")):
            yield (
                f"{precision}: output {name!r} differs from the float32 model by {output.max_abs:.3g} at most, where its "
                f"largest value is {output.scale:.3g}: {output.snr_db:.1f} dB signal to noise"
            )
        else:
            yield f"{precision}: output {name!r} differs from the float32 model in {output.mismatches} of {output.size} values"
