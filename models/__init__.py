"""Example models: small, deterministic, and exportable. They need torch only.

Each class offers ``example_inputs()`` (a tuple of positional arguments, batch 2 or more), ``example_kwargs()`` where it
takes keyword arguments, and ``dynamic_shapes()`` where more than the batch may change: ``{argument: {axis: name}}``.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import torch
from torch import nn

__all__ = ["available", "load"]

TRAINED: dict[str, str] = {"digits": "models.digits:pretrained"}
"""Name -> ``module:factory`` of the models whose weights are a file."""

UNTRAINED: dict[str, str] = {
    "control_flow": "models.control_flow:ControlFlow",
    "conv_transpose_autoencoder": "models.conv_transpose_autoencoder:ConvTransposeAutoencoder",
    "detector_head": "models.detector_head:DetectorHead",
    "dict_model": "models.dict_model:DictModel",
    "gpt": "models.gpt:GPT",
    "gru_seq": "models.gru_seq:GRUSeq",
    "lstm_tagger": "models.lstm_tagger:LSTMTagger",
    "mlp": "models.mlp:MLP",
    "resnet": "models.resnet:ResNet",
    "transformer_encoder": "models.transformer_encoder:TransformerEncoder",
    "two_inputs": "models.two_inputs:TwoInputs",
    "unet": "models.unet:UNet",
    "vit": "models.vit:ViT",
}
"""Name -> ``module:class`` of the models whose weights come from ``SEED``."""

SEED = 0


def available() -> tuple[str, ...]:
    """The names that ``load`` knows, sorted."""
    return tuple(sorted({**TRAINED, **UNTRAINED}))


def load(name: str, **options: Any) -> nn.Module:
    """Build an example model in evaluation mode, with the same float32 CPU weights on every call.

    The caller's random state stays as it was.

    Args:
        name: one of ``available()``.
        options: keyword arguments of the model's class.

    Raises:
        ValueError: the name is unknown; the message suggests the nearest one.

    Example:
        >>> model = load("digits")
        >>> model(*model.example_inputs()).shape
        torch.Size([2, 10])
    """
    target = TRAINED.get(name) or UNTRAINED.get(name)
    if target is None:
        raise ValueError(_unknown(name))
    module_name, _, attribute = target.partition(":")
    build = getattr(importlib.import_module(module_name), attribute)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(SEED)  # torch.manual_seed would also seed the caller's accelerators
        model: nn.Module = build(**options)
        if name in UNTRAINED:
            _vary_norms(model)
    return model.eval()


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, available(), n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"there is no example model {name!r}{hint}; choose one of {', '.join(available())}"


def _vary_norms(model: nn.Module) -> None:
    """Give fresh normalisation layers values: they start as the identity, which would hide a wrong export of them."""
    for layer in model.modules():
        if isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.1)
        if isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None and layer.running_var is not None:
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
