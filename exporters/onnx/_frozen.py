"""Find the branches and loops of a model's code that a capture froze.

torch.export follows one path through Python code. Each comparison of a dynamic size that it answered on the way is noted as
a guard, and the captured program is right where all guards hold; torch.onnx drops them. A guard that does not hold at some
size is only a suspicion, because the other path may compute the same: the model itself, run at that size, decides.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sympy  # type: ignore[import-untyped]  # it has no stubs
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from exporters._provenance import user_place
from exporters._undisturbed import kept_buffers
from exporters.onnx._quiet import quiet

__all__ = ["Frozen", "find_frozen", "find_untried", "noted_places", "place_of_fixed_size", "program_leaves"]

_HERE = str(Path(__file__).parent.parent)
_CAPTURE = str(Path(__file__).with_name("_strategies.py"))
LARGEST_SIZE = 4096
"""Larger sizes are not tried: the model is run at each of them."""
_SMALL_SIZE, _ELEMENTS, _PRODUCTS = 1024, 1 << 22, 1 << 40
"""Above the first, sizes are tried while the inputs have no more elements than the second, and times the weights the third."""
_LARGEST_SAID = 1 << 24
"""Larger numbers in a guard are limits of a dtype, which are nobody's branch."""
_TRIALS_PER_GUARD, _TRIALS = 4, 12


@dataclass(frozen=True)
class Frozen:
    """A path of the model's code that holds for some sizes only.

    Attributes:
        leaf: the number of the input among the flattened arguments.
        axis: its axis.
        size: a size at which the model computes something else than the program.
        held: the condition that the capture relied on, with the size's own symbol in it.
        symbol: that symbol.
        place: the user's ``file.py:line``, or an empty string.
    """

    leaf: int
    axis: int
    size: int
    held: str
    symbol: str
    place: str


@contextlib.contextmanager
def noted_places() -> Iterator[None]:
    """While this is open, torch notes with each guard the line of the user's code that asked."""
    original = ShapeEnv._get_sloc

    def located(self: Any, framework_loc: Any = None) -> Any:
        place = original(self, framework_loc)
        return place if place.maybe_user_loc else replace(place, maybe_user_loc=_current_place())

    with patch.object(ShapeEnv, "_get_sloc", located):
        yield


def _current_place() -> str | None:
    """The innermost frame of the running code that is the user's; what called the export does not count."""
    frames = []
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != _CAPTURE:
        if not frame.f_code.co_filename.startswith(("<", _HERE)):
            frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    place = user_place(frames[::-1])
    return f"{Path(place[0]).name}:{place[1]}" if place else None


def program_leaves(program: torch.export.ExportedProgram) -> list[Any]:
    """What stands for each leaf of the flattened arguments in the graph: a fake tensor, or the value of a constant."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    return [values.get(item) if isinstance(item, str) else item for item in program.graph_signature.user_inputs]


def _shape_env(program: torch.export.ExportedProgram) -> Any:
    fakes = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    modes = (getattr(fake, "fake_mode", None) for fake in fakes)
    return next((mode.shape_env for mode in modes if mode is not None), None)


def place_of_fixed_size(program: torch.export.ExportedProgram, axis: int, size: int) -> str:
    """The user's line that fixed a size which was to be dynamic, or an empty string where torch did not note it."""
    environment = _shape_env(program)
    for symbol, place in getattr(environment, "replacements_slocs", {}).items():
        sources = " ".join(str(source.name) for source in environment.var_to_sources.get(symbol, ()))
        if environment.replacements.get(symbol) == size and f".size()[{axis}]" in sources:
            return place.maybe_user_loc or ""
    return ""


def find_frozen(
    program: torch.export.ExportedProgram,
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    bounds: Mapping[tuple[int, int], tuple[int, int]],
) -> Frozen | None:
    """The first path that was frozen and makes a difference.

    Args:
        program: the capture of the model.
        model: the model.
        args: the positional arguments that it was captured with.
        kwargs: the keyword arguments.
        bounds: ``{(leaf, axis): (smallest, largest)}`` where the caller limits a size.
    """
    fakes = program_leaves(program)
    sizes = _symbols(fakes)
    environment = _shape_env(program)
    if environment is None or len(fakes) != len(pytree.tree_leaves((tuple(args), dict(kwargs)))):
        return None
    trial = _Trial(program, model, args, kwargs, fakes)
    for guard in environment.guards:
        for symbol, size in itertools.islice(_violations(guard.expr, sizes, bounds), _TRIALS_PER_GUARD):
            if trial.count == _TRIALS:
                return None
            if trial.differs(symbol, size, {known: hint for known, (_, hint) in sizes.items()}):
                (leaf, axis), _ = sizes[symbol]
                return Frozen(leaf, axis, size, str(guard.expr), str(symbol), guard.sloc.maybe_user_loc or "")
    return None


def find_untried(
    program: torch.export.ExportedProgram, model: Any, bounds: Mapping[tuple[int, int], tuple[int, int]]
) -> Iterator[Frozen]:
    """Branches of the user's code that go the other way at sizes that are too large to try, one a line of code.

    Args:
        program: the capture of a model.
        model: the model.
        bounds: as for ``find_frozen``.
    """
    environment, fakes = _shape_env(program), program_leaves(program)
    sizes = _symbols(fakes)
    hints = {symbol: hint for symbol, (_, hint) in sizes.items()}
    said = set()
    for guard in environment.guards if environment is not None else ():
        place = guard.sloc.maybe_user_loc
        found = list(_violations(guard.expr, sizes, bounds, _LARGEST_SAID))
        if place and place not in said and found and all(_is_large(model, fakes, {**hints, s: n}) for s, n in found):
            said.add(place)
            symbol, size = min(found, key=lambda each: each[1])
            (leaf, axis), _ = sizes[symbol]
            yield Frozen(leaf, axis, size, str(guard.expr), str(symbol), place)


def _is_large(model: Any, fakes: Sequence[Any], sizes: Mapping[Any, int]) -> bool:
    """Whether a run at these sizes may take too long to be tried."""
    largest = max(sizes.values())
    if not _SMALL_SIZE < largest <= LARGEST_SIZE:
        return largest > LARGEST_SIZE
    shapes = [fake.shape for fake in fakes if torch.is_tensor(fake)]
    counts = [
        math.prod(int(dim.node.expr.subs(sizes)) if isinstance(dim, torch.SymInt) else dim for dim in shape)
        for shape in shapes
    ]
    weights = sum(parameter.numel() for parameter in model.parameters()) if isinstance(model, torch.nn.Module) else 0
    return sum(counts) > _ELEMENTS or sum(counts) * weights > _PRODUCTS


def _symbols(fakes: Sequence[Any]) -> dict[sympy.Symbol, tuple[tuple[int, int], int]]:
    """Every symbol that is a whole dim of an input: the first place of it, and the example's size."""
    found: dict[sympy.Symbol, tuple[tuple[int, int], int]] = {}
    for leaf, fake in enumerate(fakes):
        dims: Any = fake.shape if torch.is_tensor(fake) else ()
        for axis, dim in enumerate(dims):
            expression = dim.node.expr if isinstance(dim, torch.SymInt) else None
            if isinstance(expression, sympy.Symbol) and dim.node.hint is not None:
                found.setdefault(expression, ((leaf, axis), int(dim.node.hint)))
    return found


def _violations(
    condition: Any,
    sizes: Mapping[sympy.Symbol, tuple[tuple[int, int], int]],
    bounds: Mapping[tuple[int, int], tuple[int, int]],
    largest: int = LARGEST_SIZE,
) -> Iterator[tuple[sympy.Symbol, int]]:
    """Sizes at which a guard does not hold, one dim at a time, those that people meet first before the others."""
    if not condition.free_symbols <= set(sizes):
        return
    numbers = sorted(int(abs(number)) for number in condition.atoms(sympy.Integer))
    numbers += [one // other for one in numbers for other in numbers if 1 < other < one]
    hints = {symbol: hint for symbol, (_, hint) in sizes.items()}
    for symbol in sorted(condition.free_symbols, key=str):
        place, hint = sizes[symbol]
        low, high = bounds.get(place, (1, largest))
        near = [number + step for number in (*numbers, *hints.values()) for step in (0, 1, -1)]
        for size in dict.fromkeys([1, hint + 1, hint + 2, 2, *near]):
            inside = max(low, 1) <= size <= min(high, largest) and size != hint
            if inside and condition.subs(hints | {symbol: size}) == sympy.false:
                yield symbol, size


class _Trial:
    """Runs of the model and of its program at other sizes; each size once."""

    def __init__(self, program: Any, model: Any, args: Any, kwargs: Any, fakes: Sequence[Any]) -> None:
        self._program, self._model, self._fakes = program, model, fakes
        self._leaves, self._spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        self._known: dict[tuple[Any, int], bool] = {}
        self._module: Any = None

    @property
    def count(self) -> int:
        """How many sizes were tried."""
        return len(self._known)

    def differs(self, symbol: Any, size: int, hints: Mapping[Any, int]) -> bool:
        """Whether the model takes this size and computes something else than the program."""
        if (symbol, size) not in self._known:
            self._known[symbol, size] = self._compare({**hints, symbol: size})
        return self._known[symbol, size]

    def _compare(self, sizes: Mapping[Any, int]) -> bool:
        """Sizes that follow from others by the program's account (2*n) may stay in truth: the model says which it takes."""
        if _is_large(self._model, self._fakes, sizes):
            return False
        for derived in (True, False):
            try:
                expected = self._run(self._model, sizes, derived)
            except Exception:  # noqa: BLE001  # whatever the model's own code raises: it does not take this size
                continue
            try:
                with quiet():
                    result = self._run(self._unguarded(), sizes, derived)
            except Exception:  # noqa: BLE001  # any failure of the program where the model works is a difference
                return True
            return not _same(expected, result)
        return False

    def _run(self, call: Any, sizes: Mapping[Any, int], derived: bool) -> list[Any]:
        leaves = [_resized(leaf, fake, sizes, derived) for leaf, fake in zip(self._leaves, self._fakes)]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        torch.manual_seed(0)  # the caller's random state is kept around the whole export
        with kept_buffers(self._model), torch.no_grad():
            return list(pytree.tree_leaves(call(*args, **kwargs)))

    def _unguarded(self) -> Any:
        """The program without its assertions, as ONNX will have it."""
        if self._module is None:
            module = self._program.module(check_guards=False)
            module._forward_pre_hooks.clear()
            for node in list(module.graph.nodes):
                if node.op == "call_function" and "assert" in str(node.target):
                    module.graph.erase_node(node)
            module.recompile()
            self._module = module
        return self._module


def _resized(leaf: Any, fake: Any, sizes: Mapping[Any, int], derived: bool) -> Any:
    """A tensor with its rows repeated or left out, so that token numbers and masks stay valid.

    Without ``derived``, dims that are no symbol of their own keep their size.
    """
    if not torch.is_tensor(leaf) or not torch.is_tensor(fake):
        return leaf
    tensor = leaf.detach()
    for axis, dim in enumerate(fake.shape):
        expression = dim.node.expr if isinstance(dim, torch.SymInt) else None
        size = tensor.shape[axis]
        if expression is not None and (derived or isinstance(expression, sympy.Symbol)):
            size = int(expression.subs(sizes))
        if size != tensor.shape[axis] and tensor.shape[axis]:
            tensor = tensor.index_select(axis, torch.arange(size, device=tensor.device) % tensor.shape[axis])
    return tensor.clone()


def _same(expected: Sequence[Any], result: Sequence[Any]) -> bool:
    if len(expected) != len(result):
        return False
    return all(_same_leaf(want, got) for want, got in zip(expected, result))


def _same_leaf(want: Any, got: Any) -> bool:
    if not torch.is_tensor(want) or not torch.is_tensor(got):
        return type(want) is type(got) and bool(want == got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return False
    if not want.is_floating_point():
        return torch.equal(want, got)
    scale = want.nan_to_num(0, 0, 0).abs().max().item() if want.numel() else 0.0
    return torch.allclose(want, got, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)
