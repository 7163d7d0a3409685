"""PyTorch: bodies written in it, and calls from it, as an operator of ``torch.library`` with a fake implementation."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from interop.dtypes import DTYPES, dtype_of
from interop.operators._call import Call, call_of
from interop.operators._errors import OperatorError
from interop.operators._operator import Operator, find, run
from interop.operators._pack import Skeleton
from interop.operators._shapes import Dims, Linear, infer_symbolic
from interop.operators._shapes import infer as infer_results
from interop.signature import TensorSpec

__all__ = [
    "apply",
    "define",
    "differentiate",
    "infer",
    "is_tensor",
    "namespace",
    "results_of",
    "skeleton_of",
    "text_of",
    "zeros_like",
]

_TRY = 4  # what an unknown size is tried at
namespace = torch.ops.tensor_interop
_SCHEMA = "(Tensor[] tensors, str call) -> Tensor[]"

zeros_like = torch.zeros_like


# Bodies


def differentiate(
    made: Operator, function: Callable[..., list[Any]], inputs: int, wrt: tuple[int, ...]
) -> Callable[..., list[Any]]:
    """The vector-Jacobian product of a function of flat tensors, by autograd."""

    def gradient(*tensors: torch.Tensor) -> list[Any]:
        deep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        with torch.enable_grad():
            primals = [_variable(tensor, index in wrt) for index, tensor in enumerate(tensors[:inputs])]
            results = [result for result in function(*primals) if _floats(result)]
            pairs = [pair for pair in zip(results, tensors[inputs:]) if pair[0].requires_grad]
            sources = [primals[index] for index in wrt]
            if not pairs:
                return [torch.zeros_like(source) for source in sources]
            outputs, cotangents = zip(*pairs)
            return list(
                torch.autograd.grad(
                    outputs, sources, cotangents, create_graph=deep, allow_unused=True, materialize_grads=True
                )
            )

    return gradient


def _variable(tensor: torch.Tensor, wanted: bool) -> torch.Tensor:
    """A tensor of its own to differentiate by, over the same memory; in the graph where the given one is in one."""
    if tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_() if wanted else tensor


def _floats(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def infer(made: Operator, call: Call, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """By running the body on fake tensors."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        fakes = [torch.empty(spec.shape, dtype=_dtype(spec.dtype)) for spec in specs]  # type: ignore[arg-type]  # numbers
        try:
            results = made.at(call)(*fakes)
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            raise OperatorError(
                f"the shapes of {made.name!r} cannot be told before it runs ({str(error).splitlines()[0][:200]}); give the "
                "operator a shape="
            ) from error
        return [TensorSpec("", dtype_of(result.dtype).name, tuple(map(int, result.shape))) for result in results]


def _dtype(name: str) -> torch.dtype:
    found = DTYPES[name].torch
    if found is None:
        raise OperatorError(f"torch has no {name}")
    return getattr(torch, found)  # type: ignore[no-any-return]


# Calls from torch

_DEFINED: dict[str, weakref.ref[Operator]] = {}
_LOCK = threading.Lock()


def apply(made: Operator, call: Call, tensors: Sequence[Any]) -> list[Any]:
    """Call through ``torch.library``, which knows how to record it for autograd, compile and export."""
    _define(made)
    return list(getattr(namespace, made.name).default(list(tensors), call.text))


def _define(made: Operator) -> None:
    """Have the library operator; again where the Python one was made again."""
    with _LOCK:
        known = _DEFINED.get(made.name)
        if known is None or known() is not made:
            _register(made.name)
            _DEFINED[made.name] = weakref.ref(made)


def _register(name: str) -> None:
    """The library keeps what it is given for ever, so it is given the operator's name only."""

    def forward(tensors: list[torch.Tensor], call: str) -> list[torch.Tensor]:
        return _unaliased(run(find(name), Call.from_text(call), tensors, "torch"), tensors)

    def fake(tensors: list[torch.Tensor], call: str) -> list[torch.Tensor]:
        device = tensors[0].device if tensors else None
        found = results_of(find(name), Call.from_text(call), tensors)
        return [torch.empty(shape, dtype=dtype, device=device) for dtype, shape in found]

    defined = torch.library.custom_op(f"tensor_interop::{name}", forward, mutates_args=(), schema=_SCHEMA)
    defined.register_fake(fake)
    defined.register_autograd(functools.partial(_backward, name), setup_context=_set_up)


def _unaliased(results: list[torch.Tensor], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Results in memory of their own: an operator must not give a view of its input, which a body may well do."""
    taken = [_range(tensor) for tensor in tensors]
    own = []
    for result in results:
        start, end = _range(result)
        if any(start < other_end and other_start < end for other_start, other_end in taken):
            result = result.clone()
        taken.append(_range(result))
        own.append(result)
    return own


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _set_up(ctx: Any, inputs: Any, output: Any) -> None:
    tensors, call = inputs
    ctx.save_for_backward(*tensors)
    ctx.call = call
    ctx.floats = [_floats(result) for result in output]


def _backward(name: str, ctx: Any, upstream: Any) -> Any:
    tensors = list(ctx.saved_tensors)
    needed = ctx.needs_input_grad[0]
    wrt = tuple(index for index, tensor in enumerate(tensors) if needed[index] and _floats(tensor))
    cotangents = [gradient for gradient, floats in zip(upstream, ctx.floats) if floats]
    call = Call.from_text(ctx.call).derive(len(tensors), wrt)
    found = dict(zip(wrt, apply(find(name), call, [*tensors, *cotangents])))
    return [found.get(index) for index in range(len(tensors))], None


# Shapes under compile and export


def results_of(made: Operator, call: Call, tensors: Sequence[torch.Tensor]) -> list[tuple[torch.dtype, list[Any]]]:
    """Dtype and shape of each result, for tensors whose sizes may be symbols of torch."""
    if call.derivatives:
        return [(tensors[index].dtype, list(tensors[index].shape)) for index in call.derivatives[-1].wrt]
    symbols = _symbols(tensors)
    found = _inferred(made, call, tensors, symbols)
    return [(_dtype(dtype), [_size(dim, symbols) for dim in dims]) for dtype, dims in found]


def _inferred(
    made: Operator, call: Call, tensors: Sequence[torch.Tensor], symbols: Mapping[str, Any]
) -> list[tuple[str, Dims]]:
    """Dtypes and linear shapes; sizes that the body wants equal become equal for torch too."""
    shapes = [[_expression(size) for size in tensor.shape] for tensor in tensors]
    sizes = {symbol: _example(size) for symbol, size in symbols.items()}

    def infer_at(values: Mapping[str, int]) -> Sequence[TensorSpec]:
        specs = [
            TensorSpec("", dtype_of(tensor.dtype).name, tuple(_value(size, values) for size in shape))
            for tensor, shape in zip(tensors, shapes)
        ]
        return infer_results(made, call, tuple(specs))

    try:
        return infer_symbolic(infer_at, sizes)
    except OperatorError:
        first = {size: symbol for symbol, size in reversed(sizes.items())}
        if len(first) == len(sizes):
            raise
    merged = infer_symbolic(
        lambda values: infer_at({symbol: values[first[size]] for symbol, size in sizes.items()}),
        {symbol: size for size, symbol in first.items()},
    )
    for symbol, size in sizes.items():
        torch._check(symbols[symbol] == symbols[first[size]])
    return merged


def _symbols(tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Every symbol in the shapes, as a size."""
    found: dict[str, Any] = {}
    sizes: list[Any] = [size for tensor in tensors for size in tensor.shape]
    for size in (size for size in sizes if isinstance(size, torch.SymInt)):
        for symbol in sorted(size.node.expr.free_symbols, key=str):
            if str(symbol) not in found:
                found[str(symbol)] = size if size.node.expr == symbol else _alone(symbol, size)
    return found


def _alone(symbol: Any, size: torch.SymInt) -> Any:
    """A symbol that is only met within an expression."""
    environment = size.node.shape_env
    return environment.create_symintnode(symbol, hint=environment.backed_var_to_val.get(symbol))


def _example(size: torch.SymInt) -> int:
    """A size to try: the example's own, but no 0 and 1, which broadcast."""
    hint = size.node.hint if size.node.has_hint() else None
    return _TRY if hint is None else max(int(hint), 2)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _value(expression: Any, values: Mapping[str, int]) -> int:
    if isinstance(expression, int):
        return expression
    return int(expression.subs({symbol: values[str(symbol)] for symbol in expression.free_symbols}))


def _size(dim: Linear | None, symbols: Mapping[str, Any]) -> Any:
    """A size of a result: a number, a sum of symbols, or a new unknown."""
    if dim is None:
        return torch.library.get_ctx().new_dynamic_size()
    return sum((slope * symbols[symbol] for symbol, slope in dim.slopes), dim.constant)


# For TorchDynamo


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch."""
    return isinstance(value, torch.Tensor)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def text_of(skeleton: Skeleton) -> str:
    """The text of a call."""
    return call_of(skeleton).text


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def define(name: str) -> bool:
    """Have ``torch.ops.tensor_interop.<name>`` defined."""
    _define(find(name))
    return True


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def skeleton_of(name: str, text: str) -> Skeleton:
    """How the results nest; the fake implementation found out just before."""
    return find(name).skeleton_of(Call.from_text(text))
