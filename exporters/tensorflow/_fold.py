"""Join weights at export that the graph would join on each call.

torch.onnx cuts the weights of LSTM and GRU in gates and joins them in ONNX's order. Where nothing else reads the weights, the
result takes their place. A transpose or a slice alone stays: TensorFlow makes it part of the product, and the weight keeps
its shape. A model that trains keeps all its parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["fold_weights"]

_Array = np.ndarray[Any, Any]
_Roots = dict[ir.Value, frozenset[ir.Value]]
"""Results of nodes that only move elements of weights -> the weights that they are made of; in the graph's order."""


def fold_weights(
    model: ir.Model, parameters: Mapping[str, bool] | None = None
) -> tuple[ir.Model, Mapping[str, bool] | None]:
    """Replace weights by what the graph joins them to.

    A result of one weight has that one's name, a result of several has their names with a ``+`` between them. It is computed
    when it is read, so that the old weights and the new ones are not in memory together.

    Args:
        model: the model; it is not changed.
        parameters: see ``LoweredModule``.

    Returns:
        A model that shares the other weights with the given one, and its parameters.
    """
    if not _joined(model.graph):
        return model, parameters
    copied = model.clone()
    roots = _joined(copied.graph)
    folded = _replace(copied.graph, roots)
    if parameters is None:
        return copied, None
    added = {
        name: any(parameters.get(root, False) for root in made_of)
        for name, made_of in folded.items()
        if not made_of.isdisjoint(parameters)
    }
    return copied, {**parameters, **added}


def _joined(graph: ir.Graph) -> _Roots:
    """The results to compute at export: those whose weights are joined, and read by nothing else."""
    moved = _moved(graph)
    while True:
        kept = {root for value, roots in moved.items() if value.is_graph_output() for root in roots}
        for root in frozenset[ir.Value]().union(*moved.values()):
            if any(user.outputs[0] not in moved for user, _ in root.uses()):
                kept.add(root)
        if not kept:
            break
        moved = {value: roots for value, roots in moved.items() if roots.isdisjoint(kept)}
    together = frozenset[ir.Value]().union(*(roots for value, roots in moved.items() if _operator(value) == "Concat"))
    return {value: roots for value, roots in moved.items() if roots <= together}


def _moved(graph: ir.Graph) -> _Roots:
    """All results of nodes that only move elements of weights."""
    weights = {value: frozenset({value}) for value in graph.initializers.values() if _is_weight(value)}
    found: _Roots = {}
    for node in graph:
        if node.domain or node.op_type not in _EVALUATE or node.outputs[0].shape is None:
            continue
        given = [x for x in node.inputs if x is not None]
        roots = [weights.get(x) or found.get(x) for x in given]
        known = all(root or (x.const_value is not None and not x.is_graph_input()) for x, root in zip(given, roots))
        if known and any(roots) and node.outputs[0].shape.is_static():
            found[node.outputs[0]] = frozenset[ir.Value]().union(*(root for root in roots if root))
    return found


def _is_weight(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point() and not value.is_graph_input()


def _operator(value: ir.Value) -> str:
    node = value.producer()
    return "" if node is None else node.op_type


def _replace(graph: ir.Graph, roots: _Roots) -> dict[str, frozenset[str]]:
    """Put initializers in the place of results; gives their names, and those of the weights that they are made of."""
    tensors: dict[ir.Value, ir.TensorProtocol] = {}
    for value in roots:
        tensors[value] = _lazy(value, tensors)
    nodes = [node for value in roots if (node := value.producer()) is not None]
    wanted = [value for value in roots if any(user not in nodes for user, _ in value.uses())]
    for root in frozenset[ir.Value]().union(*roots.values()):
        del graph.initializers[root.name or ""]
    names = {}
    for value in wanted:
        made_of = sorted(root.name or "" for root in roots[value])
        name = next(free for free in _candidates("+".join(made_of)) if free not in graph.initializers)
        folded = ir.Value(name=name, type=value.type, shape=value.shape, const_value=tensors[value])
        value.replace_all_uses_with(folded)
        graph.register_initializer(folded)
        names[name] = frozenset(made_of)
    graph.remove(nodes, safe=True)
    return names


def _candidates(name: str) -> Iterator[str]:
    """The name, and numbered ones where several results are made of one weight."""
    return itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))


def _lazy(value: ir.Value, tensors: Mapping[ir.Value, ir.TensorProtocol]) -> ir.LazyTensor:
    """A node's result as a tensor that is computed when it is read."""
    node = value.producer()
    assert node is not None
    assert value.dtype is not None
    given = [None if x is None else tensors.get(x, x.const_value) for x in node.inputs]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    evaluate = _EVALUATE[node.op_type]

    def compute() -> ir.Tensor:
        arrays = [None if tensor is None else tensor.numpy() for tensor in given]
        return ir.Tensor(evaluate(*arrays, **attributes))

    return ir.LazyTensor(compute, value.dtype, ir.Shape(value.shape or ()), name=value.name)


def _slice(
    data: _Array, starts: _Array, ends: _Array, axes: _Array | None = None, steps: _Array | None = None
) -> _Array:
    axes = np.arange(len(starts)) if axes is None else axes
    steps = np.ones_like(starts) if steps is None else steps
    places = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes.tolist(), starts.tolist(), ends.tolist(), steps.tolist()):
        # A last place before the first one cannot be written as a negative number.
        places[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
    return data[tuple(places)]


def _concat(*parts: _Array, axis: int) -> _Array:
    return np.concatenate(parts, axis)


def _transpose(data: _Array, *, perm: Sequence[int] | None = None) -> _Array:
    return data.transpose(perm)


def _unsqueeze(data: _Array, axes: _Array) -> _Array:
    return np.expand_dims(data, tuple(axes.tolist()))


_EVALUATE: dict[str, Callable[..., _Array]] = {
    "Concat": _concat,
    "Slice": _slice,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Operators that only move elements."""
