"""The layer around a recurrent cell: directions, layouts, activations and the loop over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from exporters._graph.recurrent import Activation, Direction, Layer, Step
from exporters.tensorflow._layout import transposed_from
from exporters.tensorflow._rows import multiply_turned
from exporters.tensorflow._tensors import RefusedError, shape_of

__all__ = ["Activation", "Direction", "Layer", "Step", "activations_of", "run_layer"]


def run_layer(layer: Layer, make: Callable[[Direction], tuple[Any, Step]]) -> tuple[Any, ...]:
    """Run all directions.

    Args:
        layer: the node.
        make: gives, for one direction, the bias that is added to all projected inputs (or None) and the step.

    Returns:
        The outputs of all steps (``Y``) and the last value of each state, in the node's layout.
    """
    x = tf.transpose(layer.x, [1, 0, 2]) if layer.layout else layer.x
    states = [_initial(state, layer, x) for state in layer.states]
    found = []
    for direction in _directions(layer):
        bias, step = make(direction)
        projected = _project(x, direction.w, bias)
        initial = [state[direction.index] for state in states]
        reverse = layer.direction == "reverse" or direction.index == 1
        found.append(_run_steps(projected, initial, step, layer.lengths, reverse))
    batch_axis = 0 if layer.layout else 1
    outputs = _together([outputs for outputs, *_ in found], 1)
    if layer.layout:
        outputs = tf.transpose(outputs, [2, 0, 1, 3])
    finals = [_together(list(final), 1 - batch_axis) for final in zip(*(last for _, last in found))]
    return (outputs, *finals)


def _together(tensors: list[Any], axis: int) -> Any:
    return tf.expand_dims(tensors[0], axis) if len(tensors) == 1 else tf.stack(tensors, axis)


def _initial(state: Any, layer: Layer, x: Any) -> Any:
    """An initial state as ``[directions, batch, hidden]``."""
    if state is not None:
        state = tf.transpose(state, [1, 0, 2]) if layer.layout else state
        state = tf.identity(state)
        # What the weights say of it, so that no step has to ask for its size; LiteRT has no operator that checks a shape.
        state.set_shape([layer.r.shape[0], None, layer.r.shape[2]])
        return state
    directions, hidden = shape_of(layer.r)[0], shape_of(layer.r)[2]
    return tf.zeros([directions, shape_of(x)[1], hidden], x.dtype)


def _directions(layer: Layer) -> Iterator[Direction]:
    count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(layer.direction)
    if count is None:
        raise RefusedError(f"direction {layer.direction!r} is not forward, reverse or bidirectional")
    for index in range(count):
        bias_w, bias_r = (None, None) if layer.b is None else tf.split(layer.b[index], 2)
        yield Direction(index, _part(layer.w, index), _part(layer.r, index), bias_w, bias_r)


def _part(weights: Any, index: int) -> Any:
    """One direction's matrix; where the weights are transposed, that transpose is the last step, which a product undoes."""
    inner = transposed_from(weights)
    return weights[index] if inner is None or inner[1] != [0, 2, 1] else tf.transpose(inner[0][index])


def _project(x: Any, w: Any, bias: Any) -> Any:
    """The input's part of all gates, for all steps in one product."""
    time, batch, size = shape_of(x)
    projected = multiply_turned(tf.reshape(x, [time * batch, size]), w)
    if bias is not None:
        projected = tf.nn.bias_add(projected, bias)
    return tf.reshape(projected, [time, batch, shape_of(w)[0]])


def _run_steps(
    projected: Any, states: Sequence[Any], step: Step, lengths: Any, reverse: bool
) -> tuple[Any, tuple[Any, ...]]:
    """The loop over time: all outputs ``[time, batch, hidden]`` and the last states."""
    if lengths is not None and reverse:
        projected = tf.reverse_sequence(projected, lengths, seq_axis=0, batch_axis=1)
    steps = shape_of(projected, tf.int32)[0]
    inputs = tf.TensorArray(projected.dtype, size=steps, element_shape=projected.shape[1:]).unstack(projected)
    shape = tf.shape(states[0])
    outputs = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=steps, element_dtype=projected.dtype)
    backwards = reverse and lengths is None

    def body(time: Any, outputs: Any, *states: Any) -> tuple[Any, ...]:
        place = steps - 1 - time if backwards else time
        new = step(inputs.read(place), *states)
        if lengths is None:
            return (time + 1, _put(outputs, place, new[0]), *new)
        active = (time < tf.cast(lengths, tf.int32))[:, tf.newaxis]
        outputs = _put(outputs, place, tf.where(active, new[0], tf.zeros([], new[0].dtype)))
        return (time + 1, outputs, *(tf.where(active, after, before) for after, before in zip(new, states)))

    shapes = [tf.TensorShape([]), tf.TensorShape([]), *(state.shape for state in states)]
    _, outputs, *states = tf.while_loop(
        lambda time, *_: time < steps,
        body,
        (0, outputs, *states),
        shape_invariants=tuple(shapes),
        maximum_iterations=steps,
    )
    # The shape is given, so that a layer of no steps has a result too.
    stacked = tf.raw_ops.TensorListStack(input_handle=outputs, element_shape=shape, element_dtype=projected.dtype)
    stacked.set_shape([*projected.shape[:1], *states[0].shape])
    if lengths is not None and reverse:
        stacked = tf.reverse_sequence(stacked, lengths, seq_axis=0, batch_axis=1)
    return stacked, tuple(states)


def _put(outputs: Any, place: Any, item: Any) -> Any:
    return tf.raw_ops.TensorListSetItem(input_handle=outputs, index=place, item=item)


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
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "softsign": tf.nn.softsign,
    "softplus": tf.nn.softplus,
}

# Name -> function and the defaults of alpha and beta (an empty tuple takes none, ONNX's own operators set the values).
_SCALED: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "leakyrelu": (lambda x, alpha: tf.where(x < 0, alpha * x, x), (0.01,)),
    "thresholdedrelu": (lambda x, alpha: tf.where(x > alpha, x, tf.zeros_like(x)), (1.0,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * tf.tanh(beta * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, alpha, beta: tf.clip_by_value(alpha * x + beta, 0.0, 1.0), (0.2, 0.5)),
    "elu": (lambda x, alpha: tf.where(x < 0, alpha * tf.math.expm1(tf.minimum(x, 0)), x), (1.0,)),
}


def _activation(name: str, left: dict[str, list[float]], clip: float | None) -> Activation:
    if name in _PLAIN:
        function = _PLAIN[name]
    elif name in _SCALED:
        scaled, defaults = _SCALED[name]
        pairs = zip(("alpha", "beta"), defaults)
        values = [left[key].pop(0) if left[key] else default for key, default in pairs]

        def function(x: Any) -> Any:
            return scaled(x, *(np.asarray(value, x.dtype.as_numpy_dtype) for value in values))
    else:
        raise RefusedError(f"activation {name!r} is not one of {', '.join([*_PLAIN, *_SCALED])}")
    return function if clip is None else lambda x: function(tf.clip_by_value(x, -clip, clip))
