"""What an operator gives for inputs of known dtype and shape, also where some sizes are only symbols.

Frameworks infer shapes each in its own way and none knows the symbols of another. So a body is inferred at a few concrete
sizes, and each size of a result is read off as a linear function of the symbols; what is not linear stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interop.errors import InteropError
from interop.operators._call import Call
from interop.operators._errors import OperatorError
from interop.operators._pack import pack, unpack
from interop.signature import TensorSpec

if TYPE_CHECKING:
    from interop.operators._operator import Operator

__all__ = ["Dims", "Linear", "infer", "infer_symbolic"]

_STEPS = (1, 3)


@dataclass(frozen=True)
class Linear:
    """``constant + sum(slope * symbol)``; a plain size has no slopes."""

    constant: int
    slopes: tuple[tuple[str, int], ...] = ()


Dims = tuple[Linear | None, ...]


def infer(operator: Operator, call: Call, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Dtypes and shapes of a call's results, without computing them.

    Args:
        operator: the operator.
        call: how it is called.
        specs: of the tensors, with sizes that are numbers.

    Raises:
        OperatorError: the body's framework cannot tell; the message says how to help it.
    """
    if call.derivatives:  # a gradient looks like what it is the gradient of
        return tuple(specs[index] for index in call.derivatives[-1].wrt)
    found: tuple[TensorSpec, ...] = operator.cached((call, specs), lambda: _inferred(operator, call, specs))
    return found


def _inferred(operator: Operator, call: Call, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    if operator.shape is None:
        return tuple(operator.framework_module.infer(operator, call, specs))
    args, kwargs = unpack(call.arguments, specs)
    found: list[Any] = []
    skeleton = pack(operator.shape(*args, **kwargs), found, lambda value: hasattr(value, "dtype"))
    results = tuple(
        TensorSpec("", str(spec.dtype), None if spec.shape is None else tuple(spec.shape)) for spec in found
    )
    operator.record(call, skeleton)
    return results


def infer_symbolic(
    infer_at: Callable[[Mapping[str, int]], Sequence[TensorSpec]], sizes: Mapping[str, int]
) -> list[tuple[str, Dims]]:
    """Dtypes and linear shapes of results.

    Args:
        infer_at: gives the results for one size of each symbol.
        sizes: a size of each symbol that certainly works.

    Returns:
        ``(dtype, dims)`` a result; a dim that no linear function gives is None.
    """
    base = infer_at(sizes)
    probes = {symbol: _probes(infer_at, sizes, symbol) for symbol in sizes}
    joint = infer_at({symbol: probe[0][0] for symbol, probe in probes.items()}) if len(sizes) > 1 else None
    results = []
    for index, spec in enumerate(base):
        if spec.shape is None:
            raise OperatorError("the number of dims of a result must be known; give the operator a shape=")
        dims = [_linear(axis, index, sizes, base, probes, joint) for axis in range(len(spec.shape))]
        results.append((spec.dtype, tuple(dims)))
    return results


_Probe = tuple[int, Sequence[TensorSpec]]


def _probes(
    infer_at: Callable[[Mapping[str, int]], Sequence[TensorSpec]], sizes: Mapping[str, int], symbol: str
) -> list[_Probe]:
    """Results at two further sizes of one symbol: neighbours, or multiples where the body refuses neighbours."""
    start = sizes[symbol]
    try:
        return [(start + step, infer_at({**sizes, symbol: start + step})) for step in _STEPS]
    except InteropError:
        return [(start + start * step, infer_at({**sizes, symbol: start + start * step})) for step in _STEPS]


def _linear(
    axis: int,
    index: int,
    sizes: Mapping[str, int],
    base: Sequence[TensorSpec],
    probes: Mapping[str, list[_Probe]],
    joint: Sequence[TensorSpec] | None,
) -> Linear | None:
    start = _size(base, index, axis)
    if start is None:
        return None
    slopes = {}
    for symbol, found in probes.items():
        rises = [(_size(specs, index, axis), size - sizes[symbol]) for size, specs in found]
        quotients = {None if size is None else (size - start) / step for size, step in rises}
        slope = quotients.pop() if len(quotients) == 1 else None
        if slope is None or slope != int(slope):
            return None
        slopes[symbol] = int(slope)
    moved = sum(slope * (probes[symbol][0][0] - sizes[symbol]) for symbol, slope in slopes.items())
    if joint is not None and _size(joint, index, axis) != start + moved:  # a product of two symbols
        return None
    constant = start - sum(slope * sizes[symbol] for symbol, slope in slopes.items())
    return Linear(constant, tuple((symbol, slope) for symbol, slope in slopes.items() if slope))


def _size(specs: Sequence[TensorSpec], index: int, axis: int) -> int | None:
    shape = specs[index].shape
    if shape is None or axis >= len(shape):
        return None
    size = shape[axis]
    return size if isinstance(size, int) else None
