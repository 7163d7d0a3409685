"""``interop inspect``: what a model file holds, without running it."""

from __future__ import annotations

import contextlib
import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interop.cli._common import human_bytes, say, say_json, working
from interop.cli._spec import MODEL, TRUST
from interop.specs import is_project, resolve

if TYPE_CHECKING:
    from rich.table import Table

    from interop.cli._describe import Description
    from interop.signature import TensorSpec

__all__ = ["inspect"]

VALUE_LIMIT = 100  # characters of a metadata value that are shown


def inspect(
    model: MODEL,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    trust: TRUST = False,
) -> None:
    """Show what a model holds, without running it.

    Format, signature, opsets, operators, parameters and metadata.
    """
    with working(f"reading {model}"):
        from interop.cli._describe import describe

        path = Path(model)
        description = describe(path if is_project(path) else resolve(model, trust=trust).value)
    if json:
        say_json(description.to_json())
    else:
        say(_table(description))


def _table(description: Description) -> Table:
    from rich.table import Table

    size = "" if description.file_bytes is None else f", {human_bytes(description.file_bytes)}"
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("format", description.format + size)
    if description.signature is not None:
        _add_specs(table, "inputs", description.signature.inputs)
        _add_specs(table, "outputs", description.signature.outputs)
    if description.opsets:
        table.add_row("opsets", ", ".join(f"{domain} {version}" for domain, version in description.opsets.items()))
    if description.operators is not None:
        counts = sorted(description.operators.items(), key=lambda item: (-item[1], item[0]))
        table.add_row(
            "operators", f"{sum(description.operators.values())}: " + ", ".join(f"{n} {c}" for n, c in counts)
        )
    if description.parameters is not None and description.parameter_bytes is not None:
        bytes_ = human_bytes(description.parameter_bytes)
        table.add_row("parameters", f"{description.parameters:,} in {description.tensors} tensors, {bytes_}")
    for key, value in description.metadata.items():
        table.add_row(key.removeprefix("tensor_interop.").replace("_", " "), _shorten(value))
    return table


def _shorten(value: str) -> str:
    """One line of a metadata value; a JSON object as ``key value`` pairs."""
    text = " ".join(value.split())
    with contextlib.suppress(ValueError, RecursionError):
        data = json_module.loads(text)
        if isinstance(data, dict):
            text = ", ".join(f"{key} {item}" for key, item in data.items())
    return text if len(text) <= VALUE_LIMIT else f"{text[:VALUE_LIMIT]}... ({len(value)} characters)"


def _add_specs(table: Table, title: str, specs: tuple[TensorSpec, ...]) -> None:
    for position, spec in enumerate(specs or ("none",)):
        table.add_row("" if position else title, str(spec))
