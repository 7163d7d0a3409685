"""Hugging Face Transformers: its own export patches around ours, and its caches among the results.

Transformers knows which of its masks, attentions, experts and caches torch.export cannot follow, and ships replacements for
them (``transformers.exporters``). They are in place only while a model of it is captured and translated.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters.onnx._attention import attention_by_shape
from exporters.onnx._tags import is_tagged, tagged_paths
from interop.extras import loaded

__all__ = ["Preparation", "holds_transformers", "preparations", "token_axes"]


@dataclass(frozen=True)
class Help:
    """What a preparation offers.

    Attributes:
        translations: for operators that torch.onnx lacks or gets wrong.
        repair: called with the graph module of the captured program, which it may change.
    """

    translations: Mapping[Any, Any] = field(default_factory=dict)
    repair: Callable[[Any], None] = lambda graph_module: None


Preparation = contextlib.AbstractContextManager[Help]
"""What surrounds a capture and its translation."""


def preparations(model: Any) -> list[Preparation]:
    """The ways to prepare an export of this model, in the order to try them."""
    plain: Preparation = contextlib.nullcontext(Help())
    return [_patched(model), plain] if holds_transformers(model) and _exporters() is not None else [plain]


def holds_transformers(model: Any) -> bool:
    """Whether the model, or a part of it, comes from Transformers."""
    transformers = loaded("transformers")
    if transformers is None or not isinstance(model, torch.nn.Module):
        return False
    return any(isinstance(module, transformers.PreTrainedModel) for module in model.modules())


def token_axes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Names for the dims of a Transformers model's inputs that count tokens, as ``automatic_shapes`` takes them.

    Dim 1 of token inputs is ``sequence``, or ``decoder_sequence`` for the decoder's; a mask that is longer because it covers a
    cache too has ``total_sequence``. Dim 2 of the keys and values of a cache is ``past_sequence``, with the name of the part
    in front where a cache holds several. Dim 1 of what an encoder gave (a ``ModelOutput``) is ``encoder_sequence``.

    Args:
        arguments: the example's arguments by name.
    """
    axes: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for name, value in arguments.items():
        is_tokens = torch.is_tensor(value) and value.ndim == 2 and not value.is_floating_point()
        if is_tokens and name.endswith(("_ids", "_mask")):
            prefix = "decoder_" if name.startswith("decoder_") else ""
            same = value.shape[1] == sizes.setdefault(prefix, value.shape[1])
            axes[name] = {1: f"{prefix}sequence" if same else f"{prefix}total_sequence"}
        node = pytree.SUPPORTED_NODES.get(type(value))
        tensors, context = node.flatten_fn(value) if node is not None else ((), None)
        if is_tagged(context):
            places = dict(tagged_paths(context, ()))
            axes[name] = [_cache_axes(tensor, places[number]) for number, tensor in enumerate(tensors)]
        elif isinstance(value, Mapping) and node is not None and type(value) is not dict:
            axes[name] = [{1: "encoder_sequence"} if _is_states(tensor) else {} for tensor in tensors]
        elif name == "encoder_hidden_states" and _is_states(value):
            axes[name] = {1: "encoder_sequence"}
    return axes


def _is_states(value: Any) -> bool:
    """Whether this is (batch, tokens, features)."""
    return torch.is_tensor(value) and value.ndim == 3 and bool(value.is_floating_point())


def _cache_axes(tensor: Any, place: tuple[Any, ...]) -> dict[int, str]:
    if not torch.is_tensor(tensor) or tensor.ndim != 4 or place[-1] not in ("keys", "values"):
        return {}
    part = place[0] if isinstance(place[0], str) and len(place) > 1 else "past"
    return {2: f"{part}_sequence"}


_NEEDED = {
    "utils": ("apply_patches", "patch_attribute", "apply_fx_node_fixes"),
    "exporter_dynamo": ("register_cache_pytrees_for_model", "reset_model_state"),
    "exporter_onnx": ("_ONNX_TRANSLATION_TABLE",),
}

_KEPT = (
    # Transformers' version answers zeros where a float mask hides a whole row; eager torch answers the mean there.
    (torch.nn.functional, "scaled_dot_product_attention"),
    # It asks before each view whether the layout is contiguous, which costs as much as the rest of the capture. What it
    # avoids, that a layout is another one in translation, comes of attention kernels (``_attention``).
    (torch, "reshape"),
    (torch.Tensor, "reshape"),
    (torch.Tensor, "view"),
)
"""Functions of torch that stay as they are though Transformers has a replacement."""


def _exporters() -> list[Any] | None:
    """The modules of ``transformers.exporters`` that hold the patches, where this version of Transformers has them."""
    try:
        modules = [importlib.import_module(f"transformers.exporters.{name}") for name in _NEEDED]
    except ImportError:
        return None
    complete = all(hasattr(module, name) for module, names in zip(modules, _NEEDED.values()) for name in names)
    return modules if complete else None


@contextlib.contextmanager
def _patched(model: torch.nn.Module) -> Iterator[Help]:
    found = _exporters()
    assert found is not None  # asked before
    utils, dynamo, onnx = found
    for module in model.modules():
        if isinstance(module, loaded("transformers").PreTrainedModel):  # type: ignore[union-attr]  # it is loaded
            dynamo.register_cache_pytrees_for_model(module)
    kept = [(place, name, getattr(place, name)) for place, name in _KEPT]
    with (
        utils.apply_patches("onnx"),
        utils.patch_attributes([(place, name, lambda _, own=own: own) for place, name, own in kept]),
        utils.apply_patches("dynamo"),
        dynamo.reset_model_state(model),
        attention_by_shape(),
    ):
        yield Help(dict(onnx._ONNX_TRANSLATION_TABLE), partial(utils.apply_fx_node_fixes, "onnx"))
