"""Division that rounds down: torch.onnx takes the floor of the quotient, which the rounding of the quotient can spoil."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["DECOMPOSITIONS"]

aten = torch.ops.aten


def floor_divide(dividend: Any, divisor: Any) -> Any:
    """1.0 // 0.1 is 9, and -1.0 // inf is -1: the quotient is taken of what fmod leaves (Python's own rule)."""
    if not torch.result_type(dividend, divisor).is_floating_point:
        return NotImplemented
    rest = torch.fmod(dividend, divisor)
    quotient = (dividend - rest) / divisor
    quotient = torch.where((rest != 0) & (torch.logical_xor(rest < 0, (divisor < 0))), quotient - 1, quotient)
    down = torch.floor(quotient)
    down = torch.where(quotient - down > 0.5, down + 1, down)
    plain = dividend / divisor
    return torch.where(divisor == 0, plain, down)


def floor_div_mode(dividend: Any, divisor: Any, *, rounding_mode: str | None = None) -> Any:
    """The floor of ``torch.div(rounding_mode="floor")``; the other modes are right as they are."""
    return floor_divide(dividend, divisor) if rounding_mode == "floor" else NotImplemented


def floor_div_scalar(dividend: Any, divisor: float, *, rounding_mode: str | None = None) -> Any:
    """As ``floor_div_mode``, by a number."""
    if rounding_mode != "floor":
        return NotImplemented
    number = torch.full((), divisor, dtype=torch.result_type(dividend, divisor), device=dividend.device)
    return floor_divide(dividend, number)


def _floating(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _floor_mode(node: torch.fx.Node) -> bool:
    return node.kwargs.get("rounding_mode") == "floor" and _floating(node)


DECOMPOSITIONS = {
    aten.floor_divide.default: (floor_divide, _floating),
    aten.div.Scalar_mode: (floor_div_scalar, _floor_mode),
    aten.div.Tensor_mode: (floor_div_mode, _floor_mode),
}
