"""Keep the time axis of LSTM and GRU dynamic while a model is captured and translated.

torch works out the result shapes of these operators by unrolling them over the example's steps, which fixes the number of
steps. Here the shapes are all that matters, and they are known without running anything. Only operators that torch.onnx
translates as a whole may be listed: what it decomposes must be computed step by step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import global_decomposition_table

__all__ = ["dynamic_time"]

_OPERATORS = (
    torch.ops.aten.lstm.input,
    torch.ops.aten.gru.input,
    torch.ops.aten.rnn_tanh.input,
    torch.ops.aten.rnn_relu.input,
)
_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Meta)


def _result_shapes(data: Any, states: Any, *rest: Any) -> tuple[Any, ...]:
    """Empty results for ``(data, states, ..., bidirectional, batch_first)``: the output, then the final states."""
    finals = list(states) if isinstance(states, (list, tuple)) else [states]
    directions = 2 if rest[-2] else 1
    output = data.new_empty((*data.shape[:-1], finals[0].shape[-1] * directions))
    return (output, *(state.new_empty(state.shape) for state in finals))


@contextlib.contextmanager
def dynamic_time() -> Iterator[None]:
    """While this is open, the recurrent operators answer traced tensors with shapes only."""
    decompositions = global_decomposition_table["post_autograd"]
    with contextlib.ExitStack() as stack:
        for operator in _OPERATORS:
            for table, key in (*((operator.py_kernels, key) for key in _KEYS), (decompositions, operator)):
                stack.enter_context(_replaced(table, key))
            operator._dispatch_cache.clear()
            stack.callback(operator._dispatch_cache.clear)
        yield


@contextlib.contextmanager
def _replaced(table: Any, key: Any) -> Iterator[None]:
    original = table.get(key)
    table[key] = _for_traced_tensors(original)
    try:
        yield
    finally:
        if original is None:
            table.pop(key, None)
        else:
            table[key] = original


def _for_traced_tensors(original: Callable[..., Any] | None) -> Callable[..., Any]:
    """Fake, functional and proxy tensors get shapes; a real tensor, a constant of the model, is still computed."""

    def kernel(data: Any, *rest: Any) -> Any:
        if original is None or type(data) not in (torch.Tensor, torch.nn.Parameter):
            return _result_shapes(data, *rest)
        return original(data, *rest)

    return kernel
