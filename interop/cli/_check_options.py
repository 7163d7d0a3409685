"""The options of ``interop check`` in the form that ``interop.check`` takes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from interop.cli._common import CliError, read_arrays, restore_dtypes

__all__ = [
    "families_of",
    "lost_dtypes",
    "parse_sizes",
    "parse_tolerance",
    "read_batches",
    "restore_batches",
    "spread_sizes",
]

Batch = dict[str, np.ndarray]

_SIZES = re.compile(r"(?P<symbol>[^=\s]+)=(?P<sizes>\d+(,\d+)*)")


def parse_tolerance(words: Sequence[str] | None, option: str) -> float | dict[str, float] | None:
    """``--atol 1e-4``, ``--atol logits=1e-3`` or several of them; a number alone is for all outputs that have none.

    Raises:
        typer.BadParameter: not a number, negative, or two numbers for the same outputs.
    """
    found: dict[str, float] = {}
    for word in words or ():
        pattern, _, number = word.rpartition("=")
        with contextlib.suppress(ValueError):
            value = float(number)
            if value >= 0 and (pattern or "*") not in found:
                found[pattern or "*"] = value
                continue
        raise typer.BadParameter(
            f"{word!r} is not a number of at least 0 or OUTPUT=NUMBER, once for each output", param_hint=option
        )
    if set(found) <= {"*"}:
        return found.get("*")
    return {pattern: found[pattern] for pattern in sorted(found, key="*".__eq__)}  # "*" last: it fits everything


def parse_sizes(words: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """``--sizes batch=1,3,7`` as ``{symbol: sizes}``.

    Raises:
        CliError: another form, or the numbers of sizes do not go together.
    """
    found: dict[str, tuple[int, ...]] = {}
    for word in words or ():
        match = _SIZES.fullmatch(word)
        if match is None or match["symbol"] in found:
            raise CliError(f"--sizes {word} is not SYMBOL=SIZE,..., once for each symbol", "write --sizes batch=1,3,7")
        found[match["symbol"]] = tuple(int(size) for size in match["sizes"].split(","))
    if len({len(sizes) for sizes in found.values() if len(sizes) > 1}) > 1:
        raise CliError(
            f"--sizes gives {', '.join(f'{len(sizes)} of {symbol}' for symbol, sizes in found.items())}, which are paired",
            "give each symbol one size, or as many as the others",
        )
    return found


def spread_sizes(asked: Mapping[str, Sequence[int]], models: Sequence[Any]) -> list[dict[str, int]] | None:
    """One dict of all symbols for each size, the first with the first and so on; None where nothing was asked.

    Args:
        asked: what ``parse_sizes`` gives.
        models: the reference and the candidates.

    Raises:
        CliError: no input has such a symbol.
    """
    if not asked:
        return None
    from interop.parity.cases import first_signature
    from interop.parity.inputs import base_symbols, default_sizes
    from interop.parity.witness import witness_of

    reference, *candidates = (witness_of(model) for model in models)
    signature = first_signature(reference, candidates)
    symbols = () if signature is None else base_symbols(signature)
    if unknown := [symbol for symbol in asked if symbol not in symbols]:
        raise CliError(
            f"--sizes names {', '.join(unknown)}, and the symbolic dimensions are {', '.join(symbols) or 'none'}",
            "interop inspect MODEL shows names, dtypes and shapes of its inputs",
        )
    count = max(map(len, asked.values()))
    given = {symbol: [*sizes] * (count if len(sizes) == 1 else 1) for symbol, sizes in asked.items()}
    rest = default_sizes(symbols)[0]
    return [rest | {symbol: sizes[n] for symbol, sizes in given.items()} for n in range(count)]


def families_of(*, quick: bool, nonfinite: bool) -> tuple[str, ...]:
    """The kinds of inputs to make."""
    from interop.parity.inputs import FULL, QUICK

    return (*(QUICK if quick else FULL), *(("nonfinite",) if nonfinite else ()))


def read_batches(paths: Sequence[Path] | None, rows: int | None) -> dict[str, Batch] | None:
    """The batches of ``--inputs`` by name: each file is one, or so many rows of it where ``rows`` is given.

    Raises:
        CliError: a file cannot be read, or its arrays have no common number of rows.
    """
    if not paths:
        return None
    found: dict[str, Batch] = {}
    for path in paths:
        arrays = read_arrays(path)
        for name, batch in [(path.name, arrays)] if rows is None else _split(path, arrays, rows):
            found[name if name not in found else f"{name} #{len(found) + 1}"] = batch
    return found


def _split(path: Path, arrays: Batch, rows: int) -> Iterator[tuple[str, Batch]]:
    counts = {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}
    total = next(iter(counts.values()), None)
    if not total or set(counts.values()) != {total}:
        listed = ", ".join(f"{name} {'no' if count is None else count}" for name, count in counts.items())
        raise CliError(
            f"{path} cannot be cut into batches of rows; its arrays have these: {listed or 'it holds none'}",
            "leave --batch-size out, or store arrays with the same number of rows",
        )
    for start in range(0, total, rows):
        end = min(start + rows, total)
        yield f"{path.name}[{start}:{end}]", {name: array[start:end] for name, array in arrays.items()}


def lost_dtypes(batches: Mapping[str, Batch] | None) -> bool:
    """True where an array is raw bytes: NumPy stores bfloat16 and float8 so."""
    return any(array.dtype.kind == "V" for batch in (batches or {}).values() for array in batch.values())


def restore_batches(batches: Mapping[str, Batch] | None, models: Sequence[Any]) -> dict[str, Batch] | None:
    """Give arrays the dtype back that ``.npz`` lost, as the models' signatures have it."""
    if batches is None:
        return None
    restored = dict(batches)
    if lost_dtypes(batches):
        from interop.runtimes import load

        for runtime in [load(model) for model in models]:
            restored = {name: restore_dtypes(batch, runtime) for name, batch in restored.items()}
    return restored
