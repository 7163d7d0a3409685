"""Hold back what torch's exporters say while they work."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.export._trace
import torch.fx.graph_module

__all__ = ["quiet"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hold back the warnings and log lines of torch's exporters; what matters of them is in our own errors and notices."""
    handlers = [handler for name in _NOISY for handler in logging.getLogger(name).handlers]
    levels = [(logger, logger.level) for logger in map(logging.getLogger, _NOISY)]
    try:
        for logger, _ in levels:
            logger.setLevel(logging.CRITICAL)
        for handler in handlers:
            handler.addFilter(_reject)
        with warnings.catch_warnings(), contextlib.ExitStack() as stack:
            warnings.simplefilter("ignore")
            for module in _PRINTING:
                stack.enter_context(patch.object(module, "print", _say_nothing, create=True))
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(_reject)
        for logger, level in levels:
            logger.setLevel(level)


_NOISY = ("torch", "onnxscript", "onnx_ir")
_PRINTING = (torch.export._trace, torch.fx.graph_module)
"""Modules that print graphs and traces to stderr when something fails."""


def _say_nothing(*words: Any, **options: Any) -> None:
    return None


def _reject(record: logging.LogRecord) -> bool:
    return False
