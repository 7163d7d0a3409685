"""``interop check``: are these models the same function?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from interop.cli._common import read_arrays, require_folder, say, working, write_text
from interop.cli._spec import TRUST, resolve

__all__ = ["check"]

PARITY_FAILED = 1


def check(
    reference: Annotated[str, typer.Argument(metavar="REF", help="What is right: a SPEC or a model file.")],
    candidates: Annotated[list[str], typer.Argument(metavar="CANDIDATE", help="SPECs or model files to compare.")],
    inputs: Annotated[Path | None, typer.Option("--inputs", help="An .npz file with one array per input name.")] = None,
    atol: Annotated[
        float | None, typer.Option("--atol", min=0, help="Absolute tolerance, in place of the noise.")
    ] = None,
    rtol: Annotated[
        float | None, typer.Option("--rtol", min=0, help="Relative tolerance, in place of the noise.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the inputs that are made up.")] = 0,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write the report to this file as JSON; - is stdout.")
    ] = None,
    trust: TRUST = False,
) -> None:
    """Decide whether models are the same function.

    Exits with 1 unless every CANDIDATE agrees with REF. A difference is allowed as far as float arithmetic explains it,
    measured on REF itself, unless --atol or --rtol say otherwise. Without --inputs, they are made from the signatures.
    """
    arrays = None if inputs is None else read_arrays(inputs)
    if json is not None:
        require_folder(json)
    with working(f"comparing {', '.join(candidates)} with {reference}"):
        import interop

        models = [resolve(word, trust=trust).value for word in (reference, *candidates)]
        labels = [Path(word).name for word in candidates]
        report = interop.check(*models, inputs=arrays, names=labels, atol=atol, rtol=rtol, seed=seed)
    if json is not None:
        write_text(json, report.to_json(indent=2) + "\n")
    if json != Path("-"):
        say(report)
    if not report.passed:
        raise typer.Exit(PARITY_FAILED)
