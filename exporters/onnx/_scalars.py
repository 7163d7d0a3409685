"""What a model's code reads out of tensors as Python numbers (``if mask.any():``), and which of these no input can change.

torch.export stops where code needs the value of a tensor. Often the value follows from nothing that is given: a mask of ones
that the model makes itself has no zero in it. So the model is run as it is, at several sizes, and every tensor that an input's
values reach is marked on the way; a number that is read from an unmarked one, the same at all sizes, is a constant.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses import fake_impls
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from exporters._undisturbed import kept_buffers
from exporters.onnx._dynamic import dim_name

__all__ = ["Readings", "describe", "known_values", "read_values", "whole_divisions"]

_READS: tuple[Any, ...] = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)
Place = tuple[str, int]
"""A file and a line of it."""


@dataclass(frozen=True)
class Readings:
    """Values by the file and line that reads them; only lines that read the same value every time.

    Attributes:
        constants: what no input's values reach, the same at several sizes.
        at_example: what no input's values reach, at the example's sizes.
        assumed: everything else that was read at the example.
    """

    constants: Mapping[Place, Any]
    at_example: Mapping[Place, Any]
    assumed: Mapping[Place, Any]


def read_values(model: Any, args: Any, kwargs: Any, wanted: Sequence[Mapping[int, Any]]) -> Readings:
    """Run the model on the example and on it at two further sizes of the wanted dims, and note what its code reads.

    Args:
        model: the model.
        args: positional arguments.
        kwargs: keyword arguments.
        wanted: ``{axis: wanted dim}`` for each leaf of the arguments.
    """
    example, *others = (_watched(model, args, kwargs, wanted, more) for more in (0, 1, 14))
    if example is None:
        return Readings({}, {}, {})
    alone = _same_each_time([read for read in example if not read.given])
    every = [read for reads in others for read in reads or ()]
    varying = {read.place for read in every if read.given or not _equal(alone.get(read.place), read.value)}
    given = {read.place for read in example if read.given}
    return Readings(
        {place: value for place, value in alone.items() if place not in varying | given},
        {place: value for place, value in alone.items() if place not in given},
        {place: value for place, value in _same_each_time(example).items() if place in given},
    )


def describe(place: Place, value: Any) -> str:
    """``that `if x.sum() > 0:` at net.py:8 reads True``."""
    code = linecache.getline(*place).strip()
    return f"that {f'`{code}` ' if code else ''}at {Path(place[0]).name}:{place[1]} reads {value}"


@dataclass(frozen=True)
class _Read:
    place: Place
    value: Any
    given: bool


def _same_each_time(reads: Sequence[_Read]) -> dict[Place, Any]:
    values: dict[Place, Any] = {}
    varying = set()
    for read in reads:
        if not _equal(values.setdefault(read.place, read.value), read.value):
            varying.add(read.place)
    return {place: value for place, value in values.items() if place not in varying}


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _watched(model: Any, args: Any, kwargs: Any, wanted: Sequence[Mapping[int, Any]], more: int) -> list[_Read] | None:
    """What the model's code reads with ``more`` rows along each wanted dim, or None where it does not take that size."""
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    dims = wanted if len(wanted) == len(leaves) else [{}] * len(leaves)
    given = [_longer(leaf, axes, more) for leaf, axes in zip(leaves, dims)]
    watch = _Watch([leaf for leaf in given if isinstance(leaf, torch.Tensor)])
    args, kwargs = pytree.tree_unflatten(given, spec)
    try:
        with kept_buffers(model), torch.no_grad(), watch:
            model(*args, **kwargs)
    except Exception:  # noqa: BLE001  # whatever the model's own code raises: it does not take this size
        return None
    return watch.reads


def _longer(leaf: Any, axes: Mapping[int, Any], more: int) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    tensor = leaf.detach()
    for axis, dim in axes.items():
        size = tensor.shape[axis]
        if size and dim is not None:
            step = more * (2 if dim_name(dim).startswith("total_") else 1)
            tensor = tensor.index_select(axis, torch.arange(size + step, device=tensor.device) % size)
    return tensor.clone()


class _Watch(TorchDispatchMode):
    """Marks, while the model runs, each storage that the given tensors' values reach, and notes the numbers read."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.reads: list[_Read] = []
        self._marked = {StorageWeakRef(tensor.untyped_storage()) for tensor in given}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        reached = any(StorageWeakRef(tensor.untyped_storage()) in self._marked for tensor in tensors)
        if func in _READS:
            self.reads.append(_Read(_place(), result, reached))
        elif reached:
            changed = tensors if func._schema.is_mutable else []
            made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self._marked |= {StorageWeakRef(tensor.untyped_storage()) for tensor in (*made, *changed)}
        return result


def _place() -> Place:
    """The innermost line of the running code that is neither torch's nor ours."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, _HERE, "<")) and "unittest" not in file:
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


@contextlib.contextmanager
def known_values(values: Mapping[Place, Any]) -> Iterator[set[Place]]:
    """While this is open, a capture without TorchDynamo reads these values at these lines.

    Yields:
        The lines whose value was read, as the capture goes on.
    """
    table: dict[Any, Callable[..., Any]] = fake_impls.op_implementations_dict
    used: set[Place] = set()

    def reads(original: Callable[..., Any]) -> Callable[..., Any]:
        def read(mode: Any, func: Any, tensor: Any) -> Any:
            place = _place()
            if place not in values:
                return original(mode, func, tensor)
            used.add(place)
            return values[place]

        return read

    with patch.dict(table, {func: reads(table[func]) for func in _READS if func in table}):
        yield used


@contextlib.contextmanager
def whole_divisions() -> Iterator[None]:
    """While this is open, ``torch.div(a, b, rounding_mode=...)`` of two sizes is a size, not a tensor that has to be read."""
    divide: Any = torch.div

    def call(*args: Any, rounding_mode: Any = None, **more: Any) -> Any:
        sizes = len(args) == 2 and isinstance(args[0], (int, torch.SymInt)) and isinstance(args[1], int)
        if sizes and rounding_mode is not None and args[1] > 0 and (rounding_mode == "floor" or args[0] >= 0):
            return args[0] // args[1]
        return divide(*args, rounding_mode=rounding_mode, **more)

    with patch.object(torch, "div", call):
        yield
