"""Pooling: an own divisor, and adaptive pooling of sizes that are not known.

Nothing here compares sizes: a comparison would fix a dynamic size to the side that the example is on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["DECOMPOSITIONS"]

aten = torch.ops.aten

_smaller: Callable[[Any, Any], Any] = torch.sym_min  # no comparison that torch.export would keep as a condition


def avg_pool(
    data: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """torch.onnx drops ``divisor_override``. Over explicit zeros each mean is of a whole window, and can be scaled."""
    if divisor_override is None:
        return NotImplemented
    kernel = list(kernel_size)
    steps, margins = list(stride or kernel), [*padding] * (len(kernel) if len(padding) == 1 else 1)
    beyond = [step - 1 if ceil_mode else 0 for step in steps]
    pads = [side for margin, more in zip(margins, beyond) for side in (margin + more, margin)]
    pool = aten.avg_pool2d.default if len(kernel) == 2 else aten.avg_pool3d.default
    means = pool(torch.constant_pad_nd(data, pads[::-1]), kernel, steps)
    if ceil_mode:
        means = _without_late_windows(data, means, steps, margins)
    return means * (math.prod(kernel) / divisor_override)


def _without_late_windows(data: Any, means: Any, steps: Sequence[int], margins: Sequence[int]) -> Any:
    """Leave out the windows that would start in the padding on the right, as torch does."""
    first = data.dim() - len(steps)
    for dim, (step, margin) in enumerate(zip(steps, margins), start=first):
        count = _smaller(means.shape[dim], (data.shape[dim] + margin + step - 1) // step)
        means = torch.index_select(means, dim, torch.arange(count, device=data.device))
    return means


def adaptive_avg_pool(data: Any, output_size: Sequence[int]) -> Any:
    """Torch's own decomposition fixes the sizes to the example's, and the result has another shape for others.

    Each output cell o of m is the mean of the cells from floor(o * n / m) to ceil((o + 1) * n / m), one dim after another.
    """
    first = data.dim() - len(output_size)
    for dim, size in enumerate(output_size, start=first):
        places, inside = _windows(data, dim, size)
        cells = _cells(data, dim, places)
        rank = data.dim()
        total = torch.where(_beside(inside, dim, rank), cells, 0).sum(dim + 1)
        data = total / _beside(inside.sum(1, keepdim=True), dim, rank).squeeze(dim + 1).to(data.dtype)
    return data


def adaptive_max_pool(data: Any, output_size: Sequence[int]) -> tuple[Any, Any]:
    """Not exported by torch.onnx. The largest cell of each window, one dim after another, and its index in the plane."""
    first = data.dim() - len(output_size)
    plane = data.shape[first:]
    total = math.prod(plane)
    indices = torch.arange(total, device=data.device).view(plane).expand(data.shape)
    for dim in reversed(range(first, data.dim())):
        places, _ = _windows(data, dim, output_size[dim - first])
        data, chosen = _cells(data, dim, places).max(dim + 1)
        indices = torch.gather(_cells(indices, dim, places), dim + 1, chosen.unsqueeze(dim + 1)).squeeze(dim + 1)
    return data, indices


def _windows(data: Any, dim: int, size: int) -> tuple[Any, Any]:
    """The cells of each window as an index of shape (size, longest), and which are inside; the first fills up the rest."""
    length = data.shape[dim]
    steps = torch.arange(size, device=data.device)
    start = (steps * length) // size
    end = ((steps + 1) * length + (size - 1)) // size
    places = start[:, None] + torch.arange(length // size + 2, device=data.device)[None]
    inside = places < end[:, None]
    return torch.where(inside, places, start[:, None]), inside


def _cells(data: Any, dim: int, places: Any) -> Any:
    """The cells of each window in a new dim behind ``dim``."""
    picked = torch.index_select(data, dim, places.flatten())
    return picked.view([*data.shape[:dim], *places.shape, *data.shape[dim + 1 :]])


def _beside(values: Any, dim: int, rank: int) -> Any:
    """(size, longest) with ones around, to meet the result of ``_cells``."""
    return values.view([1] * dim + list(values.shape) + [1] * (rank - dim - 1))


def _has_divisor(node: torch.fx.Node) -> bool:
    return (node.args[6] if len(node.args) > 6 else node.kwargs.get("divisor_override")) is not None


def _arguments(node: torch.fx.Node) -> tuple[Any, Any]:
    """The pooled tensor, as its fake, and the output size."""
    data: Any = node.args[0]
    return data.meta["val"], node.args[1]


def _unknown_size(node: torch.fx.Node) -> bool:
    """A dynamic size that is pooled to more than one cell."""
    data, output_size = _arguments(node)
    pooled = zip(data.shape[data.dim() - len(output_size) :], output_size)
    return any(isinstance(size, torch.SymInt) and wanted != 1 for size, wanted in pooled)


def _several_cells(node: torch.fx.Node) -> bool:
    """torch.onnx knows the three dimensional pooling to one cell only."""
    return any(wanted != 1 for wanted in _arguments(node)[1])


def _any_window(node: torch.fx.Node) -> bool:
    return True


DECOMPOSITIONS = {
    aten.avg_pool2d.default: (avg_pool, _has_divisor),
    aten.avg_pool3d.default: (avg_pool, _has_divisor),
    aten.adaptive_avg_pool1d.default: (adaptive_avg_pool, _unknown_size),
    aten.adaptive_avg_pool2d.default: (adaptive_avg_pool, _unknown_size),
    aten.adaptive_avg_pool3d.default: (adaptive_avg_pool, _several_cells),
    aten._adaptive_avg_pool3d.default: (adaptive_avg_pool, _several_cells),
    aten.adaptive_max_pool1d.default: (adaptive_max_pool, _any_window),
    aten.adaptive_max_pool2d.default: (adaptive_max_pool, _any_window),
    aten.adaptive_max_pool3d.default: (adaptive_max_pool, _any_window),
}
