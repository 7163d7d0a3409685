"""Translate a captured program to an ONNX graph; torch.onnx does it, and onnxscript's optimizer cleans up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnxscript.optimizer
import torch
from onnx_ir.passes import common as passes

from exporters._graph.dynamic_time import dynamic_time
from exporters._provenance import user_frame
from exporters.errors import OptionsError, TranslationError, Unsupported, UnsupportedOperatorError
from exporters.onnx._operators import lower_operators
from exporters.onnx._quiet import quiet
from exporters.onnx._registry import known_translations
from exporters.onnx._storage import storage_as_values
from exporters.onnx.corrections import TRANSLATIONS, decompose

__all__ = ["rename_boundary", "rename_dims", "translate"]


def translate(
    program: torch.export.ExportedProgram,
    opset: int | None,
    *,
    fuse: bool = True,
    own: Mapping[Any, Callable[..., Any]] | None = None,
) -> ir.Model:
    """The program as an ONNX model in memory.

    Weights keep their torch names and shapes: constant folding never touches a parameter, so that a weight that two layers
    share is stored once and can be found again by its name.

    Args:
        program: the program.
        opset: the version of the default domain, or None for torch.onnx's own choice.
        fuse: fold BatchNormalization into convolutions and drop biases of zeros.
        own: translations of operators that go before torch.onnx's.

    Raises:
        UnsupportedOperatorError: torch.onnx has no translation for an operator, or an input or output is complex.
        TranslationError: torch.onnx failed otherwise.
        OptionsError: the requested opset could not be honoured.
    """
    _refuse_complex(program)
    try:
        with quiet(), dynamic_time(), known_translations():
            exported = torch.onnx.export(
                decompose(lower_operators(storage_as_values(program))),
                dynamo=True,
                optimize=False,
                verbose=False,
                opset_version=opset,
                external_data=False,
                custom_translation_table={**TRANSLATIONS, **(own or {})},
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise _translation_error(program, error) from error
    assert exported is not None
    model = exported.model
    try:
        _optimize(model, fuse)
    except ir.passes.PassError as error:
        raise TranslationError(
            f"onnxscript's optimizer cannot clean up the translated graph: {_chain(error).splitlines()[-1][:400]}. If the model "
            "has dynamic_shapes, try fewer of them"
        ) from error
    found = model.opset_imports.get("", 0)
    if opset is not None and found != opset:
        raise OptionsError(
            f"opset {opset} was asked for and the model needs {found}: an operator of it cannot be expressed in the older one. "
            f"Ask for opset {found} or leave it open"
        )
    return model


def _refuse_complex(program: torch.export.ExportedProgram) -> None:
    """Complex inputs and outputs, which torch.onnx turns into pairs of real numbers without a word."""
    outputs = set(program.graph.output_node().all_input_nodes)
    rows = [
        Unsupported(
            str(node.target).removesuffix(".default"),
            node.name,
            "it is complex, and ONNX Runtime has no complex numbers; pass torch.view_as_real(...) over the boundary of the model",
            user_frame(node.stack_trace or ""),
        )
        for node in program.graph.nodes
        if (node in outputs or node.op == "placeholder") and _is_complex(node.meta.get("val"))
    ]
    if rows:
        raise UnsupportedOperatorError("ONNX", rows)


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _optimize(model: ir.Model, fuse: bool) -> None:
    weights = set(model.graph.initializers)

    def should_fold(node: ir.Node) -> bool | None:
        touches_weight = any(value is not None and value.name in weights for value in node.inputs)
        return False if touches_weight and node.op_type != "Shape" else None

    with quiet():
        if fuse:
            onnxscript.optimizer.optimize_ir(model, should_fold=should_fold)
        else:
            _clean_up(model, should_fold)


def _clean_up(model: ir.Model, should_fold: Callable[[ir.Node], bool | None]) -> None:
    """What the optimizer does, without the rewrites that change weights."""
    passes.InlinePass()(model)
    onnxscript.optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=should_fold)
    for step in (
        passes.RemoveUnusedNodesPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.CommonSubexpressionEliminationPass(),
        passes.IdentityEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    ):
        step(model)


_NO_FUNCTION = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)', overload='(\w+)'\)>")


def _translation_error(program: torch.export.ExportedProgram, error: Exception) -> TranslationError:
    """The operators that torch.onnx lacks, with the user's lines, instead of its report of three pages."""
    text = _chain(error)
    missing = [operator.split(".")[-1] for operator, _ in _NO_FUNCTION.findall(text)]
    rows = missing and (_lacking(program, missing) or _lacking(_decomposed(program), missing))
    if rows:
        return UnsupportedOperatorError("ONNX", rows)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"(<class |\w*(Error|Exception): )", line)]
    return TranslationError(f"torch.onnx cannot translate the captured program: {(causes or lines)[-1][:400]}")


def _decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program in the operators that torch.onnx met, which may stand in none of the user's lines by that name."""
    with quiet(), dynamic_time():
        simpler: torch.export.ExportedProgram = program.run_decompositions()
    return simpler


def _lacking(program: torch.export.ExportedProgram, missing: Sequence[str]) -> list[Unsupported]:
    return [
        Unsupported(
            str(node.target).removesuffix(".default"),
            node.name,
            "torch.onnx has no translation for it; write that place in other operators, or as an interop.operator",
            user_frame(node.stack_trace or ""),
        )
        for node in program.graph.nodes
        if node.op == "call_function" and _base_name(str(node.target)).endswith(tuple(missing))
    ]


def _base_name(target: str) -> str:
    """``special_bessel_j0`` of ``aten.special_bessel_j0.default``; a decomposition may have dropped the prefix."""
    return target.split(".")[1] if target.count(".") else target


def _chain(error: BaseException | None) -> str:
    texts = []
    while error is not None:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__
    return "\n".join(texts)


def rename_boundary(model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give the graph's inputs and outputs these names; an inner value that has one of them gets another.

    Raises:
        TranslationError: the graph has another number of outputs than the model.
    """
    graph = model.graph
    if len(graph.outputs) != len(outputs) or len(graph.inputs) != len(inputs):
        raise TranslationError(
            f"torch.onnx made a graph with {len(graph.inputs)} inputs and {len(graph.outputs)} outputs for a model with "
            f"{len(inputs)} and {len(outputs)}"
        )
    boundary = {*graph.inputs, *graph.outputs}
    wanted = {*inputs, *outputs}
    for value in _inner_values(graph):
        if value not in boundary and value.name in wanted:
            value.name = _free(f"{value.name}_value", wanted, graph)
    for number, value in enumerate(boundary):  # out of the way first: an input may be called what an output was
        value.name = f"__boundary_{number}__"
    for value, name in zip([*graph.inputs, *graph.outputs], [*inputs, *outputs]):
        value.name = name


def _inner_values(graph: ir.Graph) -> Iterable[ir.Value]:
    yield from list(graph.initializers.values())
    for node in ir.traversal.RecursiveGraphIterator(graph):
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from attribute.as_graph().inputs


def _free(name: str, wanted: set[str], graph: ir.Graph) -> str:
    used = {value.name for value in _inner_values(graph)} | wanted
    candidate, number = name, 1
    while candidate in used:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def rename_dims(model: ir.Model, names: Mapping[str, str]) -> None:
    """Rename symbols, also inside expressions such as ``2*s31``, in every shape of the model."""
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, sorted(names, key=len, reverse=True))) + r")\b")

    def renamed(dim: ir.SymbolicDim | int) -> ir.SymbolicDim | int:
        if not isinstance(dim, ir.SymbolicDim) or dim.value is None:
            return dim
        if dim.value.isdigit():  # a symbol that torch.export fixed in the end
            return int(dim.value)
        return ir.SymbolicDim(pattern.sub(lambda match: names[match[0]], dim.value)) if names else dim

    seen: set[int] = set()
    for value in [*model.graph.inputs, *model.graph.outputs, *_inner_values(model.graph)]:
        if value.shape is None or id(value.shape) in seen:
            continue
        dims = [renamed(dim) for dim in value.shape]
        value.shape = ir.Shape(dims)
        seen.add(id(value.shape))
