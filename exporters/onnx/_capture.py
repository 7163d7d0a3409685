"""Capture a torch module as an ``ExportedProgram``, with the dims that were wanted dynamic or a word on why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from exporters._request import DimRecord, ExportRequest
from exporters.errors import CaptureError
from exporters.onnx._dynamic import (
    automatic_shapes,
    bind_arguments,
    children_of,
    dim_name,
    requested_shapes,
    with_batch_of_two,
    without_dims,
)
from exporters.onnx._frozen import Frozen, find_frozen, place_of_fixed_size, program_leaves
from exporters.onnx._packed import check_packed
from exporters.onnx._strategies import Outcome, first_that_works
from exporters.onnx._transformers import holds_transformers, token_axes

__all__ = ["Captured", "capture"]


@dataclass(frozen=True)
class Captured:
    """A captured model.

    Attributes:
        program: the program.
        dims: what became of the wanted dims.
        names: symbol of the program -> the name that was asked for.
        parameter_names: the names of forward's positional parameters.
        notices: what a draft assumed.
    """

    program: torch.export.ExportedProgram
    dims: tuple[DimRecord, ...]
    names: Mapping[str, str]
    parameter_names: tuple[str, ...]
    notices: tuple[str, ...] = ()


def capture(request: ExportRequest) -> Captured:
    """Capture the model of a request; see ``_strategies`` for how.

    A branch or loop that follows a wanted dim, and makes a difference, fixes that dim where the dims were found
    automatically, and is an error where the caller asked for the dim.

    Raises:
        CaptureError: no strategy worked, or the model's code takes another path at another size of a requested dim; the
            message has the user's own line.
    """
    if isinstance(request.model, torch.export.ExportedProgram):
        return _described(Outcome(request.model), (), (), {})
    model, args, kwargs = request.model, tuple(request.args), dict(request.kwargs)
    arguments = bind_arguments(model, args, kwargs)
    kwargs = {name: kwargs[name] for name in _keyword_order(arguments, kwargs)}
    automatic = isinstance(request.dynamic_shapes, str) and request.dynamic_shapes == "auto"
    if request.dynamic_shapes is not None and (wide := with_batch_of_two(model, args, kwargs)) is not None:
        args, kwargs = wide
        arguments = bind_arguments(model, args, kwargs)
    shapes = _wanted_shapes(model, request.dynamic_shapes, arguments)
    wanted = _leaf_dims(shapes, arguments)
    draft = bool(getattr(request.options, "draft", False))
    outcome, reasons = _sound(model, args, kwargs, shapes, wanted, automatic, draft)
    return _described(outcome, wanted, tuple(arguments), reasons)


def _sound(
    model: Any, args: Any, kwargs: Any, shapes: Any, wanted: tuple[Mapping[int, Any], ...], automatic: bool, draft: bool
) -> tuple[Outcome, dict[str, str]]:
    """A capture without dims that the model's code freezes, and why each of those was given up, by its name."""
    reasons: dict[str, str] = {}
    while True:
        outcome = first_that_works(model, args, kwargs, shapes, automatic, draft)
        check_packed(outcome.program)
        frozen = find_frozen(outcome.program, model, args, kwargs, _bounds(wanted))
        if frozen is None:
            return outcome, reasons
        name = dim_name(wanted[frozen.leaf].get(frozen.axis)) if frozen.leaf < len(wanted) else ""
        if not automatic or name in reasons:
            raise CaptureError(_frozen_message(model, outcome.program, frozen, name))
        reasons[name] = _frozen_reason(frozen, name)
        shapes = without_dims(shapes, name)


def _frozen_reason(frozen: Frozen, name: str) -> str:
    held = frozen.held.replace(frozen.symbol, name or "the size")
    where = f"the code at {frozen.place}" if frozen.place else "the code"
    return f"{where} takes another path where it is {frozen.size} (captured: {held})"


def _frozen_message(model: Any, program: torch.export.ExportedProgram, frozen: Frozen, name: str) -> str:
    source = program.graph_signature.user_inputs[frozen.leaf]
    return (
        f"dynamic_shapes makes dim {frozen.axis} of {source}{f' ({name})' if name else ''} dynamic, but in "
        f"{type(model).__name__} {_frozen_reason(frozen, name)}, and the exported model would keep the captured one. Write that "
        "place without a Python branch or loop over the size, leave the dim out, or limit it with torch.export.Dim(min=, max=)"
    )


def _bounds(wanted: tuple[Mapping[int, Any], ...]) -> dict[tuple[int, int], tuple[int, int]]:
    """The limits that the caller's ``Dim`` objects have."""
    return {
        (leaf, axis): (int(dim.min), int(dim.max))
        for leaf, dims in enumerate(wanted)
        for axis, dim in dims.items()
        if isinstance(getattr(dim, "min", None), int) and isinstance(getattr(dim, "max", None), int)
    }


def _wanted_shapes(model: Any, dynamic_shapes: Any, arguments: Mapping[str, Any]) -> Any:
    if dynamic_shapes is None:
        return None
    if not (isinstance(dynamic_shapes, str) and dynamic_shapes == "auto"):
        return requested_shapes(dynamic_shapes, arguments)
    own = getattr(model, "dynamic_shapes", None)
    if callable(own):
        return requested_shapes(own(), arguments)
    sequences = token_axes(arguments) if holds_transformers(model) else {}
    return requested_shapes(automatic_shapes(arguments, sequences), arguments)


def _keyword_order(arguments: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Keyword arguments in the order of forward's signature, whatever the order of the caller's dict."""
    return [name for name in arguments if name in kwargs] + [name for name in kwargs if name not in arguments]


def _leaf_dims(shapes: Any, arguments: Mapping[str, Any]) -> tuple[Mapping[int, Any], ...]:
    """``{axis: wanted dim}`` for each leaf of the arguments."""
    specs: list[Mapping[int, Any]] = []
    for name, value in arguments.items():
        _collect(None if shapes is None else shapes.get(name), value, specs)
    return tuple(specs)


def _collect(spec: Any, value: Any, specs: list[Mapping[int, Any]]) -> None:
    children = children_of(value)
    if children is None:
        specs.append(spec if isinstance(spec, Mapping) else {})
        return
    for index, (key, child) in enumerate(children):
        inner = None if spec is None else spec[key] if isinstance(value, Mapping) else spec[index]
        _collect(inner, child, specs)


def _described(
    outcome: Outcome,
    wanted: tuple[Mapping[int, Any], ...],
    parameter_names: tuple[str, ...],
    reasons: Mapping[str, str],
) -> Captured:
    names: dict[str, str] = {}
    records = []
    inputs = outcome.program.graph_signature.user_inputs
    for name, value, dims in zip(inputs, program_leaves(outcome.program), wanted):
        if not isinstance(value, torch.Tensor):
            continue
        for axis, dim in dims.items():
            wish = dim_name(dim)
            reason = reasons.get(wish) or _fixed_reason(outcome, axis, value.shape[axis])
            records.append(_record(str(name), axis, value.shape[axis], wish, names, reason))
    notices = tuple(f"the capture is a draft, which assumes {each}" for each in outcome.assumptions)
    return Captured(outcome.program, tuple(records), names, parameter_names, notices)


def _fixed_reason(outcome: Outcome, axis: int, size: Any) -> str:
    """Why a dim is a number now; asked for every dim, and empty for those that are symbols."""
    if not str(size).isdigit():
        return ""
    place = place_of_fixed_size(outcome.program, axis, int(size))
    return f"the code at {place} needs a number there" if place else outcome.reason


def _record(name: str, axis: int, size: Any, wish: str, names: dict[str, str], reason: str) -> DimRecord:
    symbol = str(size)
    if symbol.isdigit():  # a plain int, or a symbol that torch replaced by a number in the end
        return DimRecord(name, axis, None, int(size), reason or "the model's code compares it with a fixed size")
    if symbol not in names:
        names[symbol] = wish or symbol
    hint = getattr(size.node, "hint", None)
    return DimRecord(name, axis, names[symbol], int(hint) if isinstance(hint, int) else 0)
