"""Capture a torch module as an ``ExportedProgram``: strategies in order, the first error kept."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from exporters._provenance import user_frame
from exporters._request import DimRecord, ExportRequest
from exporters.errors import CaptureError
from exporters.onnx._dynamic import (
    automatic_shapes,
    batch_only,
    bind_arguments,
    children_of,
    dim_name,
    for_torch,
    requested_shapes,
    with_auto,
    with_batch_of_two,
)
from exporters.onnx._recurrent import dynamic_time
from exporters.onnx._transformers import holds_transformers, token_axes

__all__ = ["Captured", "capture", "quiet"]


_HERE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Captured:
    """A captured model.

    Attributes:
        program: the program.
        wanted: one ``{axis: name}`` a leaf of the arguments, in order.
        dims: what became of the wanted dims.
        names: symbol of the program -> the name that was asked for.
        parameter_names: the names of forward's positional parameters.
    """

    program: torch.export.ExportedProgram
    wanted: tuple[Mapping[int, str], ...]
    dims: tuple[DimRecord, ...]
    names: Mapping[str, str]
    parameter_names: tuple[str, ...]


@dataclass(frozen=True)
class _Attempt:
    shapes: Any
    strict: bool


def capture(request: ExportRequest) -> Captured:
    """Capture the model of a request.

    With ``dynamic_shapes="auto"`` the wanted dims are asked for by name, then left to torch.export, then given up; each
    time first without and then with TorchDynamo ("strict").

    Raises:
        CaptureError: no strategy worked; the message is the first error, with the user's own line.
    """
    if isinstance(request.model, torch.export.ExportedProgram):
        return _described(request.model, (), (), "")
    model, args, kwargs = request.model, tuple(request.args), dict(request.kwargs)
    arguments = bind_arguments(model, args, kwargs)
    kwargs = {name: kwargs[name] for name in _keyword_order(arguments, kwargs)}
    automatic = isinstance(request.dynamic_shapes, str) and request.dynamic_shapes == "auto"
    if request.dynamic_shapes is not None and (wide := with_batch_of_two(model, args, kwargs)) is not None:
        args, kwargs = wide
        arguments = bind_arguments(model, args, kwargs)
    shapes = _wanted_shapes(model, request.dynamic_shapes, arguments)
    attempts = _attempts(shapes, automatic)
    program, reason = _first_that_works(model, args, kwargs, attempts)
    return _described(program, _leaf_specs(shapes, arguments), tuple(arguments), reason)


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


def _attempts(shapes: Any, automatic: bool) -> list[_Attempt]:
    if shapes is None:
        return [_Attempt(None, False), _Attempt(None, True)]
    if not automatic:
        return [_Attempt(for_torch(shapes), False), _Attempt(for_torch(shapes), True)]
    forms = [for_torch(shapes), with_auto(shapes)]
    if batch_only(shapes) != forms[1]:
        forms.append(batch_only(shapes))
    return [_Attempt(form, strict) for strict in (False, True) for form in forms] + [
        _Attempt(None, False),
        _Attempt(None, True),
    ]


def _first_that_works(
    model: Any, args: Any, kwargs: Any, attempts: list[_Attempt]
) -> tuple[torch.export.ExportedProgram, str]:
    """The first program, and why earlier attempts failed."""
    first: Exception | None = None
    for attempt in attempts:
        try:
            with quiet(), _dynamic_everywhere():
                program = torch.export.export(model, args, kwargs, dynamic_shapes=attempt.shapes, strict=attempt.strict)
        except Exception as error:  # noqa: BLE001  # torch.export passes on whatever the model's own code raises
            first = first or error
            continue
        return program, "" if first is None else _short(first)
    assert first is not None
    raise CaptureError(
        f"torch.export cannot capture {type(model).__name__}: {_short(first)}. "
        f"{_where(first)}Rewrite that place in operations that do not depend on the values of tensors (torch.where, torch.cond), "
        "or give fewer dynamic_shapes"
    ) from first


@contextlib.contextmanager
def _dynamic_everywhere() -> Iterator[None]:
    """Sizes 0 and 1 may be dynamic, as torch.onnx has it, and so may the time axis of recurrent operators."""
    settings: Any = torch.fx.experimental._config
    with settings.patch(backed_size_oblivious=True), dynamic_time():
        yield


def _short(error: BaseException) -> str:
    """The line of torch's message that says what happened."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "marked" in line or "specialized" in line or "guard" in line), None)
    return (told or (lines[0] if lines else type(error).__name__))[:300]


def _where(error: BaseException) -> str:
    trace = "".join(_frames(error))
    frame = user_frame(trace) or user_frame(str(error))
    return f"It happened at {frame}. " if frame else ""


def _frames(error: BaseException) -> Iterator[str]:
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if _HERE not in Path(code.co_filename).parents:
            yield f'File "{code.co_filename}", line {traceback.tb_lineno}\n'
        traceback = traceback.tb_next


def _keyword_order(arguments: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Keyword arguments in the order of forward's signature, whatever the order of the caller's dict."""
    return [name for name in arguments if name in kwargs] + [name for name in kwargs if name not in arguments]


def _leaf_specs(shapes: Any, arguments: Mapping[str, Any]) -> tuple[Mapping[int, str], ...]:
    specs: list[Mapping[int, str]] = []
    for name, value in arguments.items():
        _collect(None if shapes is None else shapes.get(name), value, specs)
    return tuple(specs)


def _collect(spec: Any, value: Any, specs: list[Mapping[int, str]]) -> None:
    children = children_of(value)
    if children is None:
        names = {axis: dim_name(dim) for axis, dim in spec.items()} if isinstance(spec, Mapping) else {}
        specs.append(names)
        return
    for index, (key, child) in enumerate(children):
        inner = None if spec is None else spec[key] if isinstance(value, Mapping) else spec[index]
        _collect(inner, child, specs)


def _described(
    program: torch.export.ExportedProgram,
    wanted: tuple[Mapping[int, str], ...],
    parameter_names: tuple[str, ...],
    reason: str,
) -> Captured:
    names: dict[str, str] = {}
    records = []
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for name, spec in zip(program.graph_signature.user_inputs, wanted):
        value = values.get(name) if isinstance(name, str) else None
        if not isinstance(value, torch.Tensor):
            continue
        for axis, wish in spec.items():
            records.append(_record(str(name), axis, value.shape[axis], wish, names, reason))
    return Captured(program, wanted, tuple(records), names, parameter_names)


def _record(name: str, axis: int, size: Any, wish: str, names: dict[str, str], reason: str) -> DimRecord:
    symbol = str(size)
    if symbol.isdigit():  # a plain int, or a symbol that torch replaced by a number in the end
        return DimRecord(name, axis, None, int(size), reason or "the model's code compares it with a fixed size")
    if symbol not in names:
        names[symbol] = wish or symbol
    hint = getattr(size.node, "hint", None)
    return DimRecord(name, axis, names[symbol], int(hint) if isinstance(hint, int) else 0)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hold back the warnings and log lines of torch's exporters; what matters of them is in our own errors and notices."""
    handlers = [handler for name in _NOISY for handler in logging.getLogger(name).handlers]
    levels = [(logger, logger.level) for logger in map(logging.getLogger, _NOISY)]
    try:
        for logger, _ in levels:
            logger.setLevel(logging.CRITICAL)
        for handler in handlers:
            handler.addFilter(_reject)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(_reject)
        for logger, level in levels:
            logger.setLevel(level)


_NOISY = ("torch", "onnxscript", "onnx_ir")


def _reject(record: logging.LogRecord) -> bool:
    return False
