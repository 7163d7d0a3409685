"""The operator table of TensorFlow; see ``exporters._graph.operator_table`` for how a lowering is written."""

from __future__ import annotations

from exporters._graph.operator_table import CONTEXT, Lowering, OperatorTable

__all__ = ["CONTEXT", "Lowering", "OperatorTable", "TABLE", "lower", "lower_all"]

TABLE = OperatorTable()

lower = TABLE.lower
lower_all = TABLE.lower_all
