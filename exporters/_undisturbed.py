"""Leave the caller's model, tensors and random state as they were."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from interop.extras import loaded

__all__ = ["evaluation_mode", "kept_buffers", "kept_random_state", "private_copy"]


@contextlib.contextmanager
def evaluation_mode(model: Any) -> Iterator[bool]:
    """Put a torch module in evaluation mode, and each of its parts back in its own mode afterwards.

    Yields:
        Whether anything had to change.
    """
    torch = loaded("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        yield False
        return
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield any(mode for _, mode in modes)
    finally:
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def kept_buffers(model: Any) -> Iterator[None]:
    """Undo what running the model does to its buffers (caches, counters)."""
    torch = loaded("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        yield
        return
    saved = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if not buffer.is_meta]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in saved:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


@contextlib.contextmanager
def kept_random_state() -> Iterator[None]:
    """Put the random states of Python, NumPy and torch (all devices in use) back afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    torch = loaded("torch")
    try:
        with torch.random.fork_rng() if torch is not None else contextlib.nullcontext():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def private_copy(value: Any) -> Any:
    """A nested value with its tensors copied; containers and objects keep their types."""
    torch = loaded("torch")
    if torch is None:
        return value

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad and leaf.is_floating_point())

    return torch.utils._pytree.tree_map(copied, value)
