"""Dynamic dimensions: what the caller wants, in torch.export's form, and what the capture made of it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters.errors import OptionsError

__all__ = [
    "Named",
    "automatic_shapes",
    "batch_only",
    "bind_arguments",
    "common_batch",
    "dim_name",
    "dynamic_count",
    "for_torch",
    "leaf_dims",
    "named_keywords",
    "requested_shapes",
    "with_auto",
    "with_batch_of_two",
    "with_several_steps",
    "without_dims",
]

BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Named:
    """A dim that was asked for by name alone; torch.export may find any range for it."""

    name: str


def dim_name(dim: Any) -> str:
    """The name of a wanted dim; torch's ``Dim.DYNAMIC`` and ``Dim.AUTO`` have none."""
    return dim.name if isinstance(dim, Named) else str(getattr(dim, "__name__", ""))


def bind_arguments(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of forward's parameters, in its order.

    Raises:
        OptionsError: the arguments do not fit forward.
    """
    forward = getattr(model, "forward", model)
    try:
        return dict(inspect.signature(forward).bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise OptionsError(f"the example inputs do not fit {type(model).__name__}.forward: {error}") from error


@contextlib.contextmanager
def named_keywords(model: Any, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """While this is open, the arguments that forward takes by ``**kwargs`` are parameters of their own.

    torch.export cannot make a dim of an argument dynamic that it finds in ``**kwargs``.
    """
    signature = inspect.signature(model.forward)
    parameters = list(signature.parameters.values())
    further = [name for name in kwargs if name not in signature.parameters]
    if not further or parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        yield
        return
    forward, own = model.forward, "forward" in vars(model)

    @functools.wraps(forward)
    def named(*args: Any, **given: Any) -> Any:
        return forward(*args, **given)

    made = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in further]
    vars(named)["__signature__"] = signature.replace(parameters=[*parameters[:-1], *made])
    model.forward = named
    try:
        yield
    finally:
        if own:
            model.forward = forward
        else:
            del model.forward


def common_batch(value: Any) -> int | None:
    """The size of dim 0 of the first tensor that has one."""
    return next((leaf.shape[0] for leaf in pytree.tree_leaves(value) if torch.is_tensor(leaf) and leaf.ndim), None)


def automatic_shapes(arguments: Mapping[str, Any], further: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Dim 0 of every tensor that shares the first tensor's batch size becomes ``"batch"``.

    Args:
        arguments: the example's arguments by name.
        further: ``{axis: name}`` for more dims of some of them, or a list of such for one that holds several tensors.
    """
    batch = common_batch(arguments)

    def spec(leaf: Any) -> dict[int, str] | None:
        return {0: BATCH} if torch.is_tensor(leaf) and leaf.ndim and leaf.shape[0] == batch else None

    shapes = {name: _spec_like(value, spec) for name, value in arguments.items()}
    for name, dims in (further or {}).items():
        known = shapes[name]
        shapes[name] = (
            [(a or {}) | b if b else a for a, b in zip(known, dims)] if isinstance(dims, list) else (known or {}) | dims
        )
    return shapes


def _spec_like(value: Any, spec: Callable[[Any], Any]) -> Any:
    """A specification for a nested value; torch.export wants a list of the children for a type of the user's own."""
    if type(value) in _DICTS:
        return {key: _spec_like(item, spec) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_spec_like(item, spec) for item in value)
    children = children_of(value)
    return spec(value) if children is None else [_spec_like(item, spec) for _, item in children]


_DICTS = (dict, OrderedDict, defaultdict)
"""The mappings whose specification is a dict; that of a type of the user's own (a ``ModelOutput``) is a list."""


def children_of(value: Any) -> list[tuple[Any, Any]] | None:
    """The items of a container as torch's pytree sees them, or None for a leaf."""
    if isinstance(value, Mapping) and type(value) in pytree.SUPPORTED_NODES:
        return list(value.items())
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    return None if node is None else list(enumerate(node.flatten_fn(value)[0]))


def with_batch_of_two(model: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The example with every leading 1 doubled, if the model runs on it.

    torch.export takes a dimension of size 1 for a constant, so an example with one row cannot have a dynamic batch.
    """
    if common_batch((args, kwargs)) != 1:
        return None

    def doubled(leaf: Any) -> Any:
        is_row = torch.is_tensor(leaf) and leaf.ndim and leaf.shape[0] == 1
        return torch.cat([leaf, leaf]) if is_row else leaf

    return _if_it_runs(model, pytree.tree_map(doubled, (tuple(args), dict(kwargs))))


def _if_it_runs(model: Any, arguments: tuple[Any, Any]) -> tuple[Any, Any] | None:
    args, kwargs = pytree.tree_map(lambda leaf: leaf, arguments)  # a model may grow a cache that it is given
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
        return None
    return arguments


def with_several_steps(
    model: Any, args: Any, kwargs: Any, wanted: Sequence[Mapping[int, Any]]
) -> tuple[Any, Any] | None:
    """The example with three rows along each wanted dim that has one, if there is such a dim and the model runs on it.

    A decoder's example with a cache has one token. A dim ``total_sequence`` counts the tokens of ``sequence`` too.

    Args:
        model: the model.
        args: its positional arguments.
        kwargs: its keyword arguments.
        wanted: ``{axis: wanted dim}`` for each leaf of the arguments.
    """
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if len(leaves) != len(wanted):
        return None
    short = {dim_name(dim) for leaf, dims in zip(leaves, wanted) for axis, dim in dims.items() if leaf.shape[axis] == 1}
    short -= {"", BATCH}
    if not short:
        return None
    longer = [_longer(leaf, dims, short) for leaf, dims in zip(leaves, wanted)]
    return _if_it_runs(model, pytree.tree_unflatten(longer, spec))


def _longer(leaf: Any, dims: Mapping[int, Any], short: set[str]) -> Any:
    for axis, dim in dims.items():
        if dim_name(dim).removeprefix("total_") in short:
            last = leaf.narrow(axis, leaf.shape[axis] - 1, 1)
            leaf = torch.cat([leaf, last, last], axis)
    return leaf


def requested_shapes(specification: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A caller's specification as a full one by parameter name, with ``Dim`` objects for names.

    Args:
        specification: torch.export's own form, or one with plain strings: ``{"x": {0: "batch"}}`` or a tuple in the
            order of the arguments. Parameters that it leaves out are static.
        arguments: the example's arguments by name.

    Raises:
        OptionsError: it names a parameter that forward does not have, or a dimension that is not there.
    """
    if isinstance(specification, (tuple, list)):
        if len(specification) > len(arguments):
            raise OptionsError(f"dynamic_shapes has {len(specification)} items for the arguments {list(arguments)}")
        specification = dict(zip(arguments, specification))
    if not isinstance(specification, Mapping):
        raise OptionsError(f"dynamic_shapes is 'auto', None, a dict or a tuple, got {type(specification).__name__}")
    full = {name: specification.get(name) for name in arguments}
    if unknown := [name for name in specification if name not in arguments]:
        full |= _in_keywords(specification, arguments, unknown)
    return {name: _spec(spec, arguments[name], name) for name, spec in full.items()}


def _in_keywords(
    specification: Mapping[str, Any], arguments: Mapping[str, Any], unknown: Sequence[str]
) -> dict[str, Any]:
    """Names that a ``**kwargs`` parameter took."""
    for name, value in arguments.items():
        if isinstance(value, dict) and set(unknown) <= set(value):
            return {name: {key: specification.get(key) for key in value}}
    raise OptionsError(f"dynamic_shapes names {list(unknown)}; the model's arguments are {list(arguments)}")


def _spec(spec: Any, value: Any, where: str) -> Any:
    if spec is None:
        return _spec_like(value, lambda _: None)
    if torch.is_tensor(value):
        return _tensor_spec(spec, value, where)
    if isinstance(spec, Mapping):
        if not isinstance(value, Mapping) or not set(spec) <= set(value):
            raise OptionsError(f"dynamic_shapes of {where} has the keys {list(spec)}; the example is {_kind(value)}")
        parts = {key: _spec(spec.get(key), item, f"{where}[{key!r}]") for key, item in value.items()}
        return parts if type(value) in _DICTS else list(parts.values())
    if isinstance(spec, (tuple, list)):
        children = children_of(value)
        items = [item for _, item in children or ()]
        if children is None or len(items) != len(spec):
            raise OptionsError(f"dynamic_shapes of {where} has {len(spec)} items; the example is {_kind(value)}")
        made = [_spec(part, item, f"{where}[{i}]") for i, (part, item) in enumerate(zip(spec, items))]
        return tuple(made) if isinstance(value, tuple) else made
    raise OptionsError(f"dynamic_shapes of {where} is {spec!r}; the example is {_kind(value)}")


def _tensor_spec(spec: Any, value: Any, where: str) -> dict[int, Any]:
    if isinstance(spec, (tuple, list)):
        spec = dict(enumerate(spec))
    if not isinstance(spec, Mapping):
        raise OptionsError(f"dynamic_shapes of {where} is {spec!r}; write {{0: 'batch'}}")
    made = {}
    for axis, dim in spec.items():
        if not isinstance(axis, int) or not -value.ndim <= axis < value.ndim:
            raise OptionsError(
                f"dynamic_shapes of {where} names dimension {axis!r} of a tensor with {value.ndim} dimensions"
            )
        if isinstance(dim, str):
            dim = Named(dim)
        if dim is not None and not isinstance(dim, int):
            made[axis % value.ndim] = dim
    return made


def leaf_dims(shapes: Any, arguments: Mapping[str, Any]) -> tuple[Mapping[int, Any], ...]:
    """``{axis: wanted dim}`` for each leaf of the arguments."""
    specs: list[Mapping[int, Any]] = []
    for name, value in arguments.items():
        _collect(None if shapes is None else shapes.get(name), value, specs)
    return tuple(specs)


def _collect(spec: Any, value: Any, specs: list[Mapping[int, Any]]) -> None:
    children = children_of(value)
    if children is None:
        specs.append(spec if isinstance(spec, Mapping) else {})
        return
    for index, (key, child) in enumerate(children):
        inner = None if spec is None else spec[key] if isinstance(spec, Mapping) else spec[index]
        _collect(inner, child, specs)


def for_torch(shapes: Any) -> Any:
    """The specification as torch.export takes it."""
    return _map_dims(shapes, lambda dim: torch.export.Dim.DYNAMIC if isinstance(dim, Named) else dim)


def with_auto(shapes: Any) -> Any:
    """The same dims, left to torch.export to accept or to specialise."""
    return _map_dims(shapes, lambda dim: None if dim is None else torch.export.Dim.AUTO)


def batch_only(shapes: Any) -> Any:
    """The same dims without those that are not the batch, left to torch.export."""
    return _map_dims(shapes, lambda dim: torch.export.Dim.AUTO if dim_name(dim) == BATCH else None)


def dynamic_count(shapes: Any) -> int:
    """How many dims are wanted."""
    wanted: list[Any] = []
    _map_dims(shapes, lambda dim: wanted.append(dim) if dim is not None else None)
    return len(wanted)


def without_dims(shapes: Any, name: str) -> Any:
    """The same dims, those of one name static."""
    return _map_dims(shapes, lambda dim: None if dim_name(dim) == name else dim)


def _map_dims(shapes: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(shapes, Mapping):
        if shapes and all(isinstance(key, int) for key in shapes):
            return {axis: change(dim) for axis, dim in shapes.items()}
        return {key: _map_dims(item, change) for key, item in shapes.items()}
    if isinstance(shapes, (tuple, list)):
        return type(shapes)(_map_dims(item, change) for item in shapes)
    return shapes


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with the keys {list(value)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)} items"
    return f"of type {type(value).__name__}"
