"""Which dims are dynamic, which are not, and what is said about it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import interop
from exporters import CaptureError, OptionsError, export_model


class Add(nn.Module):
    def forward(self, x, y):
        return x + y


class Reshapes(nn.Module):
    def forward(self, x):
        return x.reshape(2, -1)


def _shapes(exported):
    return [spec.shape for spec in exported.signature.inputs]


def test_auto_makes_dim_0_of_all_inputs_one_symbol():
    exported = export_model(Add(), "onnx", inputs=(torch.ones(3, 4), torch.ones(3, 4)))
    assert _shapes(exported) == [("batch", 4), ("batch", 4)]
    assert exported.signature.outputs[0].shape == ("batch", 4)
    assert [(record.input, record.axis, record.symbol) for record in exported.dims] == [
        ("x", 0, "batch"),
        ("y", 0, "batch"),
    ]


class TakesMore(nn.Module):
    def forward(self, x, **more):
        return x + more["scale"] * more["factor"]


@pytest.mark.parametrize("dims", ["auto", {"x": {0: "batch"}, "scale": {0: "batch"}}])
def test_an_argument_out_of_the_further_keywords_may_be_dynamic(dims):
    model = TakesMore()
    example = {"x": torch.ones(3, 4), "scale": torch.ones(3, 4), "factor": 2}
    exported = export_model(model, "onnx", inputs=example, dynamic_shapes=dims)
    assert _shapes(exported) == [("batch", 4), ("batch", 4)]
    x, scale = torch.randn(6, 4), torch.randn(6, 4)
    torch.testing.assert_close(exported(x=x, scale=scale, factor=2), x + 2 * scale)
    assert "forward" not in vars(model)


def test_auto_leaves_an_input_without_the_batch_alone():
    exported = export_model(Add(), "onnx", inputs=(torch.ones(3, 4), torch.ones(1, 4)))
    assert _shapes(exported) == [("batch", 4), (1, 4)]


def test_an_example_with_one_row_still_gets_a_dynamic_batch():
    exported = export_model(nn.Linear(4, 2), "onnx", inputs=torch.ones(1, 4))
    assert _shapes(exported) == [("batch", 4)]
    x = torch.randn(5, 4)
    assert exported(x).shape == (5, 2)


def test_a_batch_that_the_model_fixes_is_reported_with_the_reason():
    class Fixed(nn.Module):
        def forward(self, x):
            return x + torch.arange(3.0)[:, None]

    exported = export_model(Fixed(), "onnx", inputs=torch.ones(3, 4))
    assert _shapes(exported) == [(3, 4)]
    record = exported.dims[0]
    assert record.symbol is None and record.size == 3 and record.reason
    assert str(record) in exported.notices


def test_none_is_static():
    exported = export_model(nn.Linear(4, 2), "onnx", inputs=torch.ones(3, 4), dynamic_shapes=None)
    assert _shapes(exported) == [(3, 4)] and exported.dims == ()
    with pytest.raises(interop.InputError, match=r"input"):
        exported(torch.ones(5, 4))


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: "rows", 1: "columns"}, "y": {0: "rows", 1: "columns"}},
        ({0: "rows", 1: "columns"}, {0: "rows", 1: "columns"}),
        {"x": {0: torch.export.Dim("rows"), 1: torch.export.Dim("columns")}, "y": None},
    ],
)
def test_names_and_torch_dims_are_taken(shapes):
    if isinstance(shapes, dict) and shapes["y"] is None:
        rows, columns = shapes["x"].values()
        shapes = {"x": {0: rows, 1: columns}, "y": {0: rows, 1: columns}}
    exported = export_model(Add(), "onnx", inputs=(torch.ones(3, 4), torch.ones(3, 4)), dynamic_shapes=shapes)
    assert _shapes(exported) == [("rows", "columns"), ("rows", "columns")]
    x, y = torch.randn(2, 7), torch.randn(2, 7)
    assert torch.equal(exported(x, y), x + y)


def test_negative_axis_counts_from_the_end():
    exported = export_model(nn.ReLU(), "onnx", inputs=torch.ones(2, 3, 5), dynamic_shapes=({-1: "time"},))
    assert _shapes(exported) == [(2, 3, "time")]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"z": {0: "batch"}}, ["'z'", "'x'"]),
        ({"x": {5: "batch"}}, ["5", "2 dimensions"]),
        (3, ["int"]),
        (({}, {}, {}), ["3 items"]),
    ],
)
def test_a_wrong_specification_is_refused_by_name(shapes, words):
    with pytest.raises(OptionsError) as caught:
        export_model(Add(), "onnx", inputs=(torch.ones(3, 4), torch.ones(3, 4)), dynamic_shapes=shapes)
    assert all(word in str(caught.value) for word in words)


def test_a_dim_that_was_asked_for_and_cannot_be_is_an_error():
    with pytest.raises(CaptureError):
        export_model(
            Reshapes(), "onnx", inputs=torch.ones(2, 3), dynamic_shapes={"x": {0: torch.export.Dim("b", min=7)}}
        )


def test_a_loop_over_a_dynamic_dim_is_not_silently_frozen():
    class Loops(nn.Module):
        def forward(self, x):
            total = torch.zeros_like(x[0])
            for row in range(x.shape[0]):
                total = total + x[row]
            return total

    with torch.no_grad():
        exported = export_model(Loops(), "onnx", inputs=torch.ones(3, 4))
    assert _shapes(exported) == [(3, 4)], "the batch must not be called dynamic"
    assert exported.dims[0].symbol is None


def test_a_branch_on_a_dynamic_dim_is_not_silently_frozen():
    class Branches(nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 2 else x - 1

    try:
        exported = export_model(Branches(), "onnx", inputs=torch.ones(3, 4))
    except (CaptureError, interop.ParityError):
        return
    for rows in (1, 2, 3, 5):
        x = torch.randn(rows, 4)
        if exported.signature.inputs[0].shape[0] != "batch" and rows != exported.signature.inputs[0].shape[0]:
            continue
        torch.testing.assert_close(exported(x), Branches()(x))


def test_recurrent_time_axis_stays_dynamic_and_right():
    for layer in (nn.LSTM(3, 4, batch_first=True, bidirectional=True), nn.GRU(3, 4, num_layers=2, batch_first=True)):
        exported = export_model(layer, "onnx", inputs=torch.randn(2, 5, 3), dynamic_shapes=({0: "batch", 1: "time"},))
        assert _shapes(exported) == [("batch", "time", 3)]
        assert exported.signature.outputs[0].shape[:2] == ("batch", "time")
        x = torch.randn(3, 11, 3)
        torch.testing.assert_close(exported(x)[0], layer(x)[0].detach(), rtol=1e-5, atol=1e-6)
