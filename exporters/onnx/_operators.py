"""Operators of ``interop.operator`` whose body is not torch's become nodes that ONNX Runtime gives to Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exporters.onnx._calls import calls_of
from interop.dtypes import dtype_of
from interop.operators import find
from interop.operators._call import Call
from interop.operators._files import Stored, carrier, domain_of

__all__ = ["lower_operators"]

_NAMESPACE = "tensor_interop"


def lower_operators(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with each such operator as one symbolic ONNX node; the same program where there is none."""
    found = {
        node.target
        for node in calls_of(program.graph_module)
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == _NAMESPACE
    }
    if not found:
        return program
    lowered: torch.export.ExportedProgram = program.run_decompositions({target: _node_of(target) for target in found})
    return lowered


def _node_of(target: Any) -> Callable[..., Any]:
    name = target._opname

    def node(tensors: list[torch.Tensor], call: str) -> list[torch.Tensor]:
        from interop.operators.torch import results_of

        made = find(name)
        results = results_of(made, Call.from_text(call), tensors)
        inputs = [dtype_of(tensor.dtype).name for tensor in tensors]
        outputs = [dtype_of(dtype).name for dtype, _ in results]
        stored = Stored(name, call, " ".join(inputs), " ".join(outputs), getattr(made.function, "__module__", ""))
        given = torch.onnx.ops.symbolic_multi_out(
            f"{domain_of(name, inputs, outputs)}::{name}",
            [tensor.to(_carrier(tensor.dtype)) for tensor in tensors],
            stored._asdict(),
            dtypes=[_carrier(dtype) for dtype, _ in results],
            shapes=[shape for _, shape in results],
            version=1,
        )
        return [value.to(dtype) for value, (dtype, _) in zip(given, results)]

    return node


def _carrier(dtype: torch.dtype) -> torch.dtype:
    name = dtype_of(dtype).name
    return dtype if carrier(name) == name else torch.float32
