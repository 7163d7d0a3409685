"""``interop run``: run a model on the arrays of an ``.npz`` file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interop.cli._common import CliError, read_arrays, require_folder, restore_dtypes, say, working, write_arrays
from interop.cli._spec import TRUST
from interop.specs import resolve

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["run"]

FIRST = 4


def run(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="package.module:attribute, file.py:attribute, an .onnx, .keras, .pt2 or .tflite file, or the folder of a "
            "SavedModel or LibTorch project.",
        ),
    ],
    inputs: Annotated[Path, typer.Option("--inputs", help="An .npz file with one array per input name.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write the outputs to this .npz file.")] = None,
    runtime: Annotated[
        str | None, typer.Option("--runtime", help="Run with this runtime, such as onnxruntime.")
    ] = None,
    trust: TRUST = False,
) -> None:
    """Run a model once and show its outputs."""
    arrays = read_arrays(inputs)
    if out is not None:
        require_folder(out)
    if runtime is not None:
        _require_runtime(runtime)
    with working(f"running {model}"):
        import interop

        opened = interop.load(resolve(model, trust=trust).value, runtime=runtime)
        outputs = opened.run(restore_dtypes(arrays, opened))
    if out is not None:
        write_arrays(out, outputs)
    say(_table(outputs))


def _require_runtime(name: str) -> None:
    from interop.runtimes import available_runtimes

    if name not in available_runtimes():
        raise CliError(f"no runtime is called {name!r}", f"give --runtime one of {', '.join(available_runtimes())}")


def _table(outputs: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table("output", "dtype", "shape", "first values", box=None, pad_edge=False)
    for name, array in outputs.items():
        values = ", ".join(f"{value:.6g}" if array.dtype.kind == "f" else str(value) for value in array.flat[:FIRST])
        table.add_row(name, str(array.dtype), str(list(array.shape)), values + (", ..." if array.size > FIRST else ""))
    return table
