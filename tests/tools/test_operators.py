"""The page of operators against the table, and the counts against cases counted by hand."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import onnx
import pytest
from onnx import TensorProto, helper

from exporters.tensorflow import ops as _ops  # noqa: F401  # fills the table
from exporters.tensorflow._table import TABLE
from exporters.torch._recurrent import DOMAIN as OWN
from exporters.torch._table import TABLE as TORCH
from tests.node_suite import __main__ as suite
from tests.node_suite import cases
from tests.node_suite.pool import Outcome
from tools import operators
from tools.dtypes import Tried
from tools.operators import Count, Row


@pytest.fixture(scope="module")
def found():
    return operators.rows()


def test_page_is_that_of_the_table(found):
    on_page = operators.rows_of_page(operators.PAGE.read_text(encoding="utf-8"))
    stale = sorted(map(str, set(on_page) ^ set(found)))
    assert on_page == found, f"docs/operators.md is stale; run python -m tools.operators\n{stale[:10]}"


def test_every_entry_and_every_current_onnx_operator_has_a_row(found):
    rows = {(row.domain, row.operator): row.how for row in found}
    both = {(row.domain, row.operator): row.torch for row in found}
    for table, texts in ((TABLE, rows), (TORCH, both)):
        for entry in table.entries():
            key = (entry.domain or "ai.onnx", entry.operator)
            if key == ("ai.onnx", "SimplifiedLayerNormalization"):  # ONNX Runtime's, in ONNX's domain by mistake
                continue
            if entry.domain != OWN:
                assert "entry" in texts[key], key
    for schema in onnx.defs.get_all_schemas():
        if not schema.deprecated:
            assert (schema.domain or "ai.onnx", schema.name) in rows


def test_rows_say_which_opsets_are_served_and_how(found):
    newest = onnx.defs.onnx_opset_version()
    rows = {(row.domain, row.operator): row.how for row in found}
    assert rows["ai.onnx", "Abs"] == f"entry 13 to {newest}"
    assert rows["ai.onnx", "LayerNormalization"].endswith(f" 17 to {newest}")  # new in opset 17
    assert rows["com.microsoft", "FusedMatMul"] == "entry 1"
    torch = {(row.domain, row.operator): row.torch for row in found}
    assert torch["com.microsoft", "GroupQueryAttention"] == "entry 1"
    assert torch["ai.onnx.ml", "ZipMap"].startswith("**missing** 1 to")  # whose values are maps


def test_an_operator_without_an_entry_is_missing_or_has_a_body(monkeypatch):
    def without(*operators_):
        resolve = type(TABLE).resolve

        def resolved(self, opsets):
            return {key: value for key, value in resolve(self, opsets).items() if key[1] not in operators_}

        monkeypatch.setattr(type(TABLE), "resolve", resolved)

    newest = onnx.defs.onnx_opset_version()
    without("Abs", "LessOrEqual", "Less", "Upsample")
    missing = f"**missing** 13 to {newest}"
    assert operators._row("", "Abs") == Row("ai.onnx", "Abs", missing, missing)
    assert "needs more" in operators._row("", "LessOrEqual").how  # its body is made of Less, Equal and Or
    assert operators._row("", "Upsample").how.startswith("not in opset 13 and later")  # deprecated by opset 10
    monkeypatch.undo()
    without("LessOrEqual")
    assert operators._row("", "LessOrEqual").how == f"function body 13 to {newest}"


@pytest.mark.parametrize("table", [TABLE, TORCH], ids=["tensorflow", "torch"])
def test_a_page_is_stale_when_an_entry_is_added(table, monkeypatch):
    monkeypatch.setattr(table, "_entries", dict(table._entries))
    table.lower("BrandNew", domain="com.microsoft")(lambda x: x)
    assert operators.rows() != operators.rows_of_page(operators.PAGE.read_text(encoding="utf-8"))


def test_operators_inside_branches_are_counted():
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    inner = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "inner", [], [value])
    node = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    other = helper.make_node("Gelu", ["z"], ["w"], domain="com.microsoft")
    graph = helper.make_graph([node, other], "g", [], [])
    assert set(operators._operators(graph)) == {("ai.onnx", "If"), ("ai.onnx", "Neg"), ("com.microsoft", "Gelu")}


def _case(*nodes):
    return SimpleNamespace(model=helper.make_model(helper.make_graph(list(nodes), "g", [], [])))


@pytest.fixture
def three_cases(monkeypatch):
    neg, twice = helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["y"], ["z"])
    found = {"node/one": _case(neg), "node/two": _case(neg, twice, twice), "node/three": _case(twice)}
    monkeypatch.setattr(cases, "all_cases", lambda: found)


def test_counts_follow_the_failures(three_cases):
    table = operators.counts({"node/two": "wrong", "node/gone": "wrong"})
    assert table == {("ai.onnx", "Neg"): Count(2, 1), ("ai.onnx", "Abs"): Count(2, 1)}
    tried = {("ai.onnx", "Neg"): [Tried("float32"), Tried("int8", "wrong")]}
    text = operators.page({"node/two": "wrong"}, {}, "so it says", tried)
    assert "Of the 3 cases of ONNX's backend suite, 2 pass in TensorFlow and 3 in torch;\nso it says." in text
    served = f"entry 13 to {onnx.defs.onnx_opset_version()}"
    assert f"| Neg | {served} | {served} | float32; not int8 | 2 | 1 | 2 |" in text
    assert f"| Acos | {served} | {served} | | | | |" in text
    assert operators.dtypes_of_page(text) == {("ai.onnx", "Neg"): "float32; not int8"}


def test_the_suite_writes_its_results(three_cases, monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "run_all", lambda names, **_: [Outcome(n, "wrong" if "two" in n else "") for n in names])
    file = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["suite", "node/t*", "--results", str(file)])
    assert suite.main() == 1
    assert json.loads(file.read_text()) == {"node/two": "wrong", "node/three": ""}


def test_results_make_the_counts_only_where_they_cover_the_suite(three_cases, tmp_path):
    file = tmp_path / "results.json"
    file.write_text('{"node/one": "", "node/two": "wrong", "node/three": ""}')
    assert operators._failed(file)[0] == {"node/two": "wrong"}
    file.write_text('{"node/one": ""}')
    with pytest.raises(SystemExit, match="lacks 2 cases, such as node/three; run the whole suite"):
        operators._failed(file)
