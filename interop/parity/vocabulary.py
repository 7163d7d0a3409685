"""The range of integer inputs that are looked up in a table, read off ``Embedding`` modules or ONNX ``Gather``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interop.extras import loaded, require
from interop.parity.inputs import Range
from interop.parity.noise import MODEL_ERRORS
from interop.parity.witness import ModuleWitness, Witness
from interop.signature import Signature

__all__ = ["module_ranges", "onnx_ranges"]


def module_ranges(witness: Witness, tensors: Mapping[str, Any], naming: Signature | None) -> dict[str, Range]:
    """Run a module once and see which integer inputs reach an embedding unchanged.

    Args:
        witness: the reference; one that is no module gives nothing.
        tensors: valid inputs.
        naming: the signature that the inputs are named by.

    Returns:
        ``{input name: (0, number of embeddings)}``.
    """
    if not isinstance(witness, ModuleWitness):
        return {}
    with _lookups(witness.module) as seen, contextlib.suppress(*MODEL_ERRORS):
        witness.run(tensors, naming)
    found: dict[str, Range] = {}
    for name, tensor in tensors.items():
        sizes = [size for indices, size in seen if _same(tensor, indices)]
        if sizes:
            found[name] = (0, min(sizes))
    return found


@contextlib.contextmanager
def _lookups(module: Any) -> Iterator[list[tuple[Any, int]]]:
    """Record the indices that every embedding is called with, and its size."""
    torch = require("torch", "to run a module")
    seen: list[tuple[Any, int]] = []

    def record(table: Any, args: Any) -> None:
        if args and isinstance(args[0], torch.Tensor):
            seen.append((args[0].detach().cpu().numpy(), int(table.num_embeddings)))

    tables = [part for part in module.modules() if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))]
    hooks = [table.register_forward_pre_hook(record) for table in tables]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _same(tensor: Any, indices: Any) -> bool:
    values = np.asarray(tensor) if hasattr(tensor, "shape") else np.empty(0)
    return values.dtype.kind in "iu" and values.size > 0 and np.array_equal(values, indices)


def onnx_ranges(path: Path | None) -> dict[str, Range]:
    """Inputs of an ONNX file that a ``Gather`` looks up along axis 0 of an initializer.

    Args:
        path: the file; anything else than an ONNX file gives nothing.
    """
    if path is None or path.suffix != ".onnx" or loaded("onnx") is None:
        return {}
    graph = loaded("onnx").load(path, load_external_data=False).graph  # type: ignore[union-attr] # it is loaded
    rows = {table.name: table.dims[0] for table in graph.initializer if table.dims}
    origin = {value.name: value.name for value in graph.input}
    found: dict[str, Range] = {}
    for node in graph.node:
        if node.op_type in ("Cast", "Identity") and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        if node.op_type == "Gather" and axis == 0 and node.input[0] in rows and node.input[1] in origin:
            name, size = origin[node.input[1]], int(rows[node.input[0]])
            found[name] = (0, min(size, found.get(name, (0, size))[1]))
    return found
