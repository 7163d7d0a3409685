"""Which dtypes an operator takes in the TensorFlow format, found by trying: ``python -m tools.dtypes [OPERATOR ...]``.

An operator's dtypes are those of its first input that may have more than one, or of its first output where no input may; where
there is no choice, that of its first input. Each that ONNX's schema allows is tried on a case of the backend suite: on one that
has this dtype, against the suite's own values; otherwise on another case of the operator with its tensors cast, and with them the
inputs that have the same dtype in the case and may have the new one, against onnx's reference evaluator where that runs.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from interop.dtypes import DType, dtype_of
from tests.node_suite import cases as suite
from tests.node_suite.cases import Case

__all__ = ["Key", "Tried", "dtypes_text", "operators_with_cases", "try_dtypes", "try_operators"]

Key = tuple[str, str]
"""``(domain, operator)``, with ``"ai.onnx"`` for the default domain."""

RANDOM = frozenset({"Bernoulli", "Dropout"})
"""Their values have no witness; that they run is all there is to see."""

BOUND = frozenset({"BitCast", "TfIdfVectorizer"})
"""Their attributes hold for one dtype, so a case of another is not cast; the same goes for subgraphs and ai.onnx.ml."""

TYPE_ATTRIBUTES = frozenset({"dtype", "to", "output_datatype"})
TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-3, "float64": 1e-5, "complex64": 1e-3, "complex128": 1e-5}

GROUPS = {
    "floats": ("float16", "bfloat16", "float32", "float64"),
    "ints": ("int8", "int16", "int32", "int64"),
    "uints": ("uint8", "uint16", "uint32", "uint64"),
    "complexes": ("complex64", "complex128"),
    "float8s": ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
}
"""Shorter words for dtypes that go together."""


@dataclass(frozen=True)
class Tried:
    """What came of one dtype.

    Attributes:
        dtype: its canonical name.
        problem: why it does not count; empty where it does.
        witness: what the values were compared with: ``"suite"``, ``"reference"``, or ``"none"`` where nothing else runs.
    """

    dtype: str
    problem: str = ""
    witness: str = "none"


def try_operators(wanted: Iterable[Key] | None = None) -> dict[Key, list[Tried]]:
    """Try the dtypes of all operators that have a case, or of some."""
    found = operators_with_cases()
    return {key: try_dtypes(found[key]) for key in (sorted(found) if wanted is None else wanted)}


def operators_with_cases() -> dict[Key, list[Case]]:
    """The suite's cases of one node, by operator; those of the newest opset come first."""
    found: dict[Key, list[Case]] = {}
    for name, case in suite.all_cases().items():
        if name.startswith("node/") and len(case.model.graph.node) == 1 and not case.model.functions:
            node = case.model.graph.node[0]
            found.setdefault((node.domain or "ai.onnx", node.op_type), []).append(case)
    return {key: sorted(cases, key=lambda case: -_opset(case)) for key, cases in found.items()}


def dtypes_text(tried: Sequence[Tried]) -> str:
    """A cell of the page: the dtypes that count, and behind *not* those that ONNX allows and that do not."""
    good, bad = ([one.dtype for one in tried if bool(one.problem) is failed] for failed in (False, True))
    text = _grouped(good) if good else "none" if bad else ""
    return f"{text}; not {_grouped(bad)}" if bad else text


def _grouped(names: Sequence[str]) -> str:
    words = []
    for name in names:
        group = next((word for word, members in GROUPS.items() if name in members and {*members} <= {*names}), name)
        words.append(group)
    return ", ".join(dict.fromkeys(words))


def try_dtypes(cases: Sequence[Case]) -> list[Tried]:
    """Try all dtypes of an operator.

    Args:
        cases: the suite's cases of it, at least one.
    """
    native: dict[str, Case] = {}
    for case in cases:
        if kind := _dtype_of_case(case):
            native.setdefault(kind, case)
    if not native:
        return []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = (_try(dtype, native.get(dtype.name), cases) for dtype in _allowed(cases[0]))
        return [one for one in found if one is not None]


def _try(dtype: DType, native: Case | None, cases: Sequence[Case]) -> Tried | None:
    """None where no case has the dtype and none can be cast to it."""
    if native is not None:
        random = native.model.graph.node[0].op_type in RANDOM
        problem = _problem(native.model, [(x, None) for x, _ in native.data()]) if random else _problem(native)
        return Tried(dtype.name, problem, "none" if random else "suite")
    for case in cases[:8]:
        if (model := _cast_model(case, dtype)) is not None:
            inputs = [_cast_inputs(case, dtype, given) for given, _ in case.data()]
            data = [(given, _reference(model, given)) for given in inputs]
            witness = "none" if any(expected is None for _, expected in data) else "reference"
            return Tried(dtype.name, _problem(model, data), witness)
    return None


def _opset(case: Case) -> int:
    domain = case.model.graph.node[0].domain
    return next(int(entry.version) for entry in case.model.opset_import if entry.domain == domain)


def _schema(case: Case) -> Any:
    node = case.model.graph.node[0]
    return onnx.defs.get_schema(node.op_type, _opset(case), node.domain)


def _parameter(schema: Any) -> tuple[str, list[str]]:
    """The type parameter whose dtypes are tried, and the types that it may have."""
    choices = {entry.type_param_str: list(entry.allowed_type_strs) for entry in schema.type_constraints}
    found = [(text, choices.get(text, [text])) for text in (f.type_str for f in (*schema.inputs, *schema.outputs))]
    return next((one for one in found if len(one[1]) > 1), found[0])


def _allowed(case: Case) -> list[DType]:
    """In the order of the page: floats first, then by width."""
    texts = [text for text in _parameter(_schema(case))[1] if text.startswith("tensor(")]
    names = (text.removeprefix("tensor(").removesuffix(")").upper() for text in texts)
    found = [dtype_of(int(TensorProto.DataType.Value(name))) for name in names]
    order = [name for members in GROUPS.values() for name in members]
    return sorted(found, key=lambda d: (order.index(d.name) if d.name in order else len(order), d.kind, d.bits, d.name))


def _formals(names: Sequence[str], formals: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """``(name, type parameter)`` of the inputs or outputs that a node has; the last formal may repeat."""
    for place, name in enumerate(names):
        if name:
            yield name, formals[min(place, len(formals) - 1)].type_str


def _typed(case: Case) -> tuple[set[str], set[str]]:
    """The names of the node's inputs, and of its outputs, that have the parameter's type."""
    node, schema = case.model.graph.node[0], _schema(case)
    parameter = _parameter(schema)[0]
    pairs = (_formals(node.input, schema.inputs), _formals(node.output, schema.outputs))
    inputs, outputs = ({name for name, text in found if text == parameter} for found in pairs)
    return inputs, outputs


def _to_cast(case: Case, dtype: DType) -> set[str]:
    """The inputs that have the parameter's type, and those that have its dtype in the case and may have the new one."""
    node, schema, graph = case.model.graph.node[0], _schema(case), case.model.graph
    choices = {entry.type_param_str: entry.allowed_type_strs for entry in schema.type_constraints}
    wanted = {text for text, allowed in choices.items() if _text(dtype) in allowed}
    dtypes = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    inputs, _ = _typed(case)
    old = {dtypes[name] for name in inputs & {*dtypes}}
    alike = {name for name, text in _formals(node.input, schema.inputs) if text in wanted and dtypes.get(name) in old}
    return inputs | alike


def _text(dtype: DType) -> str:
    return f"tensor({TensorProto.DataType.Name(int(dtype.onnx or 0)).lower()})"


def _dtype_of_case(case: Case) -> str:
    """The dtype that a case has for its operator's parameter; empty where that holds something else than a tensor."""
    inputs, outputs = _typed(case)
    for value in (*case.model.graph.input, *case.model.graph.output):
        if value.name in inputs | outputs:
            number = value.type.tensor_type.elem_type
            return dtype_of(int(number)).name if number else ""
    return ""


def _cast_model(case: Case, dtype: DType) -> ModelProto | None:
    """The case's model with the parameter's tensors in another dtype; None where that is no valid model."""
    model = ModelProto()
    model.CopyFrom(case.model)
    (node,), (inputs, outputs) = model.graph.node, _typed(case)
    tied = node.domain == "ai.onnx.ml" or node.op_type in BOUND or any(a.HasField("g") for a in node.attribute)
    if tied or any(not value.type.HasField("tensor_type") for value in (*model.graph.input, *model.graph.output)):
        return None
    moved = _to_cast(case, dtype)
    for value in model.graph.input:
        if value.name in moved:
            value.type.tensor_type.elem_type = int(dtype.onnx or 0)
    if not inputs:
        _cast_attributes(node, dtype)
    return _with_inferred_outputs(model, outputs, dtype)


def _with_inferred_outputs(model: ModelProto, typed: set[str], dtype: DType) -> ModelProto | None:
    """Declare the outputs as onnx infers them; None where it refuses the model or infers something else."""
    declared = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
    for value in model.graph.output:
        value.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph.output
    except (onnx.shape_inference.InferenceError, RuntimeError):
        return None
    for value, made in zip(model.graph.output, inferred):
        number = made.type.tensor_type.elem_type or (dtype.onnx if value.name in typed else declared[value.name])
        if value.name in typed and number != dtype.onnx:
            return None
        value.type.CopyFrom(helper.make_tensor_type_proto(int(number or 0), None))
    return model


def _cast_attributes(node: NodeProto, dtype: DType) -> None:
    """Say the dtype where the node's attributes decide it."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            array = _cast(numpy_helper.to_array(attribute.t), dtype)
            attribute.t.CopyFrom(numpy_helper.from_array(array, attribute.t.name))
        elif attribute.name in TYPE_ATTRIBUTES:
            attribute.i = int(dtype.onnx or 0)


def _cast_inputs(case: Case, dtype: DType, inputs: Sequence[Any]) -> list[Any]:
    moved = _to_cast(case, dtype)
    return [_cast(x, dtype) if value.name in moved else x for value, x in zip(case.model.graph.input, inputs)]


def _cast(array: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """The array in a dtype: no negative numbers where that has none, texts for strings."""
    array = np.asarray(array)
    if dtype.kind == "string":
        return np.array([str(item) for item in array.reshape(-1)], object).reshape(array.shape)
    if array.dtype.kind in "OU":
        array = np.arange(array.size).reshape(array.shape)
    made: np.ndarray[Any, Any] = (np.abs(array) if dtype.kind == "uint" else array).astype(dtype.numpy)
    return made


def _reference(model: ModelProto, inputs: Sequence[Any]) -> list[Any] | None:
    """What onnx's reference evaluator computes; None where it does not run, or gives another dtype than it must."""
    if model.graph.node[0].op_type in RANDOM:
        return None
    try:
        feeds = {value.name: x for value, x in zip(model.graph.input, inputs)}
        outputs = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # noqa: BLE001  # it fails in every way that there is, and is no witness then
        return None
    for value, output in zip(model.graph.output, outputs):
        wanted = dtype_of(int(value.type.tensor_type.elem_type)).numpy
        if not isinstance(output, np.ndarray | np.generic) or (not wanted.hasobject and output.dtype != wanted):
            return None
    return list(outputs)


Data = Sequence[tuple[list[Any], list[Any] | None]]
"""Inputs and expected outputs of each run; None where nobody says what they are."""


@dataclass(frozen=True)
class _Source:
    """What a case is made of."""

    model: ModelProto
    data_sets: Data


def _problem(model: ModelProto | Case, data: Data = ()) -> str:
    """Why a model does not convert, run, or give the expected values; empty where it does."""
    try:
        if isinstance(model, Case):
            _suite_runner()(model, saved=False)
        elif any(expected is None for _, expected in data):
            _run(model, data)
        else:
            _suite_runner()(Case("cast", *_tolerance(model), _Source(model, data)), saved=False)
    except Exception as error:  # noqa: BLE001  # whatever is raised is the reason
        return f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"
    return ""


@functools.cache
def _suite_runner() -> Any:
    from interop.extras import require

    require("tensorflow", "to try dtypes")  # holds back its start-up notes
    from tests.node_suite.convert import run_case

    return run_case


def _run(model: ModelProto, data: Data) -> None:
    import onnx_ir as ir
    import tensorflow as tf

    from exporters.tensorflow._convert import lower_model

    module = lower_model(ir.from_proto(model))
    for inputs, _ in data:
        results = module(*map(tf.constant, inputs))
        for value, result in zip(model.graph.output, results.values(), strict=True):
            assert dtype_of(result.dtype) is dtype_of(int(value.type.tensor_type.elem_type)), (
                f"{value.name}: {result.dtype}"
            )


def _tolerance(model: ModelProto) -> tuple[float, float]:
    """Relative and absolute: of the coarsest dtype that the model has."""
    values = (*model.graph.input, *model.graph.output)
    coarsest = max(TOLERANCE.get(dtype_of(int(value.type.tensor_type.elem_type)).name, 0.0) for value in values)
    return coarsest, coarsest


def main() -> None:
    """Print what came of each dtype."""
    parser = argparse.ArgumentParser(prog="python -m tools.dtypes", description=__doc__)
    parser.add_argument("operators", nargs="*")
    wanted = parser.parse_args().operators
    keys = [key for key in sorted(operators_with_cases()) if not wanted or key[1] in wanted]
    for (domain, operator), found in try_operators(keys).items():
        for one in found:
            print(f"{domain} {operator} {one.dtype} [{one.witness}] {one.problem or 'ok'}")  # noqa: T201  # a command


if __name__ == "__main__":
    main()
