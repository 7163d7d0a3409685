"""The inputs that a bare ``export_model(model, "onnx")`` needs, found where that is certain."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from exporters._dummy_inputs import transformers_inputs
from exporters.errors import MissingInputsError
from interop.extras import loaded

__all__ = ["ExampleInputs", "find_example_inputs"]

ExampleInputs = tuple[tuple[Any, ...], dict[str, Any]]

BATCH = 2
SEQUENCE = 8
IMAGE_SIZES = (224, 32, 64, 28, 96, 128, 256, 299, 16, 8, 512)
"""Sizes tried for a network that starts with a convolution: the first that its forward takes."""


def find_example_inputs(model: Any, inputs: Any, kwargs: Mapping[str, Any] | None, target: str) -> ExampleInputs:
    """The arguments of one example call.

    Args:
        model: the model.
        inputs: what the caller gave: a tensor, a tuple or list of positional arguments, a dict of arguments by name (or the
            only positional argument, where forward has no such names), or None to look for them.
        kwargs: keyword arguments that the caller gave.
        target: the format's name, for the error message.

    Returns:
        ``(args, kwargs)``.

    Raises:
        MissingInputsError: nothing was given and nothing certain was found; the message shows the call to write.
    """
    if inputs is not None:
        args, named = _given(model, inputs)
        return args, named | dict(kwargs or {})
    for find in (_own, _program, _lightning, _transformers, _first_layers):
        found = find(model)
        if found is not None:
            args, named = found
            return args, named | dict(kwargs or {})
    if kwargs:
        return (), dict(kwargs)
    raise MissingInputsError(_call_to_write(model, target))


def parameters_of(model: Any) -> list[inspect.Parameter]:
    """The parameters of the model's forward."""
    call = getattr(model, "forward", model)
    try:
        return list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        return []


def _given(model: Any, inputs: Any) -> ExampleInputs:
    if isinstance(inputs, Mapping) and not _is_single_argument(model, inputs):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def _is_single_argument(model: Any, inputs: Mapping[Any, Any]) -> bool:
    """Whether a dict is the model's only argument rather than its arguments by name."""
    parameters = parameters_of(model)
    names = {parameter.name for parameter in parameters}
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    return not (set(inputs) <= names or takes_any)


def _own(model: Any) -> ExampleInputs | None:
    example = getattr(model, "example_inputs", None)
    torch = loaded("torch")
    if not callable(example) or torch is None or not isinstance(model, torch.nn.Module):
        return None
    args, named = _given(model, example())
    extra = getattr(model, "example_kwargs", None)
    return args, named | (dict(extra()) if callable(extra) else {})


def _program(model: Any) -> ExampleInputs | None:
    torch = loaded("torch")
    if torch is None or not isinstance(model, torch.export.ExportedProgram) or model.example_inputs is None:
        return None
    args, named = model.example_inputs
    return tuple(args), dict(named)


def _lightning(model: Any) -> ExampleInputs | None:
    example = getattr(model, "example_input_array", None)
    return None if example is None else _given(model, example)


def _transformers(model: Any) -> ExampleInputs | None:
    found = transformers_inputs(model)
    return None if found is None else ((), found)


def _first_layers(model: Any) -> ExampleInputs | None:
    """An input for the first layer that has weights, if the model takes one tensor and runs on it."""
    torch = loaded("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return None
    required = [p for p in parameters_of(model) if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if len(required) != 1:
        return None
    first = next((module for module in model.modules() if type(module).__name__ in _LAYERS), None)
    if first is None:
        return None
    dtype = next((p.dtype for p in first.parameters() if p.is_floating_point()), torch.float32)
    for candidate in _LAYERS[type(first).__name__](torch, first, dtype):
        if _runs(torch, model, candidate):
            return (candidate,), {}
    return None


def _runs(torch: Any, model: Any, example: Any) -> bool:
    try:
        with torch.no_grad():
            model(example)
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
        return False
    return True


def _ramp(torch: Any, dtype: Any, *shape: int) -> Any:
    """Values without ties or symmetry, the same on every call."""
    count = 1
    for size in shape:
        count *= size
    return torch.linspace(-1, 1, count).sin().reshape(shape).to(dtype)


def _for_linear(torch: Any, layer: Any, dtype: Any) -> list[Any]:
    return [_ramp(torch, dtype, BATCH, layer.in_features), _ramp(torch, dtype, BATCH, SEQUENCE, layer.in_features)]


def _for_conv(torch: Any, layer: Any, dtype: Any) -> list[Any]:
    axes = len(layer.kernel_size)
    sizes = IMAGE_SIZES if axes == 2 else (128, 64, 1024, 32, 16000) if axes == 1 else (32, 16, 64)
    return [_ramp(torch, dtype, BATCH, layer.in_channels, *([size] * axes)) for size in sizes]


def _for_embedding(torch: Any, layer: Any, dtype: Any) -> list[Any]:
    return [torch.arange(BATCH * SEQUENCE).reshape(BATCH, SEQUENCE) % layer.num_embeddings]


def _for_recurrent(torch: Any, layer: Any, dtype: Any) -> list[Any]:
    shape = (BATCH, SEQUENCE) if layer.batch_first else (SEQUENCE, BATCH)
    return [_ramp(torch, dtype, *shape, layer.input_size)]


def _for_norm(torch: Any, layer: Any, dtype: Any) -> list[Any]:
    return [_ramp(torch, dtype, BATCH, *layer.normalized_shape)]


def _for_transformer(torch: Any, layer: Any, dtype: Any) -> list[Any]:
    return [_ramp(torch, dtype, BATCH, SEQUENCE, layer.self_attn.embed_dim)]


_LAYERS: dict[str, Callable[[Any, Any, Any], list[Any]]] = {
    "Linear": _for_linear,
    "Conv1d": _for_conv,
    "Conv2d": _for_conv,
    "Conv3d": _for_conv,
    "ConvTranspose1d": _for_conv,
    "ConvTranspose2d": _for_conv,
    "ConvTranspose3d": _for_conv,
    "Embedding": _for_embedding,
    "RNN": _for_recurrent,
    "LSTM": _for_recurrent,
    "GRU": _for_recurrent,
    "LayerNorm": _for_norm,
    "TransformerEncoderLayer": _for_transformer,
}


def _call_to_write(model: Any, target: str) -> str:
    names = [
        p.name
        for p in parameters_of(model)
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    example = ", ".join(names) if len(names) != 1 else f"{names[0]},"
    return (
        f"{type(model).__name__} has no example_inputs() and none can be derived from its layers. "
        f'Write: export_model(model, "{target}", inputs=({example or "x,"})) with tensors of the shapes that the model takes, '
        "or give the class a method example_inputs() that returns that tuple"
    )
