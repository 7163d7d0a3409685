"""Recurrent layers: torch's own kernels where they compute the same, a loop over time for the rest of ONNX's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional

from exporters._graph.recurrent import Activation, Direction, Layer, Step
from exporters.torch._values import RefusedError

__all__ = ["Activation", "Direction", "Layer", "Step", "activations_of", "run_layer"]


def run_layer(layer: Layer, make: Callable[[Direction], tuple[Any, Step]]) -> tuple[Any, ...]:
    """Run all directions.

    Args:
        layer: the node.
        make: gives, for one direction, the bias that is added to all projected inputs (or None) and the step.

    Returns:
        The outputs of all steps (``Y``) and the last value of each state, in the node's layout.
    """
    x = layer.x.transpose(0, 1) if layer.layout else layer.x
    states = [_initial(state, layer, x) for state in layer.states]
    found = []
    for direction in _directions(layer):
        bias, step = make(direction)
        projected = functional.linear(x, direction.w, bias)
        initial = [state[direction.index] for state in states]
        reverse = layer.direction == "reverse" or direction.index == 1
        found.append(_run_steps(projected, initial, step, layer.lengths, reverse))
    outputs = torch.stack([outputs for outputs, _ in found], 1)
    if layer.layout:
        outputs = outputs.permute(2, 0, 1, 3)
    finals = [torch.stack(final, 1 if layer.layout else 0) for final in zip(*(last for _, last in found))]
    return (outputs, *finals)


def _initial(state: Any, layer: Layer, x: Any) -> Any:
    """An initial state as ``[directions, batch, hidden]``."""
    if state is not None:
        return state.transpose(0, 1) if layer.layout else state
    return x.new_zeros([layer.r.shape[0], x.shape[1], layer.r.shape[2]])


def _directions(layer: Layer) -> Iterator[Direction]:
    count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(layer.direction)
    if count is None:
        raise RefusedError(f"direction {layer.direction!r} is not forward, reverse or bidirectional")
    for index in range(count):
        bias_w, bias_r = (None, None) if layer.b is None else layer.b[index].chunk(2)
        yield Direction(index, layer.w[index], layer.r[index], bias_w, bias_r)


def _run_steps(
    projected: Any, states: Sequence[Any], step: Step, lengths: Any, reverse: bool
) -> tuple[Any, tuple[Any, ...]]:
    """The loop over time: all outputs ``[time, batch, hidden]`` and the last states."""
    if lengths is not None:
        return _run_ragged(projected, states, step, lengths.to(torch.int64), reverse)
    steps = projected.shape[0]
    outputs, current = [], tuple(states)
    for time in reversed(range(steps)) if reverse else range(steps):
        current = step(projected[time], *current)
        outputs.append(current[0])
    return torch.stack(outputs[::-1] if reverse else outputs), current


def _run_ragged(
    projected: Any, states: Sequence[Any], step: Step, lengths: Any, reverse: bool
) -> tuple[Any, tuple[Any, ...]]:
    """The same for sequences that end at their own time; zeros stand behind the end."""
    projected = _reversed(projected, lengths) if reverse else projected
    outputs, current = [], tuple(states)
    for time in range(projected.shape[0]):
        active = (time < lengths)[:, None]
        new = step(projected[time], *current)
        outputs.append(torch.where(active, new[0], torch.zeros_like(new[0])))
        current = tuple(torch.where(active, after, before) for after, before in zip(new, current))
    stacked = torch.stack(outputs)
    return (_reversed(stacked, lengths) if reverse else stacked), current


def _reversed(x: Any, lengths: Any) -> Any:
    """Each sequence ``[time, batch, ...]`` backwards within its length."""
    steps = torch.arange(x.shape[0], device=x.device)[:, None]
    places = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, places[..., None].expand(x.shape))


def activations_of(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    default: tuple[str, ...],
    clip: float | None,
) -> Callable[[int], tuple[Activation, ...]]:
    """The activations of each direction, from a node's attributes.

    Args:
        names: of all directions one after the other, or None.
        alphas: values for those activations that have an alpha, in order.
        betas: the same for beta.
        default: the names that one direction has by default.
        clip: bound of the sums that go into the gates' activations, or None.

    Returns:
        A function of the direction's index.
    """
    left = {"alpha": list(alphas or ()), "beta": list(betas or ())}
    # The third function, h of LSTM, takes the cell state, which is no sum of a gate: ONNX Runtime does not clip it.
    bounds = (clip, clip, None)[: len(default)] * 2
    made = [_activation(name.lower(), left, bound) for name, bound in zip(names or default * 2, bounds)]

    def of(index: int) -> tuple[Activation, ...]:
        part = made[index * len(default) : (index + 1) * len(default)]
        if len(part) != len(default):
            raise RefusedError(f"it has {len(made)} activations where each direction needs {len(default)}")
        return tuple(part)

    return of


_PLAIN: dict[str, Activation] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softsign": functional.softsign,
    "softplus": functional.softplus,
}

# Name -> function and the defaults of alpha and beta (an empty tuple takes none, ONNX's own operators set the values).
_SCALED: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "leakyrelu": (lambda x, alpha: torch.where(x < 0, alpha * x, x), (0.01,)),
    "thresholdedrelu": (lambda x, alpha: torch.where(x > alpha, x, torch.zeros_like(x)), (1.0,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * torch.tanh(beta * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, alpha: torch.where(x < 0, alpha * torch.expm1(torch.clamp(x, max=0)), x), (1.0,)),
}


def _activation(name: str, left: dict[str, list[float]], clip: float | None) -> Activation:
    if name in _PLAIN:
        function = _PLAIN[name]
    elif name in _SCALED:
        scaled, defaults = _SCALED[name]
        pairs = zip(("alpha", "beta"), defaults)
        values = [left[key].pop(0) if left[key] else default for key, default in pairs]

        def function(x: Any) -> Any:
            return scaled(x, *values)
    else:
        raise RefusedError(f"activation {name!r} is not one of {', '.join([*_PLAIN, *_SCALED])}")
    return function if clip is None else lambda x: function(torch.clamp(x, -clip, clip))
