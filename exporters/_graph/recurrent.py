"""What the nodes of LSTM, GRU and RNN have in common, in any framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Activation", "Direction", "Layer", "Step"]

Activation = Callable[[Any], Any]
Step = Callable[..., tuple[Any, ...]]
"""``step(projected input [batch, gates * hidden], *states [batch, hidden]) -> states``; the first state is the output."""


@dataclass(frozen=True)
class Layer:
    """What the nodes of all recurrent operators have in common.

    Attributes:
        x: ``[time, batch, input]``, or ``[batch, time, input]`` with ``layout=1``.
        w: ``[directions, gates * hidden, input]``.
        r: ``[directions, gates * hidden, hidden]``.
        b: ``[directions, 2 * gates * hidden]`` or None.
        lengths: ``[batch]`` or None.
        states: initial states ``[directions, batch, hidden]`` (batch first with ``layout=1``), None for zeros.
        direction: forward, reverse or bidirectional.
        layout: 1 where the batch is the first axis.
    """

    x: Any
    w: Any
    r: Any
    b: Any
    lengths: Any
    states: tuple[Any, ...]
    direction: str
    layout: int


@dataclass(frozen=True)
class Direction:
    """The weights of one direction; ``index`` is its place in stacked attributes."""

    index: int
    w: Any
    r: Any
    bias_w: Any
    bias_r: Any
