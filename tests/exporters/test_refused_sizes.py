"""Sizes that the original model itself refuses are left out of the comparison, and said."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from exporters import export_model
from interop.errors import InputError, ParityError


class AtLeastTwo(nn.Module):
    def forward(self, x):
        if x.shape[0] < 2:
            raise ValueError("one row has no spread")
        return x - x.mean(0)


class OwnStatistics(nn.Module):
    """A batch norm that keeps no running statistics takes the batch's own in evaluation mode too."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x):
        return self.norm(x)


@pytest.mark.parametrize(
    ("model", "word"), [(AtLeastTwo(), "one row has no spread"), (OwnStatistics(), "more than 1 value")]
)
@pytest.mark.parametrize("rows", [2, 4])
def test_a_batch_of_one_that_the_model_refuses_is_left_out_and_said(model, word, rows):
    exported = export_model(model, "onnx", inputs=torch.randn(rows, 3))
    assert exported.parity.passed and len(exported.parity.cases) == 2
    assert word in exported.parity.skipped["batch=1"]
    assert any("batch=1" in notice and word in notice for notice in exported.notices)
    x = torch.randn(5, 3)
    torch.testing.assert_close(exported(x), model.eval()(x))


class NoMore(nn.Module):
    """Takes both longer only one at a time."""

    def forward(self, x):
        if x.shape[0] + x.shape[1] > 8:
            raise ValueError("too large")
        return x * 2


def test_where_all_dims_larger_is_refused_each_is_tried_alone():
    dims = {"x": {0: "rows", 1: "columns"}}
    exported = export_model(NoMore(), "onnx", inputs=torch.randn(4, 3), dynamic_shapes=dims)
    assert set(exported.parity.skipped) == {"rows=5, columns=4"}
    assert len(exported.parity.cases) == 4  # the example, one row, one row more, one column more


class Wrong(nn.Module):
    """Another function at another batch, and none at a batch of one."""

    def forward(self, x):
        if x.shape[0] < 2:
            raise ValueError("one row has no spread")
        return torch.ops.test_refused_sizes.by_size(x)


@torch.library.custom_op("test_refused_sizes::by_size", mutates_args=())
def by_size(x: torch.Tensor) -> torch.Tensor:
    return x * x.shape[0]


@by_size.register_fake
def _(x):
    return torch.empty_like(x)


def test_a_difference_at_a_size_that_the_model_takes_is_still_an_error(monkeypatch):
    from exporters.onnx import _translate

    def four_times(x):
        from onnxscript import opset20 as op

        return op.Mul(x, op.Constant(value_float=4.0))

    table = {**_translate.TRANSLATIONS, torch.ops.test_refused_sizes.by_size.default: four_times}
    monkeypatch.setattr(_translate, "TRANSLATIONS", table)
    with pytest.raises(ParityError, match="batch"):
        export_model(Wrong(), "onnx", inputs=torch.randn(4, 3))


def test_an_example_that_the_model_refuses_is_an_error():
    program = torch.export.export(AtLeastTwo(), (torch.randn(4, 3),))
    with pytest.raises(InputError, match="reference fails"):
        export_model(program, "onnx", inputs=torch.randn(3, 3))
