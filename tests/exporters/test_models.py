"""Every example model, in every target: exported, saved, loaded again, and the same function."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.utils import _pytree as pytree

import interop
import models
from exporters import export_model

FORMATS = ("onnx", "tensorflow")
SUFFIX = {"onnx": ".onnx", "tensorflow": ""}


def _arguments(model):
    return model.example_inputs(), model.example_kwargs() if hasattr(model, "example_kwargs") else {}


@functools.cache
def _exported(name, target, folder):
    return export_model(models.load(name), target, path=folder / f"{name}{SUFFIX[target]}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exported")


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("name", models.available())
def test_model_is_verified_at_the_example_shape_and_at_other_batches(name, target, folder):
    exported = _exported(name, target, folder)
    batches = (
        {next(iter(case.sizes.values())) for case in exported.parity.cases}
        if hasattr(exported.parity.cases[0], "sizes")
        else None
    )
    assert exported.parity.passed
    assert len(exported.parity.cases) >= 2
    assert batches is None or len(batches) >= 2
    assert any(record.symbol for record in exported.dims), "no dynamic dim"


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("name", models.available())
def test_saved_file_answers_like_the_model_with_the_model_s_own_call(name, target, folder):
    model = models.load(name)
    args, kwargs = _arguments(model)
    runtime = interop.load(_exported(name, target, folder).path)
    with torch.no_grad():
        expected, spec = pytree.tree_flatten(model(*args, **kwargs))
    results, result_spec = pytree.tree_flatten(runtime(*args, **kwargs))
    assert result_spec == spec
    for got, want in zip(results, expected):
        assert isinstance(got, torch.Tensor)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", models.available())
def test_all_three_runtimes_agree_at_a_second_batch_size(name, folder):
    model = models.load(name)
    candidates = [interop.load(_exported(name, target, folder).path) for target in FORMATS]
    args, kwargs = _arguments(model)

    def three_rows(leaf):
        return torch.cat([leaf, leaf])[:3] if torch.is_tensor(leaf) else leaf

    wide = pytree.tree_map(three_rows, (args, kwargs))
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*wide[0], **wide[1]))
    for candidate in candidates:
        for got, want in zip(pytree.tree_leaves(candidate(*wide[0], **wide[1])), expected):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
