"""The option that every command with a SPEC has; what a SPEC is, ``interop.specs`` knows."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["TRUST"]

TRUST = Annotated[
    bool,
    typer.Option(
        "--trust", help="Also read torch files with pickles or compiled code in them, which can run anything."
    ),
]
