"""What a LiteRT file says about itself, read from its tables.

Source: the LiteRT schema (``schema.fbs``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import interop
from interop.extras import require

__all__ = ["read"]


def read(path: Path) -> dict[str, Any]:
    """The fields of a ``Description``, by name.

    Args:
        path: a ``.tflite`` file.

    Raises:
        ModelFileError: not a LiteRT file, or a damaged one.
    """
    signature = interop.load(path, runtime="litert").signature  # which verifies the tables first, and runs nothing
    schema = require("ai_edge_litert.schema_py_generated", "to read a LiteRT model")
    model = schema.Model.GetRootAs(np.memmap(path, np.uint8, "r").data)
    graphs = [model.Subgraphs(number) for number in range(model.SubgraphsLength())]
    weights = [tensor for graph in graphs for tensor in _weights(model, graph)]
    described = (model.Description() or b"").decode(errors="replace")
    return {
        "format": "LiteRT",
        "file_bytes": path.stat().st_size,
        "signature": signature,
        "operators": Counter(name for graph in graphs for name in _operators(schema, model, graph)),
        "parameters": sum(elements for elements, _ in weights),
        "tensors": len(weights),
        "parameter_bytes": sum(size for _, size in weights),
        "metadata": {"schema version": str(model.Version()), "description": described or "not said"}
        | _oldest_runtime(model),
    }


def _operators(schema: Any, model: Any, graph: Any) -> Iterator[str]:
    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    for number in range(graph.OperatorsLength()):
        code = model.OperatorCodes(graph.Operators(number).OpcodeIndex())
        custom = code.CustomCode()
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())  # the older field ends at 127
        yield custom.decode(errors="replace") if custom else names.get(builtin, f"operator {builtin}")


def _weights(model: Any, graph: Any) -> Iterator[tuple[int, int]]:
    """Elements and bytes of each tensor that the file holds the values of."""
    for number in range(graph.TensorsLength()):
        tensor = graph.Tensors(number)
        buffer = model.Buffers(tensor.Buffer())
        size = buffer.DataLength() or buffer.Size()  # the latter is outside of the tables, in a file above 2 GB
        if size:
            yield math.prod(tensor.Shape(axis) for axis in range(tensor.ShapeLength())), size


def _oldest_runtime(model: Any) -> dict[str, str]:
    """The oldest runtime that the file needs, where it says so."""
    for entry in (model.Metadata(number) for number in range(model.MetadataLength())):
        if entry.Name() == b"min_runtime_version" and entry.Buffer() < model.BuffersLength():
            data = bytes(model.Buffers(entry.Buffer()).DataAsNumpy())
            return {"min_runtime_version": data.rstrip(b"\0").decode(errors="replace")}
    return {}
