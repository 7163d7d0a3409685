"""``interop check``: are these models the same function?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from interop.cli._check_arguments import (
    ATOL,
    BATCH_SIZE,
    CANDIDATES,
    GITHUB,
    HTML,
    INPUTS,
    ISOLATE,
    JSON,
    JUNIT,
    MARKDOWN,
    NONFINITE,
    QUICK,
    RAY,
    REFERENCE,
    REPLAY,
    RTOL,
    SAVE,
    SEED,
    SIZES,
    TIMEOUT,
)
from interop.cli._check_options import (
    families_of,
    lost_dtypes,
    parse_sizes,
    parse_tolerance,
    read_batches,
    restore_batches,
    spread_sizes,
)
from interop.cli._common import CliError, working
from interop.cli._reports import Destinations
from interop.cli._spec import TRUST
from interop.specs import is_spec, resolve

if TYPE_CHECKING:
    from interop.parity import ParityReport

__all__ = ["check"]

PARITY_FAILED = 1
TIMEOUT_S = 300.0


def check(
    context: typer.Context,
    reference: REFERENCE = None,
    candidates: CANDIDATES = None,
    inputs: INPUTS = None,
    batch_size: BATCH_SIZE = None,
    quick: QUICK = False,
    nonfinite: NONFINITE = False,
    sizes: SIZES = None,
    seed: SEED = 0,
    atol: ATOL = None,
    rtol: RTOL = None,
    isolate: ISOLATE = False,
    timeout: TIMEOUT = None,
    ray: RAY = None,
    save: SAVE = None,
    replay: REPLAY = None,
    json: JSON = None,
    junit: JUNIT = None,
    markdown: MARKDOWN = None,
    html: HTML = None,
    github: GITHUB = False,
    trust: TRUST = False,
) -> None:
    """Decide whether models are the same function.

    Exits with 1 unless every CANDIDATE agrees with REF. A difference is allowed as far as float arithmetic explains it,
    measured on REF itself, unless --atol or --rtol say otherwise. Without --inputs, they are made from the signatures.
    """
    destinations = Destinations(json, junit, markdown, html, github)
    destinations.require()
    tolerances = {"atol": parse_tolerance(atol, "--atol"), "rtol": parse_tolerance(rtol, "--rtol")}
    _require_arguments(context, reference, candidates, replay)
    if replay is not None:
        report = _replay(context, replay, tolerances)
    else:
        assert reference is not None and candidates is not None
        _require_sense(context)
        batches, asked = read_batches(inputs, batch_size), parse_sizes(sizes)
        made = {"families": families_of(quick=quick, nonfinite=nonfinite), "seed": seed}
        place = _Place(isolate, TIMEOUT_S if timeout is None else timeout, trust, ray)
        with working(f"comparing {', '.join(candidates)} with {reference}"):
            run = _check_on_ray if ray is not None else _check_here
            report = run((reference, *candidates), batches, asked, {**tolerances, **made, "save": save}, place)
    destinations.write(report)
    if not report.passed:
        raise typer.Exit(PARITY_FAILED)


@dataclass(frozen=True)
class _Place:
    """Where the candidates run."""

    isolate: bool
    timeout: float
    trust: bool
    ray: str | None


def _require_arguments(
    context: typer.Context, reference: str | None, candidates: list[str] | None, replay: Path | None
) -> None:
    if replay is None and (reference is None or not candidates):
        context.fail(f"Missing argument '{'REF' if reference is None else 'CANDIDATE...'}'.")
    if replay is not None and reference is not None:
        raise CliError(f"--replay judges what is in {replay}, and models were given", "leave one of them out")


_REPLAY_TAKES = ("replay", "atol", "rtol", "json", "junit", "markdown", "html", "github")


def _replay(context: typer.Context, folder: Path, tolerances: dict[str, Any]) -> ParityReport:
    other = [name for name, value in context.params.items() if value and name not in _REPLAY_TAKES]
    if other:
        raise CliError(f"--replay runs nothing, so --{other[0].replace('_', '-')} is of no use", "leave it out")
    with working(f"judging {folder}"):
        import interop

        return interop.replay(folder, **tolerances)


_OF_USE = (
    # option, the other option that it needs, whether it needs it to be there
    ("batch_size", "inputs", True),
    ("timeout", "isolate", True),
    ("quick", "inputs", False),
    ("nonfinite", "inputs", False),
    ("sizes", "inputs", False),
    ("save", "ray", False),
)


def _require_sense(context: typer.Context) -> None:
    """Refuse an option that would change nothing: it was given for a reason."""
    for option, other, needed in _OF_USE:
        given, present = context.params[option], bool(context.params[other])
        if given and present is not needed:
            word, how = f"--{option.replace('_', '-')}", "with" if needed else "without"
            raise CliError(f"{word} is of use {how} --{other} only", f"{'add' if needed else 'leave out'} --{other}")
    timeout = context.params["timeout"]
    if timeout is not None and not timeout > 0:
        raise typer.BadParameter(f"{timeout} is not above 0", ctx=context, param_hint="--timeout")


def _check_here(
    words: tuple[str, ...], batches: Any, sizes: dict[str, tuple[int, ...]], options: dict[str, Any], place: _Place
) -> ParityReport:
    import interop
    from interop.parity.isolate import Isolated, check_isolated
    from interop.parity.witness import witness_of

    with contextlib.ExitStack() as stack:
        models = [_open(words[0], place.trust)]
        naming = witness_of(models[0]).signature
        for word in words[1:]:
            if place.isolate:
                models.append(Isolated(word, timeout=place.timeout, trust=place.trust, naming=naming))
                stack.callback(models[-1].close)
            else:
                models.append(_open(word, place.trust))
        given = restore_batches(batches, models)
        options |= {
            "names": _labels(words[1:]),
            "inputs": None if given is None else list(given.values()),
            "sizes": spread_sizes(sizes, models),
        }
        run = check_isolated if place.isolate else interop.check
        return run(*models, **options)


def _labels(words: Sequence[str]) -> list[str]:
    """Short names, or whole words where those are not unique."""
    names = [Path(word).name for word in words]
    return [name if names.count(name) == 1 else word for name, word in zip(names, words)]


def _open(word: str, trust: bool) -> Any:
    """A torch module as it is, a model file as its runtime."""
    from interop.runtimes import load

    value = resolve(word, trust=trust).value
    return load(value) if isinstance(value, Path) else value


def _check_on_ray(
    words: tuple[str, ...], batches: Any, sizes: dict[str, tuple[int, ...]], options: dict[str, Any], place: _Place
) -> ParityReport:
    from interop.integrations.ray import Job, check_many

    for word in words:
        if not is_spec(word) and not Path(word).exists():
            resolve(word, trust=place.trust)  # which says what is wrong with it
    models = [_open(word, place.trust) for word in words] if sizes or lost_dtypes(batches) else []
    spread, given = spread_sizes(sizes, models), restore_batches(batches, models)
    shards = [("", {})] if given is None else [(name, {"inputs": batch}) for name, batch in given.items()]
    common = {name: value for name, value in options.items() if name != "save"} | {"sizes": spread}
    jobs = [
        Job(words[0], (word,), name, {**common, **shard, "names": [label]})
        for word, label in zip(words[1:], _labels(words[1:]))
        for name, shard in shards
    ]
    address = None if place.ray == "local" else place.ray
    timeout = place.timeout if place.isolate else None
    return check_many(jobs, address=address, timeout=timeout, trust=place.trust)
