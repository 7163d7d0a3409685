"""The operators that a captured program calls, those in the bodies of its control flow among them."""

from __future__ import annotations

import torch

__all__ = ["calls_of", "graphs_of"]


def graphs_of(module: torch.fx.GraphModule) -> list[torch.fx.GraphModule]:
    """A graph module and those in it."""
    return [inner for inner in module.modules() if isinstance(inner, torch.fx.GraphModule)]


def calls_of(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Every node that calls an operator."""
    return [node for inner in graphs_of(module) for node in inner.graph.nodes if node.op == "call_function"]
