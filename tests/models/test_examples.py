from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import models
from tests.models._inputs import (
    assert_equal_outputs,
    by_keyword,
    call_arguments,
    dim_names,
    export_dims,
    named_shapes,
    resized,
)

NAMES = models.available()
PACKAGE = Path(models.__file__).parent
OTHER_SIZES = {"batch": 5, "time": 4, "past": 9, "documents": 7, "height": 37, "width": 22}
UNROLLED = ("gru_seq", "lstm_tagger")
BATCH = {0: "batch"}
each_model = pytest.mark.parametrize("name", NAMES)


def test_available_lists_every_model_file():
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert set(NAMES) == files | {"digits"}
    assert list(NAMES) == sorted(NAMES)


def test_load_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"'resnt' \(did you mean 'resnet'\?\).*choose one of .*vit"):
        models.load("resnt")


def test_load_passes_options_to_the_model():
    assert models.load("mlp", classes=7)(torch.zeros(1, 16)).shape == (1, 7)
    with pytest.raises(TypeError, match="colour"):
        models.load("mlp", colour=1)


@each_model
def test_load_is_deterministic_and_leaves_the_random_state_alone(name):
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first = models.load(name)
    args, kwargs = call_arguments(first)
    first(*args, **kwargs)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(8)
    second = models.load(name)
    assert not any(module.training for module in first.modules())
    first_state, second_state = first.state_dict(), second.state_dict()
    assert first_state and first_state.keys() == second_state.keys()
    for key, value in first_state.items():
        assert torch.equal(value, second_state[key]), key
    assert_equal_outputs(call_arguments(second), (args, kwargs), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["detector_head", "dict_model", "gpt", "resnet", "transformer_encoder", "unet", "vit"])
def test_load_gives_normalisation_layers_values(name):
    layers = [
        layer for layer in models.load(name).modules() if isinstance(layer, torch.nn.BatchNorm2d | torch.nn.LayerNorm)
    ]
    assert layers
    for layer in layers:
        assert layer.weight.std() > 0.01
        assert layer.bias.std() > 0.01
        if isinstance(layer, torch.nn.BatchNorm2d):
            assert layer.running_mean.std() > 0.01
            assert layer.running_var.std() > 0.001
            assert layer.running_var.min() > 0


@each_model
def test_model_is_small(name):
    assert 0 < sum(parameter.numel() for parameter in models.load(name).parameters()) < 1_000_000


@each_model
def test_forward_is_deterministic_and_changes_no_input(name):
    model = models.load(name)
    args, kwargs = call_arguments(model)
    with torch.no_grad():
        assert_equal_outputs(model(*args, **kwargs), model(*args, **kwargs), rtol=0, atol=0)
    assert_equal_outputs((args, kwargs), call_arguments(model), rtol=0, atol=0)


@each_model
def test_example_batch_is_two_or_more_everywhere(name):
    args, kwargs = call_arguments(models.load(name))
    sizes = {leaf.shape[0] for leaf in pytree.tree_leaves((args, kwargs))}
    assert len(sizes) == 1
    assert sizes.pop() >= 2


@each_model
def test_forward_treats_each_row_alone(name):
    model = models.load(name)
    with torch.no_grad():
        (args, kwargs), (one_args, one_kwargs) = resized(model, batch=5), resized(model, batch=1)
        whole, alone = model(*args, **kwargs), model(*one_args, **one_kwargs)
    assert all(leaf.shape[0] == 5 for leaf in pytree.tree_leaves(whole))
    assert_equal_outputs(pytree.tree_map(lambda leaf: leaf[:1], whole), alone, rtol=1e-4, atol=1e-5)


@each_model
def test_output_depends_on_every_input(name):
    model = models.load(name)
    leaves, spec = pytree.tree_flatten(call_arguments(model))
    with torch.no_grad():
        expected = _run_flat(model, leaves, spec)
        for index, leaf in enumerate(leaves):
            changed = [leaf.roll(1, dims=-1).flip(0) if at == index else other for at, other in enumerate(leaves)]
            actual = _run_flat(model, changed, spec)
            assert any(not torch.allclose(left, right) for left, right in zip(actual, expected)), f"input {index}"


def _run_flat(model, leaves, spec):
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return pytree.tree_leaves(model(*args, **kwargs))


@each_model
def test_torch_export_keeps_dims_dynamic(name):
    model = models.load(name)
    args, kwargs = call_arguments(model)
    shapes = {"series": BATCH, "tokens": BATCH} if name in UNROLLED else named_shapes(model)
    shapes = {argument: shapes[argument] for argument in by_keyword(model)}
    module = torch.export.export(model, args, kwargs, dynamic_shapes=export_dims(shapes), strict=False).module()
    sizes = {"batch": 5} if name in UNROLLED else OTHER_SIZES
    for change in ({}, {"batch": 1}, sizes):
        args, kwargs = resized(model, **change)
        with torch.no_grad():
            assert_equal_outputs(module(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", UNROLLED)
def test_torch_export_alone_unrolls_a_recurrent_layer(name):
    # a known limit of torch.export: torch.onnx lifts it. When this fails, take the name out of UNROLLED
    model = models.load(name)
    with pytest.raises(torch._dynamo.exc.UserError, match="specialized it to be a constant"):
        torch.export.export(
            model, model.example_inputs(), dynamic_shapes=export_dims(model.dynamic_shapes()), strict=False
        )


def test_every_named_dim_is_tried_at_another_size():
    for name in NAMES:
        assert dim_names(models.load(name)) <= OTHER_SIZES.keys()


@each_model
def test_onnxruntime_agrees_with_eager_torch(name, tmp_path):
    import onnxruntime

    model = models.load(name)
    path = tmp_path / "model.onnx"
    # by keyword, because torch.onnx takes a dict in the last position for the keyword arguments
    torch.onnx.export(model, (), path, kwargs=by_keyword(model), dynamic_shapes=named_shapes(model), dynamo=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for sizes in ({}, {"batch": 1}, OTHER_SIZES):
        args, kwargs = resized(model, **sizes)
        leaves = [leaf.numpy() for leaf in pytree.tree_leaves((args, kwargs))]
        outputs = session.run(None, dict(zip(names, leaves, strict=True)))
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*args, **kwargs))
        for left, right in zip(outputs, expected, strict=True):
            assert left.dtype == right.numpy().dtype
            np.testing.assert_allclose(left, right.numpy(), rtol=1e-4, atol=1e-5)


def test_models_import_torch_only():
    allowed = {"torch", "safetensors", "numpy", "models", *sys.stdlib_module_names}
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > len(NAMES)
    for path in files:
        extra = {"sklearn"} if path.name == "data.py" else set()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {name.split(".")[0] for node in ast.walk(tree) for name in _imported(node)}
        assert found <= allowed | extra, path
        top = {name.split(".")[0] for node in tree.body for name in _imported(node)}
        assert "sklearn" not in top, path


def _imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return [node.module]
    return []


@pytest.mark.parametrize("package", ["interop", "exporters"])
def test_packages_do_not_import_models(package):
    files = sorted((PACKAGE.parent / package).rglob("*.py"))
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = [
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        ]
        assert "models" not in {name.split(".")[0] for name in found}, path
