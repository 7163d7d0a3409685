"""The lowered module as a runtime: the signature of the model that it came from, tensors of any framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

import interop
from interop import Runtime, Signature
from interop.structure import fill, pick

__all__ = ["LoweredRuntime"]


class LoweredRuntime(Runtime):
    """A module that ``lower_model`` made; it runs without gradients, call the module itself for those.

    Args:
        module: the module.
        signature: its inputs and outputs.
    """

    name = "torch"
    framework = "torch"

    def __init__(self, module: fx.GraphModule, signature: Signature) -> None:
        super().__init__(signature)
        self._module = module

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        signature = self.signature
        tensors = {name: _to_torch(value) for name, value in inputs.items()}
        with torch.no_grad():
            if signature.arguments is None:
                result = self._module(*(tensors[name] for name in signature.input_names))
            else:
                args = fill(signature.arguments, tensors)
                result = self._module(*args, **fill(signature.keywords, tensors))
        return {name: _give(value, owner) for name, value in _flat(signature, result).items()}


def _flat(signature: Signature, result: Any) -> dict[str, Any]:
    """``{output name: value}`` of what the module returns."""
    if signature.results is not None:
        return pick(signature.results, result, "result")
    names = signature.output_names
    return dict(zip(names, result if len(names) > 1 else (result,), strict=True))


def _to_torch(value: Any) -> Any:
    """A tensor; an array of strings and a sequence's list stay what they are."""
    if isinstance(value, list):
        return [_to_torch(item) for item in value]
    if value is None or str(getattr(value, "dtype", "")).startswith(("object", "<U", "|S")):
        return value
    return interop.convert(value, "torch")


def _give(value: Any, owner: str) -> Any:
    if isinstance(value, list):
        return [_give(item, owner) for item in value]
    return interop.convert(value, owner) if isinstance(value, torch.Tensor) and owner != "torch" else value
