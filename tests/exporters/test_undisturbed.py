"""The caller's model, inputs and random states are as they were, also when an export fails."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from exporters import CaptureError, export_model


def _network():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


def _snapshot(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_modes_come_back_module_by_module():
    model = _network().train()
    model[2].eval()
    exported = export_model(model, "onnx")
    assert [module.training for module in model] == [True, True, False, True]
    assert any("evaluation mode" in notice for notice in exported.notices)


def test_a_model_in_evaluation_mode_gets_no_notice():
    assert export_model(_network().eval(), "onnx").notices == ()


def test_weights_buffers_and_gradients_are_untouched():
    model = _network().train()
    model(torch.randn(4, 4)).sum().backward()
    before, gradient = _snapshot(model), model[0].weight.grad.clone()
    export_model(model, "onnx")
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, gradient)


def test_random_states_are_untouched():
    model = _network()
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    expected = (random.random(), float(np.random.rand()), float(torch.rand(())))
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    export_model(model, "onnx")
    assert (random.random(), float(np.random.rand()), float(torch.rand(()))) == expected


def test_a_buffer_that_forward_writes_comes_back():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return x + 1

    model = Counter().eval()
    export_model(model, "onnx", inputs=torch.ones(2, 3), verify=False)
    assert float(model.calls) == 0


def test_inputs_that_forward_writes_into_are_untouched():
    class Writes(nn.Module):
        def forward(self, x):
            return x.clone().add_(1) * 2

    x = torch.arange(6.0).reshape(2, 3)
    before = x.clone()
    exported = export_model(Writes(), "onnx", inputs=x)
    exported(x)
    assert torch.equal(x, before) and x.grad is None


def test_modes_come_back_after_a_failure():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            if x.sum() > 0:
                return x
            return -x

    model = Fails().train()
    state = torch.get_rng_state()
    with pytest.raises(CaptureError):
        export_model(model, "onnx", inputs=torch.ones(2, 3))
    assert model.training and model.drop.training
    assert torch.equal(torch.get_rng_state(), state)
