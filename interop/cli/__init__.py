"""The command line: ``interop export``, ``check``, ``run``, ``inspect``, ``tune`` and ``doctor``.

Exit status: 0 fine, 1 parity failed, 2 usage or bad input, 130 interrupted. Errors are two lines on stderr (what is
wrong, what to do next); ``interop --debug COMMAND`` shows the traceback instead.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from interop import __version__
from interop.cli import check, doctor, export, inspect, run, tune
from interop.cli._common import explain_error, quiet

__all__ = ["app", "main"]

FINE, BAD_INPUT, INTERRUPTED = 0, 2, 130

app = typer.Typer(
    name="interop",
    help="Export models, run them anywhere without copies, and prove they are the same function.",
    rich_markup_mode=None,  # plain help: drawing it with rich takes twice as long as everything else together
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("export")(export.export)
app.command("check")(check.check)
app.command("run")(run.run)
app.command("inspect")(inspect.inspect)
app.command("tune")(tune.tune)
app.command("doctor")(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tensor-interop {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks, warnings and framework logs.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Export models, run them anywhere without copies, and prove they are the same function."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        args: the arguments after the program's name; those of the process where left out.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if args is None else args) or ["--help"]
    debug = "--debug" in itertools.takewhile(lambda word: word.startswith("-"), given)
    try:
        with quiet(enabled=not debug):
            status = app(given, prog_name="interop", standalone_mode=False)
        return status if isinstance(status, int) else FINE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever a user's model raises becomes two lines
        if debug:
            traceback.print_exc()
        else:
            what, step = explain_error(error)
            typer.echo(f"error: {what}\nnext: {step}", err=True)
        return BAD_INPUT
