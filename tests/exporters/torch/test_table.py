"""The contract of the operator table: the signature of a lowering is the schema of its operator."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import onnx
import onnx.defs
import pytest

import exporters.torch.ops as ops_package
from exporters._graph.operator_table import CONTEXT
from exporters.torch._builder import _gives_tuple
from exporters.torch._recurrent import DOMAIN
from exporters.torch._table import HOST, TABLE, Lowering
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


ENTRIES = sorted((entry for entry in TABLE.entries() if entry.domain != DOMAIN), key=entry_id)
OWN = [entry for entry in ENTRIES if getattr(entry.function, "__module__", "").startswith("exporters.torch.ops.")]
by_entry = pytest.mark.parametrize("entry", OWN, ids=entry_id)


def test_table_is_filled_by_import() -> None:
    assert len(ENTRIES) > 180
    assert {"Add", "Softmax", "Cast", "Constant", "QuantizeLinear", "LSTM", "Loop"} <= {e.operator for e in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_id)
def test_entry_serves_a_schema(entry: Lowering) -> None:
    assert served_schemas(entry, TABLE), (
        f"no opset that {entry.operator} since {entry.since} serves has such an operator"
    )


@by_entry
def test_entry_takes_the_inputs_of_its_schemas(entry: Lowering) -> None:
    schemas, parameters = served_schemas(entry, TABLE), inputs_of(entry.function)
    assert_inputs(parameters, schemas)


@by_entry
def test_entry_takes_the_attributes_of_its_schemas(entry: Lowering) -> None:
    schemas, given = served_schemas(entry, TABLE), attributes_of(entry)
    inputs = inputs_of(entry.function)
    assert_attributes(entry.operator, given, inputs, schemas)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e not in OWN], ids=entry_id)
def test_entry_of_torch_s_own_function_is_for_an_operator_without_attributes(entry: Lowering) -> None:
    assert not any(schema.attributes for schema in served_schemas(entry, TABLE))


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
    schema = onnx.defs.get_schema(operator, onnx.defs.onnx_opset_version())
    if not getattr(function, "__module__", "").startswith("exporters.torch.ops."):
        assert not schema.attributes, f"{operator} has attributes, which one of NumPy's own functions does not take"
        return
    parameters = inspect.signature(function).parameters
    keyword_only = {name for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keyword_only == set(schema.attributes)
    assert len(inputs_of(function)) == len(schema.inputs)


@pytest.mark.parametrize("path", sorted(OPS.glob("*.py")), ids=lambda path: path.name)
def test_family_imports_only_what_is_allowed(path: Path) -> None:
    for module in imported_by(path):
        is_private = module.startswith(("exporters.torch._", "exporters._graph."))
        is_allowed = module.split(".")[0] in ("numpy", "torch", "onnx", "PIL") or module == "interop.dtypes"
        is_standard = module.split(".")[0] in sys.stdlib_module_names
        assert is_private or is_allowed or is_standard, f"{path.name} imports {module}"


@pytest.mark.parametrize("entry", [e for e in TABLE.entries() if e.domain != "ai.onnx.ml"], ids=entry_id)
def test_builder_knows_which_lowerings_give_a_tuple(entry: Lowering) -> None:
    if entry.domain == DOMAIN:
        expected = entry.operator == "Recurrent"
    else:
        schema = served_schemas(entry, TABLE)[-1]
        expected = len(schema.outputs) > 1 or schema.outputs[0].option.name == "Variadic"
    opsets = {"": onnx.defs.onnx_opset_version(), entry.domain: max(entry.since, 1)} | (
        {"": onnx.defs.onnx_opset_version()} if entry.domain == "" else {}
    )
    assert _gives_tuple(entry, opsets) == expected
