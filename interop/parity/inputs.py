"""Inputs to compare models on: made from a signature, seeded, and meant to find what one normal sample does not.

A family is a kind of values (normal, ties, large, ...), a suite is families times sizes of the symbolic dims. Integer
inputs are drawn over their range in every family, bool inputs are masks.
"""

from __future__ import annotations

import ast
import fnmatch
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.errors import InputError
from interop.signature import Signature, TensorSpec

__all__ = [
    "FAMILIES",
    "FULL",
    "QUICK",
    "Case",
    "base_symbols",
    "default_sizes",
    "evaluate_dim",
    "is_complete",
    "make_case",
    "make_suite",
]

Array = npt.NDArray[Any]
Range = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """One set of inputs.

    Attributes:
        name: what it is called in reports, such as ``"normal batch=2"``.
        tensors: ``{input name: tensor}``.
        others: the same under the names of a model that calls its inputs otherwise, by that model.
        misfits: why a model does not take these inputs, by that model.
    """

    name: str
    tensors: dict[str, Any]
    others: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)
    misfits: Mapping[Any, str] = field(default_factory=dict)

    def tensors_of(self, model: Any) -> Mapping[str, Any]:
        """The inputs under a model's own names."""
        return self.others.get(model, self.tensors)


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.random(shape)


def _negative(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return -np.abs(rng.standard_normal(shape)) * 3


def _zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """0.0 and -0.0: what a division, an atan2 or a sign makes of them."""
    return np.where(rng.random(shape) < 0.5, -0.0, 0.0)


def _ties(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Multiples of one half between -2 and 2: equal values for argmax and sort, halves for rounding."""
    return rng.integers(-4, 5, shape) / 2


def _large(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape) * 200


def _tiny(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape) * 1e-4


def _nonfinite(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal values of which about one in twelve is NaN, Inf or -Inf."""
    values = rng.standard_normal(shape)
    kind = rng.integers(0, 36, shape)
    return np.select([kind == 0, kind == 1, kind == 2], [np.nan, np.inf, -np.inf], values)


FAMILIES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "normal": _normal,
    "uniform": _uniform,
    "negative": _negative,
    "zeros": _zeros,
    "ties": _ties,
    "large": _large,
    "tiny": _tiny,
    "nonfinite": _nonfinite,
}
"""Name -> values as float64, cast to the input's dtype; ``"nonfinite"`` is made on request only."""

QUICK: tuple[str, ...] = ("normal",)
FULL: tuple[str, ...] = tuple(name for name in FAMILIES if name != "nonfinite")

DEFAULT_RANGE: Range = (0, 2)
"""Integers without a known range: an index of zero or one is valid for nearly every table."""


def is_complete(signature: Signature) -> bool:
    """True where inputs can be made: every rank is known and no dimension is without a size or symbol."""
    return all(spec.shape is not None and None not in spec.shape for spec in signature.inputs)


def base_symbols(signature: Signature) -> tuple[str, ...]:
    """The symbols that sizes can be given to: of a dimension such as ``"2*frames"``, only ``"frames"``."""
    return tuple(dict.fromkeys(base for symbol in signature.symbols for base in _names_in(symbol)))


def _names_in(symbol: str) -> list[str]:
    try:
        tree = ast.parse(symbol, mode="eval")
    except SyntaxError:
        return [symbol]  # the free text of an ONNX dim_param
    if isinstance(tree.body, ast.BinOp):
        return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return [symbol]


def default_sizes(symbols: Sequence[str], example: Mapping[str, int] | None = None) -> list[dict[str, int]]:
    """Three sizes for every symbolic dim: the example's (or 2, 3, ... so that no two are equal), larger ones, batch 1.

    Args:
        symbols: names of the symbolic dims, in order; the first one is taken for the batch.
        example: sizes that are known to work.

    Returns:
        One dict for each size; a single empty dict where nothing is symbolic.
    """
    if not symbols:
        return [{}]
    first = {symbol: (example or {}).get(symbol, 2 + position) for position, symbol in enumerate(symbols)}
    second = {symbol: size + 1 + position for position, (symbol, size) in enumerate(first.items())}
    single = first | {symbols[0]: 1}
    return [sizes for position, sizes in enumerate([first, second, single]) if sizes not in [first, second][:position]]


def make_suite(
    signature: Signature,
    *,
    families: Sequence[str] = QUICK,
    sizes: Sequence[Mapping[str, int]] | None = None,
    ranges: Mapping[str, Range] | None = None,
    seed: int = 0,
) -> Iterator[Case]:
    """Make the cases of a suite: the first family at every size, the other families at the first size.

    Args:
        signature: what to make inputs for.
        families: names out of ``FAMILIES``.
        sizes: sizes of the symbolic dims, one dict a size; ``default_sizes`` if not given. 0 makes empty tensors.
        ranges: ``{input name or wildcard: (low, high)}`` of integer inputs, ``high`` excluded.
        seed: the same seed gives the same values, for each input whatever the others are.

    Raises:
        InputError: an unknown family, or a shape that is not known completely.
    """
    if unknown := [name for name in families if name not in FAMILIES]:
        raise InputError(f"no input family is called {unknown}; there are {list(FAMILIES)}")
    sizes = default_sizes(base_symbols(signature)) if sizes is None else sizes
    for position, family in enumerate(families):
        for chosen in sizes if position == 0 else sizes[:1]:
            yield make_case(signature, family, chosen, ranges, seed)


def make_case(
    signature: Signature,
    family: str,
    sizes: Mapping[str, int],
    ranges: Mapping[str, Range] | None = None,
    seed: int = 0,
) -> Case:
    """Make one case; see ``make_suite``."""
    tensors = {}
    for spec in signature.inputs:
        salt = zlib.crc32(f"{spec.name} {family} {sorted(sizes.items())}".encode())
        rng = np.random.default_rng([seed, salt])
        tensors[spec.name] = _make(rng, spec, family, _shape(spec, sizes), _range_of(spec, ranges or {}))
    label = " ".join([family, *(f"{symbol}={size}" for symbol, size in sizes.items())])
    return Case(label, tensors)


def _make(rng: np.random.Generator, spec: TensorSpec, family: str, shape: tuple[int, ...], limits: Range) -> Array:
    dtype = dtype_of(spec.dtype)
    if dtype.kind == "bool":
        return rng.random(shape) < 0.5
    if dtype.kind in ("int", "uint"):
        return _integers(rng, family, shape, limits).astype(dtype.numpy)
    if dtype.kind == "string":
        return np.array([f"text {n}" for n in range(int(np.prod(shape)))], dtype=object).reshape(shape)
    values = FAMILIES[family](rng, shape)
    if dtype.kind == "complex":
        return np.stack([values, FAMILIES[family](rng, shape)], -1).view(np.complex128)[..., 0].astype(dtype.numpy)
    return np.asarray(values).astype(dtype.numpy)


def _integers(rng: np.random.Generator, family: str, shape: tuple[int, ...], limits: Range) -> Array:
    """Integers over ``[low, high)``; the families at an end of the range stay there."""
    low, high = limits
    if high <= low:
        raise InputError(f"an integer range is (low, high) with low < high, got {limits}")
    if family == "zeros":
        return np.full(shape, min(max(0, low), high - 1))
    if family == "large":
        return rng.integers(max(low, high - max(1, (high - low) // 10)), high, shape)
    if family == "ties":
        return rng.choice(rng.integers(low, high, 2), shape)
    return rng.integers(low, high, shape)


def _range_of(spec: TensorSpec, ranges: Mapping[str, Range]) -> Range:
    if spec.name in ranges:
        return ranges[spec.name]
    return next(
        (limits for pattern, limits in ranges.items() if fnmatch.fnmatchcase(spec.name, pattern)), DEFAULT_RANGE
    )


def _shape(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    if spec.shape is None or None in spec.shape:
        raise InputError(f"input {spec} has dimensions that the model file does not say; give inputs=")
    return tuple(dim if isinstance(dim, int) else evaluate_dim(str(dim), sizes) for dim in spec.shape)


def evaluate_dim(expression: str, sizes: Mapping[str, int]) -> int:
    """The size of a dimension that is a symbol or a sum, difference, product or quotient of symbols and numbers.

    Raises:
        InputError: a symbol has no size, or the text is something else.
    """
    if expression in sizes:
        return sizes[expression]
    try:
        return _evaluate(ast.parse(expression, mode="eval").body, sizes)
    except (SyntaxError, KeyError, ZeroDivisionError, TypeError) as error:
        raise InputError(f"dimension {expression!r} has no size; the sizes are {dict(sizes)}; give inputs=") from error


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: lambda left, right: left % right,
}


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_evaluate(node.left, sizes), _evaluate(node.right, sizes))
    raise TypeError(f"{type(node).__name__} is not part of a dimension")
