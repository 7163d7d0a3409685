"""Example inputs of any size, and what torch.export has to be told about them."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree


def call_arguments(model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    keywords = getattr(model, "example_kwargs", dict)
    return model.example_inputs(), keywords()


def named_shapes(model: nn.Module) -> dict[str, Any]:
    """The model's dynamic_shapes(), or axis 0 of every tensor as the batch."""
    if hasattr(model, "dynamic_shapes"):
        return model.dynamic_shapes()
    return pytree.tree_map(lambda _: {0: "batch"}, by_keyword(model))


def export_dims(shapes: Any) -> Any:
    """The same shapes in torch.export's form: it raises where a dim would become a constant."""
    return pytree.tree_map(lambda _: Dim.DYNAMIC, shapes)


def resized(model: nn.Module, **sizes: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example inputs with the named dims at other sizes; rows are repeated or left out."""
    args, kwargs = call_arguments(model)
    shapes = named_shapes(model)
    names = [*inspect.signature(model.forward).parameters]
    new_args = tuple(_resize(value, shapes[name], sizes) for name, value in zip(names, args))
    return new_args, {name: _resize(value, shapes[name], sizes) for name, value in kwargs.items()}


def _resize(value: Any, shape: Any, sizes: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {key: _resize(item, shape[key], sizes) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_resize(item, part, sizes) for item, part in zip(value, shape))
    for axis, name in shape.items():
        if name in sizes:
            rows = torch.arange(sizes[name]) % value.shape[axis]
            value = value.index_select(axis, rows)
    return value


def by_keyword(model: nn.Module) -> dict[str, Any]:
    """The example inputs by argument name, in the order of the signature."""
    args, kwargs = call_arguments(model)
    return dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)


def dim_names(model: nn.Module) -> set[str]:
    return set(pytree.tree_leaves(named_shapes(model)))


def assert_equal_outputs(actual: Any, expected: Any, **tolerances: float) -> None:
    """Same nesting, dtypes, shapes and values."""
    actual_leaves, actual_spec = pytree.tree_flatten(actual)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert actual_spec == expected_spec
    assert expected_leaves
    for left, right in zip(actual_leaves, expected_leaves, strict=True):
        assert isinstance(right, Tensor)
        assert torch.isfinite(right).all()
        torch.testing.assert_close(left, right, **tolerances)
