"""Write ``docs/operators.md`` from the operator tables: ``python -m tools.operators [--results FILE]``.

What serves an operator is read from the tables of TensorFlow and torch and from ONNX's own schemas; its dtypes are tried
(``tools.dtypes``, two minutes). The counts of passing cases come from the strict lists of known failures, which a run of the
suite must reproduce, or for TensorFlow from a run's own results where they are given.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.dtypes import GROUPS, Key, Tried, dtypes_text, try_operators

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "operators.md"

FIRST = {"": 13}
"""The first opset of a domain that the table serves; 1 for the other domains."""

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Row:
    """One operator.

    Attributes:
        domain: ONNX domain, ``"ai.onnx"`` for the default one.
        operator: its type.
        how: what serves it in TensorFlow, with the opsets.
        torch: what serves it in torch.
    """

    domain: str
    operator: str
    how: str
    torch: str


@dataclass(frozen=True)
class Count:
    """The cases of ONNX's backend suite with this operator in the model, and how many of them pass."""

    cases: int = 0
    passing: int = 0


def rows() -> list[Row]:
    """All operators of the domains that the tables know, in order of domain and name."""
    found = [_row(domain, operator) for domain, operator in _onnx_operators()]
    return [*found, *(Row(MICROSOFT, name, *map(_entry_text, served)) for name, served in _microsoft_operators())]


def _tables() -> tuple[Any, Any]:
    """The table of TensorFlow and that of torch."""
    from exporters.tensorflow import ops as _tensorflow_ops  # noqa: F401  # fills the table
    from exporters.tensorflow._table import TABLE as TENSORFLOW
    from exporters.torch import ops as _torch_ops  # noqa: F401  # fills the table
    from exporters.torch._table import TABLE as TORCH

    return TENSORFLOW, TORCH


def _entry_text(served: bool) -> str:
    return "entry 1" if served else "**missing**"


def _onnx_operators() -> list[tuple[str, str]]:
    import onnx

    schemas = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    return sorted(key for key in schemas if key[0] in ("", "ai.onnx.ml") or key[0].startswith("ai.onnx.preview"))


def _row(domain: str, operator: str) -> Row:
    return Row(domain or "ai.onnx", operator, *(_served_text(domain, operator, table) for table in _tables()))


def _served_text(domain: str, operator: str, table: Any) -> str:
    opsets = range(FIRST.get(domain, 1), _newest(domain) + 1)
    served = [(opset, how) for opset in opsets if (how := _how(domain, operator, opset, table))]
    return ", ".join(_spans(served)) or f"not in opset {opsets[0]} and later; older models are upgraded first"


def _newest(domain: str) -> int:
    import onnx

    if domain == "":
        return int(onnx.defs.onnx_opset_version())
    return max(int(s.since_version) for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain)


def _how(domain: str, operator: str, opset: int, table: Any) -> str:
    """What serves an operator at an opset; an empty string where the operator does not exist there."""
    import onnx

    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return ""
    if (domain, operator) in table.resolve({domain: opset}):
        return "entry"
    if schema.deprecated:
        return ""
    if schema.has_function:
        return (
            "function body" if _body_is_served(schema, opset, table) else "**missing** (its function body needs more)"
        )
    return "function body" if schema.has_context_dependent_function else "**missing**"


def _body_is_served(schema: Any, opset: int, table: Any) -> bool:
    """Whether everything in a schema's function body is served."""
    import onnx_ir as ir

    from exporters._graph.context import Context, find_unsupported

    values = [ir.Value(name=f"x{number}") for number in range(max(schema.min_input, 1))]
    node = ir.Node(schema.domain, schema.name, values, num_outputs=1)
    opsets = {"": opset} if schema.domain == "" else {"": _newest(""), schema.domain: opset}
    graph = ir.Graph(values, node.outputs, nodes=[node], opset_imports=opsets)
    return not find_unsupported(ir.Model(graph, ir_version=10), Context(opsets), table)


def _spans(served: list[tuple[int, str]]) -> Iterator[str]:
    """``entry 13-17`` and so on: neighbouring opsets that are served alike."""
    start = 0
    for end in range(1, len(served) + 1):
        if end == len(served) or served[end][1] != served[start][1]:
            first, last = served[start][0], served[end - 1][0]
            yield f"{served[start][1]} {first}" if first == last else f"{served[start][1]} {first} to {last}"
            start = end


def _microsoft_operators() -> list[tuple[str, list[bool]]]:
    """ONNX Runtime's own operators: their names, and whether each of the tables has an entry."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    entries = [{entry.operator for entry in table.entries() if entry.domain == MICROSOFT} for table in _tables()]
    known = {schema.name for schema in get_all_operator_schema() if schema.domain == MICROSOFT}
    return [(name, [name in own for own in entries]) for name in sorted(known.union(*entries))]


def counts(failed: Mapping[str, str]) -> dict[tuple[str, str], Count]:
    """Cases and passes of every operator.

    Args:
        failed: names of the cases that fail.
    """
    from tests.node_suite.cases import all_cases

    found: dict[tuple[str, str], Count] = {}
    for name, case in all_cases().items():
        for key in set(_operators(case.model.graph)) | {key for f in case.model.functions for key in _operators(f)}:
            count = found.get(key, Count())
            found[key] = Count(count.cases + 1, count.passing + (name not in failed))
    return found


def _operators(graph: Any) -> Iterator[tuple[str, str]]:
    """``(domain, operator)`` of every node of a graph or function, also inside branches and loop bodies."""
    for node in graph.node:
        yield node.domain or "ai.onnx", node.op_type
        for attribute in node.attribute:
            for inner in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
                yield from _operators(inner)


def page(
    failed: Mapping[str, str], torch_failed: Mapping[str, str], source: str, tried: Mapping[Key, Sequence[Tried]]
) -> str:
    """The page.

    Args:
        failed: case name -> reason of the cases that fail in TensorFlow.
        torch_failed: likewise in torch.
        source: where that comes from.
        tried: what came of the dtypes of each operator in TensorFlow.
    """
    every, table, torch_table = rows(), counts(failed), counts(torch_failed)
    lines = [*_head(every, len(failed), len(torch_failed), source), "", *_legend()]
    for domain in dict.fromkeys(row.domain for row in every):
        lines += [
            "",
            f"## {domain}",
            "",
            "| operator | TensorFlow | torch | dtypes | cases | pass in TensorFlow | pass in torch |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in (row for row in every if row.domain == domain):
            count, other = (found.get((domain, row.operator), Count()) for found in (table, torch_table))
            figures = f"{count.cases} | {count.passing} | {other.passing}" if count.cases else "| |"
            dtypes = dtypes_text(tried.get((domain, row.operator), ()))
            lines.append(f"| {row.operator} | {row.how} | {row.torch} | {dtypes}{' ' if dtypes else ''}| {figures} |")
    return "\n".join([*lines, ""])


def _head(every: Sequence[Row], failed: int, torch_failed: int, source: str) -> Iterator[str]:
    import onnx

    from tests.node_suite.cases import all_cases

    of_onnx, of_runtime = ([row for row in every if (row.domain == MICROSOFT) is own] for own in (False, True))
    total = len(all_cases())
    yield "# ONNX operators in TensorFlow and torch"
    yield ""
    yield "Written by `python -m tools.operators`; a test says when it is stale."
    yield ""
    yield f"Served: of the {len(of_onnx)} operators of onnx {onnx.__version__} (opset {_newest('')}) {_served(of_onnx)};"
    yield f"of the {len(of_runtime)} of ONNX Runtime's own (`{MICROSOFT}`) {_served(of_runtime)}."
    yield f"Of the {total} cases of ONNX's backend suite, {total - failed} pass in TensorFlow and {total - torch_failed} in torch;"
    yield f"{source}."
    yield ""
    yield "*Entry*: a function of this project lowers it. *Function body*: it is expanded through the body that ONNX's schema"
    yield "gives. Numbers are opsets of the operator's domain. *Cases* are those of the suite with the operator in their model; one"
    yield "that fails counts against every operator in it, whichever is the cause. Where there is no case, there is no figure."


def _legend() -> Iterator[str]:
    yield "*Dtypes*, of the TensorFlow format: those of the first input that may have more than one (of the first output where no"
    yield "input may). Each that ONNX allows is tried: converted, run, and compared: on a case of that dtype with the suite's"
    yield "values, otherwise on a case whose tensors are cast with onnx's reference evaluator, where that runs. Behind *not* stand"
    yield "those that do not convert or run, or that differ. Operators with subgraphs, sequences or values in attributes are tried"
    yield "where they have a case."
    yield ""
    yield from (f"- *{word}*: {', '.join(names)}" for word, names in GROUPS.items())


def _served(every: Sequence[Row]) -> str:
    """``227 in TensorFlow and 223 in torch``."""
    tensorflow, torch = (sum("missing" not in how for how in hows) for hows in zip(*((r.how, r.torch) for r in every)))
    return f"{tensorflow} in TensorFlow and {torch} in torch"


def rows_of_page(text: str) -> list[Row]:
    """The rows that a page has."""
    found, domain = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            domain = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| operator "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.append(Row(domain, *cells[:3]))
    return found


def dtypes_of_page(text: str) -> dict[Key, str]:
    """The dtypes that a page says, where it says any."""
    found, domain = {}, ""
    for line in text.splitlines():
        if line.startswith("## "):
            domain = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| operator "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[3]:
                found[domain, cells[0]] = cells[3]
    return found


def _failed(results: Path | None) -> tuple[dict[str, str], str]:
    from tests.node_suite.__main__ import KNOWN, known_failures
    from tests.node_suite.cases import all_cases

    if results is None:
        files = " and ".join(f"`{path.relative_to(ROOT)}`" for path in KNOWN.values())
        return known_failures(), f"the others stand in {files}, each with its cause"
    outcomes: dict[str, str] = json.loads(results.read_text(encoding="utf-8"))
    if missing := set(all_cases()) - set(outcomes):
        sys.exit(f"{results} lacks {len(missing)} cases, such as {min(missing)}; run the whole suite with --results")
    return {name: reason for name, reason in outcomes.items() if reason}, "those of TensorFlow counted in one run"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.operators", description=__doc__)
    parser.add_argument("--results", type=Path, help="what `python -m tests.node_suite --results FILE` wrote")
    failed, source = _failed(parser.parse_args().results)
    from tests.node_suite.__main__ import known_failures

    PAGE.write_text(page(failed, known_failures("torch"), source, try_operators()), encoding="utf-8")


if __name__ == "__main__":
    main()
