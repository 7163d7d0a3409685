"""What the operator tables of all targets are held to: the signature of a lowering is the schema of its operator."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from exporters._graph.operator_table import Lowering, OperatorTable
from exporters._graph.prepare import OPSET_FLOOR

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

# Defaults that the schema has not, or has in other words than the newest schema.
DEFAULTS_IN_PROSE = {
    ("GridSample", "mode"),  # "bilinear" is called "linear" since opset 20
    ("RegexFullMatch", "pattern"),  # optional by mistake: without it there is nothing to match
    ("StringNormalizer", "locale"),  # "environment dependent and the default is en_US", says its description
}

# ONNX Runtime's own operators, whose schemas are its, not onnx's.
RUNTIME_SCHEMAS = {(schema.domain, schema.name): schema for schema in get_all_operator_schema()}


def is_of_runtime(entry: Lowering) -> bool:
    """Whether ONNX Runtime has the schema."""
    return entry.domain == "com.microsoft" or (entry.domain, entry.operator) == ("", "SimplifiedLayerNormalization")


def entry_id(entry: Lowering) -> str:
    """What a parametrised test calls an entry."""
    return f"{entry.domain or 'onnx'}-{entry.operator}-{entry.since}"


def served_schemas(entry: Lowering, table: OperatorTable) -> list[Any]:
    """The schemas of all opsets that an entry serves: from its own (or the table's floor) to the next entry's."""
    if is_of_runtime(entry):
        return [RUNTIME_SCHEMAS[entry.domain, entry.operator]]
    floor = max(entry.since, OPSET_FLOOR) if entry.domain == "" else entry.since
    later = [
        other.since
        for other in table.entries()
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


def inputs_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that stand for inputs."""
    parameters = inspect.signature(function).parameters.values()
    return [p for p in parameters if p.kind in POSITIONAL or p.kind is inspect.Parameter.VAR_POSITIONAL]


def attributes_of(entry: Lowering) -> dict[str, inspect.Parameter]:
    """The parameters that stand for attributes."""
    parameters = inspect.signature(entry.function).parameters
    return {
        name: p
        for name, p in parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY and name not in entry.takes
    }


def assert_inputs(parameters: Sequence[inspect.Parameter], schemas: Sequence[Any]) -> None:
    """Hold parameters to the inputs of all schemas that an entry serves."""
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


def assert_attributes(
    operator: str,
    attributes: Mapping[str, inspect.Parameter],
    inputs: Sequence[inspect.Parameter],
    schemas: Sequence[Any],
) -> None:
    """Hold parameters and their defaults to the attributes of all schemas that an entry serves."""
    assert set(attributes) == set(schemas[-1].attributes)
    # What was an attribute in an older opset and is an input now reaches the same parameter by its name.
    given = {**attributes, **{parameter.name: parameter for parameter in inputs}}
    for schema in schemas:
        assert set(schema.attributes) <= set(given), f"opset {schema.since_version}"
        for name, attribute in schema.attributes.items():
            if attribute.required or (operator, name) in DEFAULTS_IN_PROSE:
                continue
            found, expected = given[name].default, _default(attribute)
            assert _is_same(found, expected), f"opset {schema.since_version}: {name}={expected!r}, not {found!r}"


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


def imported_by(path: Path) -> set[str]:
    """The modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            found.add(str(node.module))
    return found
