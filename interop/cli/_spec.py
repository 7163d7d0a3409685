"""The argument and the option that every command with a model has; what a SPEC is, ``interop.specs`` knows."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["MODEL", "TRUST"]

MODEL = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="package.module:attribute or file.py:attribute (a model, or a function that returns one), "
        "an .onnx, .keras or .pt2 file, or a SavedModel folder.",
    ),
]

TRUST = Annotated[
    bool,
    typer.Option(
        "--trust", help="Also read files with pickles, Python or compiled code in them, which can run anything."
    ),
]
