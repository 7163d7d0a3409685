"""Run tf2onnx on a frozen graph, and tell what it could not convert."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import onnx
import onnx_ir as ir
import tensorflow as tf
from onnx_ir.passes import common
from tf2onnx import constants, optimizer, tfonnx, utils

from exporters.errors import ExportError, TranslationError, Unsupported, UnsupportedOperatorError
from exporters.onnx._artifact import OnnxArtifact
from exporters.onnx._metadata import SIGNATURE, VERSIONS
from exporters.onnx.from_tensorflow._corrections import handlers
from exporters.onnx.from_tensorflow._freeze import Frozen, freeze
from exporters.onnx.from_tensorflow._graph import name_boundary, name_inside, sort_nodes
from exporters.onnx.from_tensorflow._rewrite import RefusedError
from exporters.onnx.from_tensorflow._symbols import with_symbols

__all__ = ["convert"]

OLDEST_OPSET, NEWEST_OPSET = 16, 18
"""From the first in which ScatterND sums to the last that tf2onnx 1.17 writes."""

_TOOLS = ("tensorflow-cpu", "tensorflow", "keras", "tf2onnx", "onnx")
_LEFT_OUT = ("merge_duplication", "remove_identity", "einsum_optimizer")
"""Passes whose result depends on the addresses of objects, such as which of two equal constants stays."""

_lock = threading.Lock()  # tf2onnx numbers names in a global


def convert(runtime: Any, opset: int | None = None) -> OnnxArtifact:
    """See ``exporters.onnx.from_tensorflow.from_tensorflow``."""
    if opset is not None and not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise TranslationError(
            f"TensorFlow models are written with opset {OLDEST_OPSET} to {NEWEST_OPSET}, got opset={opset}"
        )
    for spec in (*runtime.signature.inputs, *runtime.signature.outputs):
        if spec.kind != "tensor":
            raise TranslationError(f"tf2onnx takes and gives tensors only, and {spec.name!r} is a {spec.kind}")
    root, function, inputs, outputs = runtime.concrete
    signature = with_symbols(runtime)
    with _lock, _collected() as failures, _told():
        frozen = freeze(root, function, list(inputs.values()), list(outputs.values()))
        if rows := [*_of_bfloat16(frozen.graph)]:
            raise UnsupportedOperatorError("ONNX", rows)
        proto = _converted(frozen, opset or NEWEST_OPSET, failures)
    model = ir.from_proto(proto)
    sort_nodes(model.graph)
    common.IdentityEliminationPass()(model)
    common.DeduplicateInitializersPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedOpsetsPass()(model)
    sort_nodes(model.graph)
    name_inside(model.graph, (*inputs, *outputs))
    name_boundary(model.graph, signature)
    _stamp(model, signature)
    return OnnxArtifact(model, signature)


_FAILURES = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, AssertionError, tf.errors.OpError)
"""What TensorFlow's freezing and tf2onnx raise."""


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What the libraries raise becomes an error of ours."""
    try:
        yield
    except ExportError:
        raise
    except _FAILURES as error:
        raise TranslationError(
            f"tf2onnx cannot convert the model: {type(error).__name__}: {str(error)[:1000]}"
        ) from error


def _converted(frozen: Frozen, opset: int, failures: list[logging.LogRecord]) -> onnx.ModelProto:
    utils.INTERNAL_NAME = 1  # names depend on what was converted before otherwise
    contrib = onnx.helper.make_opsetid("com.microsoft", 1)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen.graph, name="")
        converted = tfonnx.process_tf_graph(
            graph,
            continue_on_error=True,  # so that all failures are known, not only the first
            opset=opset,
            extra_opset=[contrib],
            custom_op_handlers=handlers(),
            input_names=list(frozen.inputs),
            output_names=list(frozen.outputs),
            initialized_tables=frozen.tables,
        )
    if rows := [*_unsupported(failures, frozen.operators)]:
        raise UnsupportedOperatorError("ONNX", rows)
    passes = {name: factory for name, factory in optimizer._get_optimizers().items() if name not in _LEFT_OUT}
    proto = optimizer.optimize_graph(converted, optimizers=passes).make_model("", graph_name="model")
    if rows := list(_unknown(proto.graph, {entry.domain: entry.version for entry in proto.opset_import})):
        raise UnsupportedOperatorError("ONNX", rows)
    return proto


def _of_bfloat16(graph: Any) -> Iterator[Unsupported]:
    """Operators on bfloat16, which tf2onnx writes as float16."""
    for node in (*graph.node, *(node for body in graph.library.function for node in body.node_def)):
        kinds = {kind for value in node.attr.values() for kind in (value.type, *value.list.type)}
        if tf.bfloat16.as_datatype_enum in kinds:
            yield Unsupported(node.op, node.name, "tf2onnx writes bfloat16 as float16; cast to float32 before it")


def _unsupported(failures: list[logging.LogRecord], operators: Mapping[str, str]) -> Iterator[Unsupported]:
    """What tf2onnx logged: nodes that it has no handler for, and such whose handler gave up."""
    for record in failures:
        args = record.args if isinstance(record.args, tuple) else ()
        if record.msg.startswith("Tensorflow op"):
            name, operator = args
            yield Unsupported(str(operator), str(name), "tf2onnx has no ONNX operators for it")
        elif record.msg.startswith("Failed to convert node"):
            name, error = str(args[0]), record.exc_info[1] if isinstance(record.exc_info, tuple) else None
            reason = str(error) if isinstance(error, RefusedError) else f"tf2onnx does not convert this use: {error}"
            yield Unsupported(operators.get(name, "operator"), name, reason)


def _unknown(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> Iterator[Unsupported]:
    """Nodes of operators that ONNX does not have, in whatever way they came to stand there."""
    for node in graph.node:
        if node.domain in ("", "ai.onnx") and not onnx.defs.has(node.op_type, opsets[""], ""):
            yield Unsupported(node.op_type, node.name, f"ONNX opset {opsets['']} has no such operator")
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _unknown(inner, opsets)


class _Kept(logging.Handler):
    """Keeps the records."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        self.records.append(record)


@contextlib.contextmanager
def _collected() -> Iterator[list[logging.LogRecord]]:
    """tf2onnx's log instead of its messages on the terminal."""
    handler = _Kept(logging.ERROR)
    logger = logging.getLogger(constants.TF2ONNX_PACKAGE_NAME)
    mapper = logging.getLogger(tfonnx.__name__)
    propagate, level = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    mapper.addHandler(handler)
    try:
        yield handler.records
    finally:
        mapper.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


def _stamp(model: ir.Model, signature: Any) -> None:
    model.producer_name, model.producer_version = "tensor-interop", ""
    model.graph.doc_string = None
    model.metadata_props[SIGNATURE] = json.dumps(signature.to_json(), separators=(",", ":"))
    found = {}
    for tool in _TOOLS:
        with contextlib.suppress(ModuleNotFoundError):  # one of the two TensorFlow packages is installed
            found[tool] = version(tool)
    model.metadata_props[VERSIONS] = json.dumps(found, separators=(",", ":"))
