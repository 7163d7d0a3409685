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

import exporters.torch.ops as ops_package
from exporters._graph.operator_table import CONTEXT
from exporters._graph.prepare import OPSET_FLOOR
from exporters.torch._builder import _gives_tuple
from exporters.torch._recurrent import DOMAIN
from exporters.torch._table import HOST, TABLE, Lowering

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


def _is_of_runtime(entry: Lowering) -> bool:
    return entry.domain == "com.microsoft" or (entry.domain, entry.operator) == ("", "SimplifiedLayerNormalization")


def _entry_id(entry: Lowering) -> str:
    return f"{entry.domain or 'onnx'}-{entry.operator}-{entry.since}"


ENTRIES = sorted((entry for entry in TABLE.entries() if entry.domain != DOMAIN), key=_entry_id)
OWN = [entry for entry in ENTRIES if getattr(entry.function, "__module__", "").startswith("exporters.torch.ops.")]
by_entry = pytest.mark.parametrize("entry", OWN, ids=_entry_id)


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


def _inputs(function: Any) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
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
    assert len(ENTRIES) > 180
    assert {"Add", "Softmax", "Cast", "Constant", "QuantizeLinear", "LSTM", "Loop"} <= {e.operator for e in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=_entry_id)
def test_entry_serves_a_schema(entry: Lowering) -> None:
    assert _served_schemas(entry), f"no opset that {entry.operator} since {entry.since} serves has such an operator"


@by_entry
def test_entry_takes_the_inputs_of_its_schemas(entry: Lowering) -> None:
    schemas, parameters = _served_schemas(entry), _inputs(entry.function)
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


@by_entry
def test_entry_takes_the_attributes_of_its_schemas(entry: Lowering) -> None:
    schemas, given = _served_schemas(entry), _attributes(entry)
    assert set(given) == set(schemas[-1].attributes)
    # What was an attribute in an older opset and is an input now reaches the same parameter by its name.
    given |= {p.name: p for p in _inputs(entry.function)}
    for schema in schemas:
        assert set(schema.attributes) <= set(given), f"opset {schema.since_version}"
        for name, attribute in schema.attributes.items():
            if attribute.required or (entry.operator, name) in DEFAULTS_IN_PROSE:
                continue
            found, expected = given[name].default, _default(attribute)
            assert _is_same(found, expected), f"opset {schema.since_version}: {name}={expected!r}, not {found!r}"


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e not in OWN], ids=_entry_id)
def test_entry_of_torch_s_own_function_is_for_an_operator_without_attributes(entry: Lowering) -> None:
    assert not any(schema.attributes for schema in _served_schemas(entry))


@by_entry
def test_entry_asks_for_context_by_name(entry: Lowering) -> None:
    assert entry.takes <= CONTEXT - {"training", "values"}
    parameters = inspect.signature(entry.function).parameters
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in entry.takes)
    assert inspect.Parameter.VAR_KEYWORD not in {parameter.kind for parameter in parameters.values()}


@by_entry
def test_lowering_can_be_found_by_its_name_because_the_graph_calls_it_so(entry: Lowering) -> None:
    assert getattr(sys.modules[entry.function.__module__], entry.function.__name__) is entry.function


@pytest.mark.parametrize("operator", sorted(HOST))
def test_host_function_takes_what_the_lowering_takes(operator: str) -> None:
    function = HOST[operator]
    if not getattr(function, "__module__", "").startswith("exporters.torch.ops."):
        return  # one of NumPy's own, of operators without attributes
    schema = onnx.defs.get_schema(operator, onnx.defs.onnx_opset_version())
    parameters = inspect.signature(function).parameters
    keyword_only = {name for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keyword_only == set(schema.attributes)
    assert len(_inputs(function)) == len(schema.inputs)


@pytest.mark.parametrize("path", sorted(OPS.glob("*.py")), ids=lambda path: path.name)
def test_family_imports_only_what_is_allowed(path: Path) -> None:
    for module in _imported(path):
        is_private = module.startswith("exporters.torch._")
        is_allowed = module.split(".")[0] in ("numpy", "torch", "onnx", "PIL") or module == "interop.dtypes"
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


@pytest.mark.parametrize("entry", [e for e in TABLE.entries() if e.domain != "ai.onnx.ml"], ids=_entry_id)
def test_builder_knows_which_lowerings_give_a_tuple(entry: Lowering) -> None:
    if entry.domain == DOMAIN:
        expected = entry.operator == "Recurrent"
    else:
        schema = _served_schemas(entry)[-1]
        expected = len(schema.outputs) > 1 or schema.outputs[0].option.name == "Variadic"
    opsets = {"": onnx.defs.onnx_opset_version(), entry.domain: max(entry.since, 1)} | (
        {"": onnx.defs.onnx_opset_version()} if entry.domain == "" else {}
    )
    assert _gives_tuple(entry, opsets) == expected
