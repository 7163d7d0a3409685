"""torch to a SavedModel, and by way of ONNX back to torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import models
from exporters import export_model


def _run(module, model):
    """Outputs, and the gradients of the float inputs."""
    leaves, spec = pytree.tree_flatten(
        (model.example_inputs(), model.example_kwargs() if hasattr(model, "example_kwargs") else {})
    )
    leaves = [leaf.clone().requires_grad_(leaf.is_floating_point()) for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    outputs = pytree.tree_leaves(module(*args, **kwargs))
    sum(x.square().sum() for x in outputs if x.is_floating_point()).backward()
    return outputs, [leaf.grad for leaf in leaves if leaf.is_floating_point()]


@pytest.mark.parametrize("name", ["conv_transpose_autoencoder", "dict_model", "gru_seq", "mlp"])
def test_savedmodel_comes_back_with_parity_and_the_gradients_of_the_inputs(name, tmp_path):
    model = models.load(name)
    export_model(model, "tensorflow", path=tmp_path / "saved", verify=False)
    back = export_model(tmp_path / "saved", "torch")
    assert back.parity.passed
    assert any(isinstance(layer, nn.Linear) for layer in back.artifact.module.modules())
    for expected, found in zip(_run(model, model), _run(back.artifact.module, model), strict=True):
        for want, got in zip(expected, found, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5)


def test_weights_that_come_back_train(tmp_path):
    export_model(models.load("mlp"), "tensorflow", path=tmp_path / "saved", verify=False)
    module = export_model(tmp_path / "saved", "torch", verify=False).artifact.module
    module(torch.ones(2, 16)).square().sum().backward()
    assert len(list(module.parameters())) == 6
    assert all(parameter.grad is not None for parameter in module.parameters())
