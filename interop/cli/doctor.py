"""``interop doctor``: what is installed, what is known to go wrong, what the frameworks can share."""

from __future__ import annotations

from typing import Annotated

import typer

from interop.cli._common import say, working, write_out

__all__ = ["doctor"]


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Look at versions only; import no framework.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine this installation.

    Versions, what is known to go wrong with them, what can be done here, and which frameworks share memory.
    """
    import interop

    with working("importing the frameworks and trying every pair"):
        report = interop.doctor(quick=quick)
    if json:
        write_out(report.to_json(indent=2) + "\n")
    else:
        say(report)
