"""The arguments and options of ``interop check``: their types, and what its help says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_FILE = "; - is stdout."

REFERENCE = Annotated[
    str | None,
    typer.Argument(
        metavar="REF",
        help="What is right: package.module:attribute, file.py:attribute or a model file.",
        show_default=False,
    ),
]
CANDIDATES = Annotated[
    list[str] | None,
    typer.Argument(metavar="CANDIDATE...", help="What to compare with it, named likewise.", show_default=False),
]
INPUTS = Annotated[
    list[Path] | None,
    typer.Option("--inputs", help="An .npz file with one array per input name; once for each batch."),
]
BATCH_SIZE = Annotated[
    int | None, typer.Option("--batch-size", min=1, help="Cut each --inputs file into batches of so many rows.")
]
QUICK = Annotated[bool, typer.Option("--quick", help="Make normal values only, in place of all families of inputs.")]
NONFINITE = Annotated[bool, typer.Option("--nonfinite", help="Also make inputs with NaN and infinities.")]
SIZES = Annotated[
    list[str] | None,
    typer.Option("--sizes", help="Sizes of a symbolic dimension, such as batch=1,3,7; once for each symbol."),
]
SEED = Annotated[int, typer.Option("--seed", min=0, help="Seed of the inputs that are made up.")]
ATOL = Annotated[
    list[str] | None,
    typer.Option("--atol", help="Absolute tolerance, in place of the noise: 1e-4, or OUTPUT=1e-4 with wildcards."),
]
RTOL = Annotated[list[str] | None, typer.Option("--rtol", help="Relative tolerance, in place of the noise, likewise.")]
ISOLATE = Annotated[
    bool, typer.Option("--isolate", help="Run each CANDIDATE in a process of its own: a crash is a failure.")
]
TIMEOUT = Annotated[
    float | None, typer.Option("--timeout", help="Seconds for one run of an isolated candidate; 300 by default.")
]
RAY = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Spread over a Ray cluster; local starts one here.")
]
SAVE = Annotated[
    Path | None, typer.Option("--save", metavar="FOLDER", help="Keep inputs and outputs in this new folder.")
]
REPLAY = Annotated[
    Path | None, typer.Option("--replay", metavar="FOLDER", help="Judge what --save kept again; nothing is run.")
]
JSON = Annotated[Path | None, typer.Option("--json", help=f"Write the report as JSON{_FILE}")]
JUNIT = Annotated[Path | None, typer.Option("--junit", help=f"Write it as JUnit XML{_FILE}")]
MARKDOWN = Annotated[Path | None, typer.Option("--markdown", help=f"Write it as Markdown{_FILE}")]
HTML = Annotated[Path | None, typer.Option("--html", help=f"Write it as one HTML page{_FILE}")]
GITHUB = Annotated[bool, typer.Option("--github", help="Print GitHub annotations and append to $GITHUB_STEP_SUMMARY.")]
