"""What an exported file says of itself, and what it does not say of the machine that made it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version

import onnx_ir as ir

from exporters._provenance import user_frame
from interop import Signature
from interop.errors import InputError

__all__ = ["PARAMETERS", "SIGNATURE", "SOURCE", "hide_machine", "read_signature", "stamp", "stamp_precision"]

SIGNATURE = "tensor_interop.signature"
PARAMETERS = "tensor_interop.parameters"
VERSIONS = "tensor_interop.versions"
PRECISION = "tensor_interop.precision"
TORCH_CLASS = "tensor_interop.torch_class"
SOURCE = "tensor_interop.source"

_TRACE = "pkg.torch.onnx.stack_trace"
_FX_NODE = "pkg.torch.onnx.fx_node"
_TOOLS = ("torch", "onnx", "onnxscript", "onnx-ir")


def stamp(model: ir.Model, signature: Signature, parameters: Mapping[str, bool], torch_class: str) -> None:
    """Write the signature, the parameters and the tool versions into the model's metadata.

    Args:
        model: the model.
        signature: its signature.
        parameters: ``{initializer name: trainable}`` of the torch parameters and buffers.
        torch_class: name of the model's class.
    """
    model.producer_name = "tensor-interop"
    model.producer_version = version("tensor-interop") if _is_installed() else ""
    model.metadata_props[SIGNATURE] = json.dumps(signature.to_json(), separators=(",", ":"))
    model.metadata_props[PARAMETERS] = json.dumps(dict(parameters), separators=(",", ":"))
    model.metadata_props[VERSIONS] = json.dumps({tool: version(tool) for tool in _TOOLS}, separators=(",", ":"))
    model.metadata_props[TORCH_CLASS] = torch_class


def stamp_precision(model: ir.Model, precision: str, parameters: Mapping[str, bool] | None) -> dict[str, bool] | None:
    """Write the precision, and which parameters are still weights of their own; gives the latter."""
    model.metadata_props[PRECISION] = precision
    if parameters is None:
        return None
    left = {name: trainable for name, trainable in parameters.items() if name in model.graph.initializers}
    model.metadata_props[PARAMETERS] = json.dumps(left, separators=(",", ":"))
    return left


def _is_installed() -> bool:
    try:
        version("tensor-interop")
    except ModuleNotFoundError:
        return False
    return True


def read_signature(model: ir.Model) -> Signature | None:
    """The signature that ``stamp`` wrote, if the model has one that fits its graph."""
    text = model.metadata_props.get(SIGNATURE)
    if text is None:
        return None
    try:
        signature = Signature.from_json(json.loads(text))
    except (InputError, ValueError, TypeError):
        return None
    inputs = tuple(value.name for value in model.graph.inputs if value.name not in model.graph.initializers)
    outputs = tuple(value.name for value in model.graph.outputs)
    return signature if (signature.input_names, signature.output_names) == (inputs, outputs) else None


def read_parameters(model: ir.Model) -> dict[str, bool] | None:
    """The parameters that ``stamp`` wrote, if they are initializers of the model."""
    try:
        data = json.loads(model.metadata_props.get(PARAMETERS, "null"))
    except ValueError:
        return None
    if not isinstance(data, dict) or not set(data) <= set(model.graph.initializers):
        return None
    return {str(name): bool(trainable) for name, trainable in data.items()}


def hide_machine(model: ir.Model) -> None:
    """Replace each node's stack trace, with the paths of the exporting machine, by ``file.py:line``."""
    for node in _all_nodes(model):
        trace = node.metadata_props.pop(_TRACE, "")
        node.metadata_props.pop(_FX_NODE, None)
        if frame := user_frame(trace):
            node.metadata_props[SOURCE] = frame


def _all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)
