"""The operator table of torch; see ``exporters._graph.operator_table`` for how a lowering is written.

Every lowering is a function at the top level of its module, which the graph calls by name. A ``static`` input arrives as
a list of numbers where it is known while the graph is built, as a host array (see ``exporters.torch._values``) where it
is calculated from shapes, and else as a tensor; ``numbers`` and ``number`` read all three.

``on_host`` registers what an operator does with host arrays: it takes over where all inputs are on the host, or where one
holds strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from exporters._graph.operator_table import Lowering, OperatorTable

__all__ = ["HOST", "TABLE", "Lowering", "lower", "lower_all", "on_host", "on_host_all"]

Function = TypeVar("Function", bound=Callable[..., Any])

TABLE = OperatorTable()

lower = TABLE.lower
lower_all = TABLE.lower_all

HOST: dict[str, Callable[..., Any]] = {}
"""Operator of the default domain -> the function of host arrays, one array out."""


def on_host(operator: str) -> Callable[[Function], Function]:
    """Register the decorated function for host arrays; its attributes are the schema's."""

    def register(function: Function) -> Function:
        on_host_all({operator: function})
        return function

    return register


def on_host_all(family: Mapping[str, Callable[..., Any]]) -> None:
    """Register a regular family, ``{"Add": np.add, ...}``."""
    if twice := set(family) & set(HOST):
        raise ValueError(f"{sorted(twice)} are registered for host arrays twice")
    HOST.update(family)
