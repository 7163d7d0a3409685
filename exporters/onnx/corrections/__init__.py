"""Own translations and decompositions, for what torch.onnx answers wrong or does not answer.

A translation is called by torch.onnx in place of its own and writes ONNX nodes; the name and order of its arguments are
those of the torch operator. A decomposition rewrites one torch operator as others, before torch.onnx sees the program. Each
entry says which report it answers, and has a test that fails without it and tells when torch.onnx no longer needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from exporters.onnx._calls import calls_of
from exporters.onnx.corrections import (
    attention,
    division,
    dtypes,
    elementwise,
    indexing,
    normalization,
    pooling,
    recurrent,
    reduction,
    scans,
    sorting,
    special,
)

__all__ = ["TRANSLATIONS", "DECOMPOSITIONS", "decompose"]

_FAMILIES = (attention, elementwise, indexing, recurrent, reduction, scans, sorting, special)

TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    operator: function for family in _FAMILIES for operator, function in family.TRANSLATIONS.items()
}


@dataclass(frozen=True)
class _Entry:
    function: Callable[..., Any]
    needed: Callable[[torch.fx.Node], bool]


DECOMPOSITIONS: dict[Any, _Entry] = {
    operator: _Entry(function, needed)
    for family in (division, dtypes, elementwise, indexing, normalization, pooling, recurrent)
    for operator, (function, needed) in family.DECOMPOSITIONS.items()
}


_WITHOUT_EFFECT: dict[Any, Any] = {
    torch.ops.aten._native_batch_norm_legit.default: torch.ops.aten._native_batch_norm_legit_functional.default
}
"""What torch puts in the place of operators that write into their arguments, before it decomposes anything."""


def decompose(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with the operators that need it rewritten; the same one where none does, which is the usual case."""
    found = {node.target for node in calls_of(program.graph_module) if _needed(node)}
    if not found:
        return program
    found |= {_WITHOUT_EFFECT[operator] for operator in found & set(_WITHOUT_EFFECT)}
    table = {operator: DECOMPOSITIONS[operator].function for operator in found}
    rewritten: torch.export.ExportedProgram = program.run_decompositions(table)
    return rewritten


def _needed(node: torch.fx.Node) -> bool:
    entry = DECOMPOSITIONS.get(node.target)
    return entry is not None and entry.needed(node)
