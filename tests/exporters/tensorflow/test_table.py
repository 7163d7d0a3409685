"""The contract of the operator table: the signature of a lowering is the schema of its operator."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

import exporters.tensorflow.ops as ops_package
from exporters.tensorflow._table import CONTEXT, TABLE, Lowering, OperatorTable, lower
from tests.exporters.operator_contract import (
    assert_attributes,
    assert_inputs,
    attributes_of,
    entry_id,
    imported_by,
    inputs_of,
    served_schemas,
)

OPS = Path(ops_package.__file__).parent


ENTRIES = sorted(TABLE.entries(), key=entry_id)


def _is_borrowed(entry: Lowering) -> bool:
    """A function of TensorFlow (or wrapped by a shared tool) whose parameters have TensorFlow's names."""
    module = getattr(entry.function, "__module__", None) or ""
    return not module.startswith("exporters.tensorflow.ops.")


def test_table_is_filled_by_import() -> None:
    assert len(ENTRIES) > 50
    assert {"Add", "Softmax", "Cast", "Constant", "QuantizeLinear"} <= {entry.operator for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_id)
def test_entry_serves_a_schema(entry: Lowering) -> None:
    assert served_schemas(entry, TABLE), (
        f"no opset that {entry.operator} since {entry.since} serves has such an operator"
    )


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_id)
def test_entry_takes_the_inputs_of_its_schemas(entry: Lowering) -> None:
    schemas = served_schemas(entry, TABLE)
    if _is_borrowed(entry):
        for schema in schemas:
            inspect.signature(entry.function).bind(*schema.inputs)
        return
    parameters = inputs_of(entry.function)
    assert_inputs(parameters, schemas)


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_id)
def test_entry_takes_the_attributes_of_its_schemas(entry: Lowering) -> None:
    schemas = served_schemas(entry, TABLE)
    given = {} if _is_borrowed(entry) else attributes_of(entry)
    inputs = [] if _is_borrowed(entry) else inputs_of(entry.function)
    assert_attributes(entry.operator, given, inputs, schemas)


@pytest.mark.parametrize("entry", list(TABLE.entries()), ids=entry_id)
def test_entry_asks_for_context_by_name(entry: Lowering) -> None:
    assert entry.takes <= CONTEXT
    parameters = inspect.signature(entry.function).parameters
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in entry.takes)


@pytest.mark.parametrize("entry", list(TABLE.entries()), ids=entry_id)
def test_entry_has_no_catch_all_for_attributes(entry: Lowering) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(entry.function).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


@pytest.mark.parametrize("entry", list(TABLE.entries()), ids=entry_id)
def test_static_positions_are_inputs(entry: Lowering) -> None:
    inputs = inputs_of(entry.function)
    is_variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in inputs)
    assert is_variadic or all(position < len(inputs) for position in entry.static)


def test_lower_refuses_a_static_name_that_is_no_parameter() -> None:
    with pytest.raises(ValueError, match="no parameters"):
        lower("TestOnlyOperator", static=("axes",))(lambda data: data)
    assert all(entry.operator != "TestOnlyOperator" for entry in TABLE.entries())


def test_lower_refuses_an_unknown_context_value() -> None:
    with pytest.raises(ValueError, match="context"):
        lower("TestOnlyOperator", takes=("node",))(lambda data, *, node: data)
    assert all(entry.operator != "TestOnlyOperator" for entry in TABLE.entries())


def test_add_refuses_a_second_entry_for_the_same_opset() -> None:
    table = OperatorTable()
    table.add(Lowering("", "Abs", 1, abs))
    table.add(Lowering("", "Abs", 13, abs))
    table.add(Lowering("com.microsoft", "Abs", 1, abs))
    with pytest.raises(ValueError, match="twice"):
        table.add(Lowering("", "Abs", 13, abs))


def test_resolve_gives_the_newest_entry_that_is_not_too_new() -> None:
    table = OperatorTable()
    old, new = Lowering("", "Abs", 1, abs), Lowering("", "Abs", 18, abs)
    table.add(new)
    table.add(old)
    assert table.resolve({"": 17})["", "Abs"] is old
    assert table.resolve({"": 18})["", "Abs"] is new
    assert table.resolve({"": 28})["", "Abs"] is new


@pytest.mark.parametrize("path", sorted(OPS.glob("*.py")), ids=lambda path: path.name)
def test_family_imports_only_what_is_allowed(path: Path) -> None:
    for module in imported_by(path):
        is_private = module.startswith(("exporters.tensorflow._", "exporters._graph."))
        is_allowed = module.split(".")[0] in ("numpy", "tensorflow", "onnx", "onnx_ir") or module == "interop.dtypes"
        is_standard = module.split(".")[0] in sys.stdlib_module_names
        assert is_private or is_allowed or is_standard, f"{path.name} imports {module}"
