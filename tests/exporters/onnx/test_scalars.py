"""Numbers that a model's code reads out of tensors: constants that no input reaches, and those that depend on values."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from exporters import CaptureError, export_model
from exporters.onnx import _strategies


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("scale", torch.tensor([2.0, 3.0, 4.0]))

    def forward(self, x):
        return self.function(self, x)


def own_mask(model, x):
    mask = torch.ones(x.shape[0], 1)
    if bool((mask < 0).any()):
        return x - 1
    return x * mask


def own_buffer(model, x):
    return x * 2 if model.scale.sum() > 8 else x - 1


def in_view(model, x):
    """Not ``x``, but written over by it."""
    flags = torch.zeros(4, 3)
    flags[1:].view(-1)[:3].copy_(x[0])
    return x * 2 if flags.any() else x - 1


def returned_by_another(model, x):
    found = torch.zeros(3)
    torch.add(x[0], 1, out=found)
    return x * 2 if found[0] > 0 else x - 1


def largest_index(model, x):
    last = torch.arange(x.shape[0]).max()
    return x * 2 if last > 6 else x - 1


def two_at_one_line(model, x):
    for flag in torch.tensor([True, False]):
        x = x * 2 if flag else x - 1
    return x


def half(model, x):
    rows = torch.div(x.shape[0], 2, rounding_mode="trunc")
    return x[: rows * 2].view(rows, 2, 3).sum(1)


def place_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(("function", "text"), [(own_mask, ".any()"), (own_buffer, ".sum()")])
def test_a_branch_on_what_no_input_reaches_is_decided_and_said(function, text):
    model = Calls(function).eval()
    exported = export_model(model, "onnx", inputs=torch.randn(4, 3))
    assert exported.signature.inputs[0].shape == ("batch", 3)
    (notice,) = exported.notices
    assert f"test_scalars.py:{place_of(function, text)}" in notice and "no input reaches it" in notice
    for rows in (1, 6):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(exported(x), model(x))


@pytest.mark.parametrize("function", [in_view, returned_by_another])
def test_a_value_that_an_input_was_written_into_is_no_constant(function):
    with pytest.raises(CaptureError, match=r"test_scalars\.py"):
        export_model(Calls(function).eval(), "onnx", inputs=torch.ones(4, 3), verify=False)


def test_a_value_that_follows_the_size_leaves_the_size_fixed():
    model = Calls(largest_index).eval()
    exported = export_model(model, "onnx", inputs=torch.randn(4, 3))
    assert exported.signature.inputs[0].shape == (4, 3)
    with pytest.raises(CaptureError, match=str(place_of(largest_index, "last > 6"))):
        export_model(model, "onnx", inputs=torch.randn(4, 3), dynamic_shapes={"x": {0: "rows"}}, verify=False)


def test_a_line_that_reads_several_values_is_not_taken_for_one():
    with pytest.raises(CaptureError):
        export_model(Calls(two_at_one_line), "onnx", inputs=torch.randn(4, 3), verify=False)


def test_a_quotient_of_sizes_that_torch_makes_a_tensor_stays_a_size():
    model = Calls(half).eval()
    exported = export_model(model, "onnx", inputs=torch.randn(4, 3))
    assert exported.signature.inputs[0].shape == ("batch", 3)
    for rows in (2, 5, 9):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(exported(x), model(x))


def large(model, x):
    return x - 1 if (x > 100).any() else x * 2


def test_a_draft_is_made_where_torch_has_none(monkeypatch):
    monkeypatch.setattr(_strategies, "_draft", lambda *arguments: None)
    model = Calls(large).eval()
    text = f"`return x - 1 if (x > 100).any() else x * 2` at test_scalars.py:{place_of(large, '.any()')} reads False"
    with pytest.raises(CaptureError) as caught:
        export_model(model, "onnx", inputs=torch.randn(4, 3))
    assert f"A draft would assume that {text}" in str(caught.value)
    exported = export_model(model, "onnx", inputs=torch.randn(4, 3), options={"draft": True})
    assert exported.notices == (f"the capture is a draft, which assumes that {text}",)
    assert exported.signature.inputs[0].shape == ("batch", 3)
    x = torch.randn(6, 3)
    torch.testing.assert_close(exported(x), model(x))
