"""Other arithmetic for the same torch module: float64 throughout, or every operand moved by an ulp."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Protocol

from interop.extras import require

__all__ = ["Float64", "Jitter", "Variant", "is_large"]


class Variant(Protocol):
    """A way of running a module's arithmetic."""

    def prepare(self, value: Any) -> Any:
        """An input or a tensor of the state as this variant wants it."""

    def prepare_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """The parameters and buffers as this variant wants them."""

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """The context that the module runs in."""


class Float64:
    """Every float operand, parameter and constant in float64, whatever dtype the module's code asks for."""

    def prepare(self, value: Any) -> Any:
        """Widen a tensor."""
        return _widen(value)

    def prepare_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Widen buffers and small parameters; tied ones stay tied. Large ones are widened where they are used."""
        done: dict[int, Any] = {}
        return {
            name: value if is_large(value) else done.setdefault(id(value), _widen(value))
            for name, value in state.items()
        }

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Float64 is also the default dtype inside."""
        torch = require("torch", "to run a module in float64")
        previous = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with _widen_mode()():
                yield
        finally:
            torch.set_default_dtype(previous)


LARGE_BYTES = 1 << 20


def is_large(value: Any) -> bool:
    """True for a parameter that is not copied as a whole: a model's memory would be many times its weights."""
    torch = require("torch", "to run a module in float64")
    return isinstance(value, torch.nn.Parameter) and value.numel() * value.element_size() > LARGE_BYTES


class Jitter:
    """Every float operand of every arithmetic operator moved by up to one ulp."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def prepare(self, value: Any) -> Any:
        """Inputs stay as they are: the operators that use them move them."""
        return value

    def prepare_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Parameters stay as they are."""
        return state

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """The dispatch mode that moves operands."""
        mode: contextlib.AbstractContextManager[Any] = _jitter_mode()(self.seed)
        return mode


def _widen(value: Any) -> Any:
    torch = require("torch", "to run a module in float64")
    if not isinstance(value, torch.Tensor):
        return _wide_dtypes().get(value, value) if isinstance(value, torch.dtype) else value
    wide = _wide_dtypes().get(value.dtype)
    return value if wide is None else value.to(wide)


@functools.cache
def _wide_dtypes() -> dict[Any, Any]:
    torch = require("torch", "to run a module in float64")
    narrow = (torch.float32, torch.float16, torch.bfloat16)
    return dict.fromkeys(narrow, torch.float64) | dict.fromkeys((torch.complex64, torch.complex32), torch.complex128)


EXACT_OPERATORS = frozenset(
    word
    for line in (
        "_local_scalar_dense _to_copy abs alias amax amin arange argmax argmin as_strided bitwise_and bitwise_not",
        "bitwise_or bucketize cat ceil clamp clamp_max clamp_min clone constant_pad_nd contiguous copy copy_",
        "detach diagonal embedding empty empty_like empty_strided eq expand eye fill fill_ flip floor full",
        "full_like gather ge gt hardtanh index index_select isinf isnan isfinite leaky_relu le lift_fresh",
        "lift_fresh_copy logical_and logical_not logical_or lt masked_fill max max_pool2d_with_indices",
        "max_pool3d_with_indices maximum min minimum native_dropout ne neg new_empty new_full new_ones new_zeros",
        "nonzero ones ones_like permute pixel_shuffle pixel_unshuffle prelu rand rand_like randn randn_like",
        "reflection_pad1d reflection_pad2d relu relu_ repeat replication_pad1d replication_pad2d replication_pad3d",
        "reshape roll round scalar_tensor scatter select select_scatter sign slice slice_scatter sort split",
        "split_with_sizes squeeze stack t threshold topk transpose tril triu trunc unbind unfold unsafe_split",
        "unsqueeze upsample_nearest1d upsample_nearest2d upsample_nearest3d view view_as_complex view_as_real",
        "where zeros zeros_like _unsafe_view _reshape_alias _unsafe_index",
    )
    for word in line.split()
)
"""aten operators that move or select values and round nothing: their operands are left alone, so a mask stays one."""


UNIT_OPERATORS = frozenset({"elu", "selu", "celu", "expm1", "log1p"})
"""Their usual formulas, such as exp(x) - 1, pass through values near one, and may be off by an ulp of 1.0."""
LIBRARY_OPERATORS = frozenset({"tanh", "sigmoid", "erf", "exp", "log", "pow", "softplus"}) | frozenset(
    {"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"}
)
"""Functions that every mathematical library approximates in its own way, to two ulp or so."""
GATE_OPERATORS = frozenset({"gelu", "silu", "mish"})
"""x times a gate between zero and one, which may be off by an ulp of 1.0: 1 + tanh(...) is."""


@functools.cache
def _operand_mode() -> Any:
    """The base of both dispatch modes, made once torch is there."""
    torch = require("torch", "to measure float noise")
    from torch.utils._python_dispatch import TorchDispatchMode

    Base: Any = TorchDispatchMode  # noqa: N806 - a class

    class OperandMode(Base):  # type: ignore[misc] # untyped in torch
        """Changes the operands of every operator, except one that is written to."""

        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.higher_order.cond:
                predicate, if_true, if_false, operands = args
                with self:
                    return (if_true if predicate else if_false)(*operands)
            schema = getattr(func, "_schema", None)
            if schema is None:
                raise NotImplementedError(f"{func} runs its parts out of sight")
            operator, kwargs = func.overloadpacket.__name__, kwargs or {}
            if schema.is_mutable:
                if operator.endswith("_"):  # what is written to stays itself
                    rest, kwargs = self.change(operator.rstrip("_"), tuple(args[1:]), kwargs)
                    args = (args[0], *rest)
                return func(*args, **kwargs)
            args, kwargs = self.change(operator, args, kwargs)
            return self.finish(operator, args, func(*args, **kwargs))

        def change(self, operator: str, args: Any, kwargs: Any) -> Any:
            return args, kwargs

        def finish(self, operator: str, args: Any, result: Any) -> Any:
            return result

    return OperandMode


@functools.cache
def _widen_mode() -> Any:
    from torch.utils import _pytree as pytree

    Base: Any = _operand_mode()  # noqa: N806 - a class

    class WidenMode(Base):  # type: ignore[misc] # untyped in torch
        def change(self, operator: str, args: Any, kwargs: Any) -> Any:
            return pytree.tree_map(_widen, (args, kwargs))

    return WidenMode


@functools.cache
def _jitter_mode() -> Any:
    torch = require("torch", "to measure float noise")
    from torch.utils import _pytree as pytree

    Base: Any = _operand_mode()  # noqa: N806 - a class

    class JitterMode(Base):  # type: ignore[misc] # untyped in torch
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.generator = torch.Generator().manual_seed(seed)

        def change(self, operator: str, args: Any, kwargs: Any) -> Any:
            return args if operator in EXACT_OPERATORS else pytree.tree_map(self.move, args), kwargs

        def finish(self, operator: str, args: Any, result: Any) -> Any:
            if operator in UNIT_OPERATORS:
                return result + self.steps(result)
            if operator in LIBRARY_OPERATORS:
                return result * (1 + 2 * self.steps(result))
            return result + args[0] * self.steps(result) if operator in GATE_OPERATORS else result

        def move(self, value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or value.dtype.itemsize < 2:
                return value
            return value * (1 + self.steps(value))  # as a product: -0.0 and infinities stay what they are

        def steps(self, like: Any) -> Any:
            """Uniform between minus and plus one ulp of 1.0."""
            ulp = torch.finfo(like.dtype).eps
            steps = torch.rand(like.shape, generator=self.generator, dtype=torch.float32)
            return steps.mul_(2 * ulp).sub_(ulp).to(like.device, like.dtype)

    return JitterMode
