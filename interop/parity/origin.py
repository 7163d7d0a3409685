"""Where a node of a candidate comes from: the torch operator, the module and the user's line."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Origin", "PlainNode", "line_of", "origin_of"]


@dataclass(frozen=True)
class Origin:
    """Where a node comes from, as far as the file says.

    Attributes:
        module: dotted path of the torch module, empty for the root.
        torch_operator: such as ``"aten.linear.default"``.
        source: ``file.py:line`` of the user's code.
        fx_node: the name of the node in the captured torch program.
    """

    module: str = ""
    torch_operator: str = ""
    source: str = ""
    fx_node: str = ""


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def origin_of(node: Any) -> Origin:
    """Read a node's metadata, as torch.onnx and our exporter write it."""
    if isinstance(node, PlainNode):
        return node.origin
    entries = {entry.key: entry.value for entry in node.metadata_props}
    scopes = _names(entries.get("pkg.torch.onnx.name_scopes", ""))
    classes = _names(entries.get("pkg.torch.onnx.class_hierarchy", ""))
    source = entries.get("tensor_interop.source", "")
    if not source:
        source = line_of(entries.get("pkg.torch.onnx.stack_trace", ""))
    module = scopes[-2] if len(scopes) > 1 else ""
    module = "" if module.startswith("_empty_nn_module") else module
    return Origin(module, classes[-1] if classes else "", source, scopes[-1] if scopes else "")


def line_of(trace: str) -> str:
    """``file.py:line`` of the innermost frame of a stack trace that is the user's own."""
    frames = _FRAME.findall(trace)
    own = [frame for frame in frames if "site-packages" not in frame[0]] or frames
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


@dataclass(frozen=True)
class PlainNode:
    """A node of a model that is not ONNX, with what is read of an ONNX node.

    Attributes:
        name: its name.
        op_type: its operator.
        input: names of the values that it takes.
        output: names of the values that it makes.
        origin: where it comes from.
        attribute: none; an ONNX node has subgraphs there.
    """

    name: str
    op_type: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    origin: Origin
    attribute: tuple[Any, ...] = ()


def _names(text: str) -> list[str]:
    try:
        names = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError):
        return []
    return [str(name) for name in names] if isinstance(names, (list, tuple)) else []
