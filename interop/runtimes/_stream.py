"""Run a model over more samples than fit in memory, a batch at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from interop.errors import InputError
from interop.extras import loaded
from interop.frameworks import convert, framework_of
from interop.runtimes._rebuild import rebuild

if TYPE_CHECKING:
    from interop.runtimes._base import Runtime

__all__ = ["stream"]


def stream(runtime: Runtime, items: Iterable[Any], batch_size: int | None, progress: bool) -> Iterator[Any]:
    """See ``Runtime.map``."""
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    if progress:
        items = _with_bar(items)
    if batch_size is None:
        return (_unflatten(runtime, runtime.run(_flat(runtime, item))) for item in items)
    return _batches(runtime, iter(items), batch_size)


def _batches(runtime: Runtime, items: Iterator[Any], batch_size: int) -> Iterator[Any]:
    while samples := [_flat(runtime, item) for item in itertools.islice(items, batch_size)]:
        count = len(samples)
        samples += samples[-1:] * (_fixed_batch(runtime, batch_size) - count)
        outputs = runtime.run({name: _stack([sample[name] for sample in samples]) for name in samples[0]})
        for name, value in outputs.items():
            if len(value.shape) == 0 or value.shape[0] != len(samples):
                raise InputError(
                    f"output {name!r} has the shape {tuple(value.shape)}, so its first axis is not the {len(samples)} samples "
                    "of a batch; pass batches and leave batch_size out"
                )
        for index in range(count):
            yield _unflatten(runtime, {name: value[index] for name, value in outputs.items()})


def _fixed_batch(runtime: Runtime, batch_size: int) -> int:
    """The batch that the model insists on; the last one is then filled up with copies, whose results are dropped."""
    fixed = {spec.shape[0] for spec in runtime.signature.inputs if spec.shape and isinstance(spec.shape[0], int)}
    if fixed and fixed != {batch_size}:
        raise InputError(f"the model was exported for batches of {sorted(fixed, key=str)}, got batch_size={batch_size}")
    return batch_size if fixed else 0


def _flat(runtime: Runtime, item: Any) -> dict[str, Any]:
    """An item is ``{input name: tensor}``, a tuple of arguments, or the one argument."""
    if isinstance(item, Mapping) and item.keys() == set(runtime.signature.input_names):
        return dict(item)
    return runtime.signature.bind(item if isinstance(item, tuple) else (item,), {})


def _unflatten(runtime: Runtime, outputs: Mapping[str, Any]) -> Any:
    return runtime.signature.unflatten(outputs, rebuild)


def _stack(values: Sequence[Any]) -> Any:
    owner = framework_of(values[0])
    if owner is None or owner == "dlpack":  # numbers, and tensors of a library that is not known
        owner = "numpy"
    module = loaded(owner)
    stack: Callable[[Any], Any] | None = getattr(module, "stack", None)
    if stack is not None:
        return stack([convert(value, owner) for value in values])
    return convert(np.stack([convert(value, "numpy") for value in values]), owner)


def _with_bar(items: Iterable[Any]) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import track

    total = len(items) if isinstance(items, Sized) else None
    yield from track(items, description="running", total=total, console=Console(stderr=True), transient=True)
