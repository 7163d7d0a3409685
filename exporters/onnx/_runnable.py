"""What ONNX Runtime says of a model that it does not load, with the operator and the user's line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import onnx_ir as ir

from exporters._graph.nodes import source_of
from exporters.errors import Unsupported, UnsupportedOperatorError
from interop.errors import ModelFileError

__all__ = ["named_refusals"]

_NODE = re.compile(r"node with name '([^']+)'|(?:in|N|n)ode \(([^)]+)\)")


@contextlib.contextmanager
def named_refusals(model: ir.Model) -> Iterator[None]:
    """While this is open, a node that ONNX Runtime does not take becomes an error that names it.

    Raises:
        UnsupportedOperatorError: ONNX Runtime refused the model because of one of its nodes.
    """
    try:
        yield
    except ModelFileError as error:
        match = _NODE.search(str(error))
        name = (match[1] or match[2]) if match else None
        nodes = ir.traversal.RecursiveGraphIterator(model.graph)
        node = next((node for node in nodes if name is not None and node.name == name), None)
        if node is None:
            raise
        kinds = sorted({str(value.dtype.name).lower() for value in node.inputs if value is not None and value.dtype})
        row = Unsupported(
            node.op_type,
            node.name or "",
            f"ONNX Runtime's CPU does not take it for {', '.join(kinds) or 'these inputs'}; cast there, or convert the model "
            "(model.float())",
            source_of(node),
        )
        raise UnsupportedOperatorError("ONNX Runtime", [row]) from error
