"""The ways to capture a torch module, in order: torch.export without and with TorchDynamo, then a draft of it.

The error of the first is kept: what later ones stumble over is mostly a consequence of how they work.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils import _pytree as pytree

from exporters._graph.dynamic_time import dynamic_time
from exporters._provenance import user_frame, user_place
from exporters.errors import CaptureError
from exporters.onnx._dynamic import batch_only, bind_arguments, dynamic_count, for_torch, leaf_dims, with_auto
from exporters.onnx._frozen import noted_places
from exporters.onnx._packed import packed_sequences
from exporters.onnx._quiet import quiet
from exporters.onnx._scalars import Readings, describe, known_values, read_values, whole_divisions

__all__ = ["Outcome", "first_that_works"]

_HERE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Outcome:
    """What came of the strategies.

    Attributes:
        program: the captured program.
        reason: why the first strategy failed, or an empty string if it is the first that worked.
        assumptions: what a draft took for granted, one line each; empty for the other strategies.
        constants: values that the model's code reads and that no input can change, one line each.
    """

    program: torch.export.ExportedProgram
    reason: str = ""
    assumptions: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Attempt:
    shapes: Any
    strict: bool


def first_that_works(model: Any, args: Any, kwargs: Any, shapes: Any, automatic: bool, draft: bool) -> Outcome:
    """Capture a model.

    With ``automatic`` the wanted dims are asked for by name, then left to torch.export, then given up; each time first
    without and then with TorchDynamo ("strict"). What fails in every way is drafted: torch.export.draft_export runs the
    model on the example and notes what it has to assume.

    Args:
        model: the model.
        args: its positional arguments.
        kwargs: its keyword arguments.
        shapes: the wanted dims by parameter name, or None for static shapes.
        automatic: dims may be given up.
        draft: take a draft even if it assumes something.

    Raises:
        CaptureError: no strategy worked; the message is the first error, with the user's own line.
    """
    attempts = _attempts(shapes, automatic)
    first = _run(model, args, kwargs, attempts[0])
    if isinstance(first, Outcome):
        return first
    readings = _readings(first, model, args, kwargs, shapes)
    if readings is not None:
        first = _run(model, args, kwargs, attempts[0], readings)
        if isinstance(first, Outcome):
            return first
    for attempt in attempts[1:]:
        found = _run(model, args, kwargs, attempt, readings)
        if isinstance(found, Outcome):
            return replace(found, reason=_short(first))
    drafted = _draft(model, args, kwargs, shapes, automatic)
    if drafted is None and readings is not None and readings.assumed:
        form = None if shapes is None else with_auto(shapes) if automatic else for_torch(shapes)
        assumed = _run(model, args, kwargs, _Attempt(form, False), readings, assume=True)
        drafted = assumed if isinstance(assumed, Outcome) else None
    if drafted is not None and (draft or not drafted.assumptions):
        return replace(drafted, reason=_short(first))
    place = _where(first) or _fixed_where(model, args, kwargs, shapes)
    raise CaptureError(
        f"torch.export cannot capture {type(model).__name__}: {_short(first)}. {place}{_next_step(first, drafted)}"
    ) from first


def _run(
    model: Any, args: Any, kwargs: Any, attempt: _Attempt, readings: Readings | None = None, assume: bool = False
) -> Outcome | Exception:
    """One attempt, and what became of it.

    Args:
        model: the model.
        args: its positional arguments.
        kwargs: its keyword arguments.
        attempt: the shapes, and whether TorchDynamo takes part.
        readings: values that the model's code reads, taken for what they are where no input can change them.
        assume: take the other ones too.
    """
    known, assumed = {}, {}
    if readings is not None and not attempt.strict:
        known = dict(readings.at_example if attempt.shapes is None else readings.constants)
        assumed = dict(readings.assumed) if assume else {}
    args, kwargs = _unmarked((args, kwargs))
    try:
        sizes = whole_divisions() if readings is not None else contextlib.nullcontext()
        with quiet(), _as_torch_onnx_wants(), sizes, known_values(known | assumed) as used:
            program = torch.export.export(model, args, kwargs, dynamic_shapes=attempt.shapes, strict=attempt.strict)
    except Exception as error:  # noqa: BLE001  # torch.export passes on whatever the model's own code raises
        return error
    taken = [tuple(describe(at, values[at]) for at in sorted(used & set(values))) for values in (assumed, known)]
    return Outcome(program, "", *taken)


def _unmarked(arguments: Any) -> Any:
    """The same tensors as new objects: torch.export notes on those that it gets which of their dims were to be dynamic."""
    made: dict[int, Any] = {}

    def fresh(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return made.setdefault(id(leaf), leaf.detach().requires_grad_(leaf.requires_grad))

    return pytree.tree_map(fresh, arguments)


def _readings(error: Exception, model: Any, args: Any, kwargs: Any, shapes: Any) -> Readings | None:
    """What the model's code reads out of tensors, where that is what stopped the capture."""
    if not re.search("data.dependent|unbacked", f"{type(error).__name__} {error}", re.IGNORECASE):
        return None
    return read_values(model, args, kwargs, leaf_dims(shapes, bind_arguments(model, args, kwargs)))


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


@contextlib.contextmanager
def _as_torch_onnx_wants() -> Iterator[None]:
    """Sizes 0 and 1 may be dynamic, as torch.onnx has it, and so may the time axis of recurrent operators."""
    settings: Any = torch.fx.experimental._config
    with settings.patch(backed_size_oblivious=True), dynamic_time(), packed_sequences(), noted_places(), _plain_flags():
        yield


@contextlib.contextmanager
def _plain_flags() -> Iterator[None]:
    """Attention whose ``is_causal`` compares a dynamic size: a branch as any other, though the operator wants a bool."""
    functional: Any = torch.nn.functional
    attention = functional.scaled_dot_product_attention

    def call(*args: Any, is_causal: Any = False, **kwargs: Any) -> Any:
        return attention(*args, is_causal=bool(is_causal), **kwargs)

    with patch.object(functional, "scaled_dot_product_attention", call):
        yield


def _draft(model: Any, args: Any, kwargs: Any, shapes: Any, automatic: bool) -> Outcome | None:
    """A draft and what it assumes, or None where there is none either, or only one that gives up dims of the caller's."""
    wanted = None if shapes is None else with_auto(shapes) if automatic else for_torch(shapes)
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"TORCH_TRACE": folder}):  # it writes a log
        try:
            args, kwargs = _unmarked((args, kwargs))
            with quiet(), _as_torch_onnx_wants():
                program = torch.export.draft_export(model, args, kwargs, dynamic_shapes=wanted)
        except Exception:  # noqa: BLE001  # as above; the first strategy's error is the one to show
            return None
    if not automatic and dynamic_count(shapes) > _symbol_count(program):
        return None
    report: Any = program._report  # type: ignore[attr-defined]  # that is where torch.export documents it
    files = {number: file for file, number in torch._logging.structured.INTERN_TABLE.items()}
    found = [_assumption(failure, files) for failure in report.failures if not failure.xfail]
    return Outcome(program, "", tuple(dict.fromkeys(found)))


def _symbol_count(program: torch.export.ExportedProgram) -> int:
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    return sum(isinstance(dim, torch.SymInt) for value in values for dim in getattr(value, "shape", ()))


def _assumption(failure: Any, files: Mapping[int, str]) -> str:
    """One entry of torch's report as a line: what was taken for granted, and where."""
    data = failure.data
    if "op" in data:
        return f"that {data['op']} gives results like those of the example, for it has no (right) fake kernel"
    frames = [(files.get(frame["filename"], ""), int(frame["line"])) for frame in data.get("user_stack", ())]
    place = user_place(frames)
    at = f" at {Path(place[0]).name}:{place[1]}" if place else ""
    return f"that {data.get('expr')} is {data.get('result', True)}{at}"


def _short(error: BaseException) -> str:
    """The line of torch's message that says what happened."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "marked" in line or "specialized" in line or "guard" in line), None)
    return (told or (lines[0] if lines else type(error).__name__))[:300]


def _where(error: BaseException) -> str:
    """A sentence with the user's line, and the code on it."""
    place = user_place(list(_frames(error)))
    if place is None or not _is_code_of_a_model(place[0]):
        frame = user_frame(str(error))
        return f"It happened at {frame}. " if frame else ""
    code = linecache.getline(*place).strip()
    return f"It happened at {Path(place[0]).name}:{place[1]}{f' in `{code}`' if code else ''}. "


def _is_code_of_a_model(file: str) -> bool:
    return f"{os.sep}torch{os.sep}" not in file


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if _HERE not in Path(file).parents and not file.startswith("<"):
            yield file, traceback.tb_lineno
        traceback = traceback.tb_next


def _fixed_where(model: Any, args: Any, kwargs: Any, shapes: Any) -> str:
    """Where a size that was to be dynamic is fixed: a capture that may fix sizes tells."""
    if shapes is None:
        return ""
    try:
        with quiet(), _as_torch_onnx_wants():
            program = torch.export.export(model, args, kwargs, dynamic_shapes=with_auto(shapes))
    except Exception:  # noqa: BLE001  # as above
        return ""
    fakes = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    mode: Any = next((fake.fake_mode for fake in fakes if hasattr(fake, "fake_mode")), None)
    places = [place.maybe_user_loc for place in mode.shape_env.replacements_slocs.values()] if mode else []
    return f"It is fixed at {', '.join(sorted({place for place in places if place}))}. " if any(places) else ""


def _next_step(error: BaseException, drafted: Outcome | None) -> str:
    if drafted is not None:
        taken = "; ".join(drafted.assumptions[:4])
        return (
            f"A draft would assume {taken}. Write that place with torch.where or torch.cond, or, if it always holds, state it "
            'with torch._check or ask for the draft with options={"draft": True}'
        )
    if "NoneType" in str(error) and isinstance(error, (AttributeError, TypeError)):
        return (
            "Code may go another way while it is captured (torch.compiler.is_compiling()) and leave out what it else makes itself: "
            "give the argument that is None there, an attention_mask perhaps, in the example"
        )
    if "dynamic" in _short(error) or "onstraint" in _short(error):
        return "Rewrite that place without a fixed size, or leave that dim out of dynamic_shapes"
    return (
        "Rewrite that place in operations that do not depend on the values of tensors (torch.where, torch.cond), or give fewer "
        "dynamic_shapes"
    )
