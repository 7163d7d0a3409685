"""Write ``docs/aten.md``: what becomes of each core ATen operator in ONNX. Run ``python -m tools.aten [OPERATOR ...]``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch  # a program of its own, about torch's operators
from torch.utils import _pytree as pytree  # the same

from exporters import ExportError, export_model
from exporters.onnx.corrections import DECOMPOSITIONS, TRANSLATIONS
from exporters.onnx.corrections._reports import reports_of
from interop import InteropError
from tools.aten_cases import CASES, NOTES, RANDOM, core_operators

__all__ = ["Verdict", "main", "page", "probe"]

_ROOT = Path(__file__).parent.parent
_PAGE, _RECORD = _ROOT / "docs" / "aten.md", _ROOT / "tests" / "exporters" / "onnx" / "aten_verdicts.json"
_GROUP = 24


@dataclass(frozen=True)
class Verdict:
    """What became of one operator.

    Attributes:
        status: ``right``, ``shape only``, ``differs``, ``refused`` or ``no case``.
        why: the reason where it is not right, or what the comparison leaves out.
    """

    status: str
    why: str = ""


class _Calls(torch.nn.Module):
    """Many operators as one model: an export costs more than a call."""

    def __init__(self, calls: Mapping[str, tuple[str, Any]]) -> None:
        super().__init__()
        self._calls = dict(calls)

    def forward(self, tensors: dict[str, list[torch.Tensor]]) -> dict[str, list[Any]]:
        """One list of results a call."""
        results = {}
        for key, (operator, call) in self._calls.items():
            name, overload = operator.split(".")
            leaves, spec = pytree.tree_flatten(call)
            given = iter(tensors[key])
            args, kwargs = pytree.tree_unflatten(
                [_inner(next(given), x) if torch.is_tensor(x) else x for x in leaves], spec
            )
            if "out" in kwargs:  # torch writes there; the caller's own tensor stays as it is
                kwargs["out"] = kwargs["out"].clone()
            if name.endswith("_"):
                args = [args[0].clone(), *args[1:]]
            found = pytree.tree_leaves(getattr(getattr(torch.ops.aten, name), overload)(*args, **kwargs))
            results[key] = [_outer(value) for value in found if value is not None]
        return results


def _outer(value: Any) -> torch.Tensor:
    """A number as a tensor, and a complex tensor as pairs: what can leave a model."""
    if not torch.is_tensor(value):
        return torch.full((), value)
    return torch.view_as_real(value) if value.is_complex() else value


def _inner(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(value) if like.is_complex() else value


def probe(operators: Sequence[str]) -> dict[str, Verdict]:
    """Export and run the cases of these operators, and compare with torch."""
    cases = CASES | RANDOM
    verdicts = {name: Verdict("no case") for name in operators if name not in cases}
    calls = {f"{name}#{number}": (name, call) for name in operators for number, call in enumerate(cases.get(name, ()))}
    keys = list(calls)
    for start in range(0, len(keys), _GROUP):
        for key, verdict in _run({key: calls[key] for key in keys[start : start + _GROUP]}):
            name = key.split("#")[0]
            if verdicts.get(name, Verdict("right")).status in ("right", "shape only"):
                verdicts[name] = verdict
    noted = {name: replace(each, why=each.why or NOTES.get(name, "")) for name, each in verdicts.items()}
    return dict(sorted(noted.items()))


def _run(calls: Mapping[str, tuple[str, Any]]) -> Iterator[tuple[str, Verdict]]:
    """The verdict of each call; what fails together is halved until the one that fails is alone."""
    model = _Calls(calls)
    tensors = {
        key: [_outer(leaf) for leaf in pytree.tree_leaves(call) if torch.is_tensor(leaf)]
        for key, (_, call) in calls.items()
    }
    try:
        exported = export_model(model, "onnx", inputs=(tensors,), dynamic_shapes=None, verify=False)
        results = exported(tensors)
    except (InteropError, RuntimeError) as error:
        if len(calls) == 1:
            yield next(iter(calls)), Verdict("refused", _reason(error))
            return
        keys = list(calls)
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            yield from _run({key: calls[key] for key in half})
        return
    expected = model(tensors)
    for key, (name, _) in calls.items():
        yield key, _compared(results[key], expected[key], name in RANDOM)


def _reason(error: Exception) -> str:
    lines = str(error).replace("|", "/").splitlines()
    return " ".join((lines[-1] if isinstance(error, ExportError) else lines[0]).split())[-240:]


def _compared(results: Sequence[Any], expected: Sequence[Any], shape_only: bool) -> Verdict:
    if len(results) != len(expected):
        return Verdict("differs", f"{len(results)} results instead of {len(expected)}")
    for result, want in zip(results, expected):
        got = torch.as_tensor(result)
        if got.shape != want.shape or got.dtype != want.dtype:
            return Verdict("differs", f"{got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}")
        if not shape_only and not torch.allclose(got, want, rtol=1e-5, atol=3e-6, equal_nan=True):
            return Verdict("differs", _first_difference(got, want))
    return Verdict("shape only" if shape_only else "right")


def _first_difference(got: torch.Tensor, want: torch.Tensor) -> str:
    wrong = ~torch.isclose(got, want, rtol=1e-5, atol=3e-6, equal_nan=True)
    return f"{got[wrong].flatten()[0].item():.7g} instead of {want[wrong].flatten()[0].item():.7g}"


def page(verdicts: Mapping[str, Verdict]) -> str:
    """The Markdown page."""
    own = {str(operator).removeprefix("aten.") for operator in (*TRANSLATIONS, *DECOMPOSITIONS)}
    counts: dict[str, int] = {}
    for verdict in verdicts.values():
        counts[verdict.status] = counts.get(verdict.status, 0) + 1
    lines = [
        "# Core ATen operators in ONNX",
        "",
        f"Written by `python -m tools.aten` with torch {torch.__version__.split('+')[0]}. Each operator is exported, run by ONNX",
        "Runtime and compared with torch on ordinary numbers, zeros of both signs, infinities, NaN, ties and negative integers.",
        "",
        f"{len(verdicts)} operators: "
        + ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        + ".",
        "*Own* means that a translation or decomposition of `exporters/onnx/corrections` is at work.",
        "",
        "| operator | result | own | why |",
        "|---|---|---|---|",
        *(
            f"| `{name}` | {each.status} | {'yes' if name in own else ''} | {each.why} |"
            for name, each in verdicts.items()
        ),
        "",
        *_corrections(own),
    ]
    return "\n".join(lines)


def _corrections(own: set[str]) -> list[str]:
    """Every own entry with the public report that it answers."""
    return [
        "## Own entries",
        "",
        "Each is compared with torch, and a test says when torch.onnx no longer needs it. *None known*: no report was found;",
        "what torch.onnx does was measured with the torch that is named above.",
        "",
        "| operator | report |",
        "|---|---|",
        *(f"| `{name}` | {', '.join(reports_of(name)) or 'none known'} |" for name in sorted(own)),
        "",
    ]


def main(names: Sequence[str] = ()) -> None:
    """Probe the operators, or these only; write the page and the record that the test compares with."""
    verdicts = probe(names or core_operators())
    if names:
        record = json.loads(_RECORD.read_text(encoding="utf-8"))
        verdicts = dict(sorted(({name: Verdict(*each) for name, each in record.items()} | verdicts).items()))
    _PAGE.write_text(page(verdicts), encoding="utf-8")
    written = {name: [verdict.status, verdict.why] for name, verdict in verdicts.items()}
    _RECORD.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
