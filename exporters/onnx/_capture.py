"""Capture a torch module as an ``ExportedProgram``, with the dims that were wanted dynamic or a word on why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters._request import DimRecord, ExportRequest
from exporters.errors import CaptureError
from exporters.onnx._dynamic import (
    automatic_shapes,
    bind_arguments,
    dim_name,
    leaf_dims,
    named_keywords,
    requested_shapes,
    with_batch_of_two,
    with_several_steps,
    without_dims,
)
from exporters.onnx._frozen import Frozen, find_frozen, find_untried, place_of_fixed_size, program_leaves
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
        notices: what a draft assumed, and what was read from tensors that no input reaches.
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
    bind_arguments(model, args, kwargs)
    with named_keywords(model, kwargs):
        arguments = bind_arguments(model, args, kwargs)
        kwargs = {name: kwargs[name] for name in _keyword_order(arguments, kwargs)}
        wide = _widened(request, args, kwargs)
        if wide is not None:
            found = _captured(request, *wide)
            if _fits(found.program, (args, kwargs)):
                return found
        return _captured(request, args, kwargs)


def _widened(request: ExportRequest, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The example with several rows along wanted dims that have one, which torch.export would take for a constant."""
    if request.dynamic_shapes is None:
        return None
    model = request.model
    several = with_batch_of_two(model, args, kwargs)
    arguments = bind_arguments(model, *(several or (args, kwargs)))
    wanted = leaf_dims(_wanted_shapes(model, request.dynamic_shapes, arguments), arguments)
    return with_several_steps(model, *(several or (args, kwargs)), wanted) or several


def _fits(program: torch.export.ExportedProgram, example: tuple[Any, Any]) -> bool:
    """Whether a program takes the caller's example: a dim that was widened and did not become dynamic has another size there."""
    return all(
        not isinstance(fake, torch.Tensor)
        or all(not str(dim).isdigit() or int(dim) == size for dim, size in zip(fake.shape, leaf.shape))
        for fake, leaf in zip(program_leaves(program), pytree.tree_leaves(example))
    )


def _captured(request: ExportRequest, args: Any, kwargs: Any) -> Captured:
    model, arguments = request.model, bind_arguments(request.model, args, kwargs)
    automatic = isinstance(request.dynamic_shapes, str) and request.dynamic_shapes == "auto"
    shapes = _wanted_shapes(model, request.dynamic_shapes, arguments)
    wanted = leaf_dims(shapes, arguments)
    draft = bool(getattr(request.options, "draft", False))
    outcome, reasons = _sound(model, args, kwargs, shapes, wanted, automatic, draft)
    described = _described(outcome, wanted, tuple(arguments), reasons)
    untried = [_untried_notice(each, wanted) for each in find_untried(outcome.program, model, _bounds(wanted))]
    return replace(described, notices=(*described.notices, *untried))


def _untried_notice(frozen: Frozen, wanted: tuple[Mapping[int, Any], ...]) -> str:
    name = dim_name(wanted[frozen.leaf].get(frozen.axis)) if frozen.leaf < len(wanted) else ""
    reason = _frozen_reason(frozen, name)
    return f"not tried, for {name or 'the size'} is large there: {reason}; the exported model keeps the captured path"


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
    notices = [f"the capture is a draft, which assumes {each}" for each in outcome.assumptions]
    notices += [f"the capture takes for certain {each}: no input reaches it" for each in outcome.constants]
    return Captured(outcome.program, tuple(records), names, parameter_names, tuple(notices))


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
