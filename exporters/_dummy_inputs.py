"""Example inputs for a transformers model: made from its configuration, kept where its forward takes them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

from interop.extras import loaded, require

__all__ = ["transformers_inputs"]

BATCH = 2
SEQUENCE = 8
SAMPLES = 8000
"""Length of a waveform: half a second at the 16 kHz that these models expect."""


def transformers_inputs(model: Any) -> dict[str, Any] | None:
    """The inputs by name, or None for a model of another kind or one that takes none of the tries.

    Text is what the model gives as ``dummy_inputs``, cut to its vocabulary; images, sound and the decoder's tokens are added where
    forward has such parameters and the model is of that kind. Where more than one form is possible, the first that the
    model runs on counts, also on the path that its code takes while it is captured: some make no mask of their own there.
    """
    config = getattr(model, "config", None)
    main = getattr(model, "main_input_name", None)
    if config is None or main is None or loaded("transformers") is None:
        return None
    torch = require("torch", "to make example inputs")
    tries = list(_tries(torch, model, config, main))
    if len(tries) == 1:
        return tries[0]
    with _as_captured(torch):
        found = next((inputs for inputs in tries if _runs(torch, model, inputs)), None)
    return found or next((inputs for inputs in tries if _runs(torch, model, inputs)), None)


@contextlib.contextmanager
def _as_captured(torch: Any) -> Iterator[None]:
    """While this is open, ``torch.compiler.is_compiling()`` says yes, as it does inside torch.export."""
    flag = "_is_compiling_flag"
    known = hasattr(torch.compiler, flag)
    with patch.object(torch.compiler, flag, True) if known else contextlib.nullcontext():
        yield


def _tries(torch: Any, model: Any, config: Any, main: str) -> Iterator[dict[str, Any]]:
    """Every combination of the forms of the main input with the further inputs, the fullest first, then those with a mask."""
    parameters = set(inspect.signature(model.forward).parameters)
    kinds = getattr(model, "input_modalities", ())
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    forms = _MAIN_INPUTS.get(main)
    mains = [{main: make(torch, config)} for make in forms] if forms else _own(torch, model, config)
    batch = next((value.shape[0] for inputs in mains for value in inputs.values() if torch.is_tensor(value)), BATCH)
    further: dict[str, Any] = {}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        further["decoder_input_ids"] = _tokens(torch, config, batch)
    if main != "pixel_values" and "pixel_values" in parameters and (len(kinds) > 1 or "image" in kinds):
        further["pixel_values"] = _images(torch, config, batch)
    if main != "input_ids" and "input_ids" in parameters and ("text" in kinds or len(kinds) > 1):
        further["input_ids"] = _tokens(torch, config, batch)
    sets = [further] if not further else [further, *({name: value} for name, value in further.items()), {}]
    made = [inputs | {k: v for k, v in added.items() if k not in inputs} for inputs in mains for added in sets]
    yield from made
    for inputs in made:
        if "attention_mask" in parameters and "input_ids" in inputs and "attention_mask" not in inputs:
            yield inputs | {"attention_mask": torch.ones_like(inputs["input_ids"])}


def _own(torch: Any, model: Any, config: Any) -> list[dict[str, Any]]:
    """``dummy_inputs``, without what forward does not have and cut to the vocabulary."""
    dummy = getattr(model, "dummy_inputs", None)
    if not isinstance(dummy, Mapping):
        return []
    vocabulary = _value(config, "vocab_size") or 2**31
    return [
        {
            name: value % vocabulary if torch.is_tensor(value) and not value.is_floating_point() else value
            for name, value in dummy.items()
        }
    ]


def _runs(torch: Any, model: Any, inputs: Mapping[str, Any]) -> bool:
    try:
        with torch.no_grad():
            model(**inputs)
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, AttributeError, KeyError):
        return False
    return True


def _value(config: Any, name: str) -> Any:
    """A value of a configuration or of the nested one for the text, vision or audio part."""
    for part in (config, *(getattr(config, f"{kind}_config", None) for kind in ("text", "vision", "audio", "encoder"))):
        value = getattr(part, name, None)
        if value is not None:
            return value
    return None


def _tokens(torch: Any, config: Any, batch: int = BATCH) -> Any:
    vocabulary = _value(config, "vocab_size") or 2**31
    return torch.arange(1, 1 + batch * SEQUENCE).reshape(batch, SEQUENCE) % vocabulary


def _images(torch: Any, config: Any, batch: int = BATCH) -> Any:
    size = _value(config, "image_size") or 224
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return _ramp(torch, batch, _value(config, "num_channels") or 3, height, width)


def _waveform(torch: Any, config: Any) -> Any:
    return _ramp(torch, BATCH, SAMPLES).sin()


def _spectrogram(torch: Any, config: Any) -> Any:
    """(batch, bins, frames), as Whisper has it: twice as many frames as positions, because a convolution halves them."""
    return _ramp(
        torch, BATCH, _value(config, "num_mel_bins") or 80, 2 * (_value(config, "max_source_positions") or 1500)
    )


def _frames(torch: Any, config: Any) -> Any:
    """(batch, frames, bins), as most other models have it."""
    return _ramp(torch, BATCH, _value(config, "max_length") or 100, _value(config, "num_mel_bins") or 80)


def _ramp(torch: Any, *shape: int) -> Any:
    count = 1
    for size in shape:
        count *= size
    return torch.linspace(-1, 1, count).reshape(shape)


_MAIN_INPUTS: dict[str, tuple[Callable[[Any, Any], Any], ...]] = {
    "pixel_values": (_images,),
    "input_values": (_waveform, _frames),
    "input_features": (_spectrogram, _frames),
}
