"""The contract of the operator table: the signature of a lowering is the schema of its operator."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

import exporters.tensorflow.ops as ops_package
from exporters._graph.prepare import OPSET_FLOOR
from exporters.tensorflow._table import CONTEXT, TABLE, Lowering, OperatorTable, lower

OPS = Path(ops_package.__file__).parent
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

# Defaults that the schema has not, or has in other words than the newest schema.
DEFAULTS_IN_PROSE = {
    ("GridSample", "mode"),  # "bilinear" is called "linear" since opset 20
    ("RegexFullMatch", "pattern"),  # optional by mistake: without it there is nothing to match
    ("StringNormalizer", "locale"),  # "environment dependent and the default is en_US", says its description
}

# ONNX Runtime's own operators, whose schemas are its, not onnx's.
RUNTIME_SCHEMAS = {(schema.domain, schema.name): schema for schema in get_all_operator_schema()}


def _entry_id(entry: Lowering) -> str:
    return f"{entry.domain or 'onnx'}-{entry.operator}-{entry.since}"


ENTRIES = sorted(TABLE.entries(), key=_entry_id)


def _is_of_runtime(entry: Lowering) -> bool:
    return entry.domain == "com.microsoft" or (entry.domain, entry.operator) == ("", "SimplifiedLayerNormalization")


def _served_schemas(entry: Lowering) -> list[Any]:
    """The schemas of all opsets that an entry serves: from its own (or the table's floor) to the next entry's."""
    if _is_of_runtime(entry):
        return [RUNTIME_SCHEMAS[entry.domain, entry.operator]]
    floor = max(entry.since, OPSET_FLOOR) if entry.domain == "" else entry.since
    later = [
        other.since
        for other in TABLE.entries()
        if (other.domain, other.operator) == (entry.domain, entry.operator) and other.since > entry.since
    ]
    end = min(later, default=onnx.defs.onnx_opset_version() + 1 if entry.domain == "" else 100)
    versions = {}
    for opset in range(floor, end):
        try:
            schema = onnx.defs.get_schema(entry.operator, opset, entry.domain)
        except onnx.defs.SchemaError:
            continue
        versions[schema.since_version] = schema
    return [versions[version] for version in sorted(versions)]


def _is_borrowed(entry: Lowering) -> bool:
    """A function of TensorFlow (or wrapped by a shared tool) whose parameters have TensorFlow's names."""
    module = getattr(entry.function, "__module__", None) or ""
    return not module.startswith("exporters.tensorflow.ops.")


def _inputs(entry: Lowering) -> list[inspect.Parameter]:
    parameters = inspect.signature(entry.function).parameters.values()
    return [p for p in parameters if p.kind in POSITIONAL or p.kind is inspect.Parameter.VAR_POSITIONAL]


def _attributes(entry: Lowering) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(entry.function).parameters
    return {
        name: p
        for name, p in parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY and name not in entry.takes
    }


def _default(attribute: Any) -> Any:
    if isinstance(attribute, onnx.defs.OpSchema.Attribute):
        proto = attribute.default_value
    else:
        proto = onnx.AttributeProto.FromString(attribute._default_value)
    if not proto.type:
        return None
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, list):
        return [item.decode() if isinstance(item, bytes) else item for item in value]
    return value.decode() if isinstance(value, bytes) else value


def _is_same(given: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(given, (int, float)):
        return math.isclose(given, expected, rel_tol=1e-6)
    if isinstance(expected, list) and isinstance(given, tuple):
        return list(given) == expected
    return bool(given == expected)


def test_table_is_filled_by_import() -> None:
    assert len(ENTRIES) > 50
    assert {"Add", "Softmax", "Cast", "Constant", "QuantizeLinear"} <= {entry.operator for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=_entry_id)
def test_entry_serves_a_schema(entry: Lowering) -> None:
    assert _served_schemas(entry), f"no opset that {entry.operator} since {entry.since} serves has such an operator"


@pytest.mark.parametrize("entry", ENTRIES, ids=_entry_id)
def test_entry_takes_the_inputs_of_its_schemas(entry: Lowering) -> None:
    schemas = _served_schemas(entry)
    if _is_borrowed(entry):
        for schema in schemas:
            inspect.signature(entry.function).bind(*schema.inputs)
        return
    parameters = _inputs(entry)
    for schema in schemas:
        is_newest = schema is schemas[-1]
        assert len(parameters) == len(schema.inputs) if is_newest else len(parameters) >= len(schema.inputs)
        options = [formal.option.name for formal in schema.inputs]
        for position, (parameter, formal) in enumerate(zip(parameters, schema.inputs)):
            is_variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            assert is_variadic == (options[position] == "Variadic"), formal.name
            if options[position] == "Optional":
                # Before a required input it is given as None.
                assert parameter.default is None or "Single" in options[position:], f"{formal.name} is optional"
            elif is_newest and not is_variadic:
                assert parameter.default is inspect.Parameter.empty, f"{formal.name} is required"


@pytest.mark.parametrize("entry", ENTRIES, ids=_entry_id)
def test_entry_takes_the_attributes_of_its_schemas(entry: Lowering) -> None:
    schemas = _served_schemas(entry)
    given = {} if _is_borrowed(entry) else _attributes(entry)
    assert set(given) == set(schemas[-1].attributes)
    # What was an attribute in an older opset and is an input now reaches the same parameter by its name.
    given |= {p.name: p for p in _inputs(entry) if not _is_borrowed(entry)}
    for schema in schemas:
        assert set(schema.attributes) <= set(given), f"opset {schema.since_version}"
        for name, attribute in schema.attributes.items():
            if attribute.required or (entry.operator, name) in DEFAULTS_IN_PROSE:
                continue
            found, expected = given[name].default, _default(attribute)
            assert _is_same(found, expected), f"opset {schema.since_version}: {name}={expected!r}, not {found!r}"


@pytest.mark.parametrize("entry", list(TABLE.entries()), ids=_entry_id)
def test_entry_asks_for_context_by_name(entry: Lowering) -> None:
    assert entry.takes <= CONTEXT
    parameters = inspect.signature(entry.function).parameters
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in entry.takes)


@pytest.mark.parametrize("entry", list(TABLE.entries()), ids=_entry_id)
def test_entry_has_no_catch_all_for_attributes(entry: Lowering) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(entry.function).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


@pytest.mark.parametrize("entry", list(TABLE.entries()), ids=_entry_id)
def test_static_positions_are_inputs(entry: Lowering) -> None:
    inputs = _inputs(entry)
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
    for module in _imported(path):
        is_private = module.startswith("exporters.tensorflow._")
        is_allowed = module.split(".")[0] in ("numpy", "tensorflow", "onnx", "onnx_ir") or module == "interop.dtypes"
        is_standard = module.split(".")[0] in sys.stdlib_module_names
        assert is_private or is_allowed or is_standard, f"{path.name} imports {module}"


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            found.add(str(node.module))
    return found
