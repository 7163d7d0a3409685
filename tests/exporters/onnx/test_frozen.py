"""Branches and loops of the model's code that follow a dynamic size, and captures that assume something."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from exporters import CaptureError, export_model
from exporters.onnx._frozen import find_untried, noted_places


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def branch(x):
    return x * 2 if x.shape[0] > 2 else x - 1


def one_row(x):
    if x.shape[0] == 1:
        return x * 2
    return x - 1


def odd(x):
    if x.shape[0] % 2:
        return x * 2
    return x - 1


def many(x):
    if x.shape[0] < 60:
        return x * 2
    return x - 1


def very_many(x):
    return x * 2 if x.shape[0] * 8 <= 16000 else x - 1


def loop(x):
    total = torch.zeros_like(x[0])
    for row in range(x.shape[0]):
        total = total * 0.5 + x[row]
    return total


def comprehension(x):
    return torch.stack([row * 2 for row in x])


def cut(x):
    return x[: int(x.shape[0]) // 2]


def split(x):
    return torch.split(x, 2)


def chunk(x):
    return torch.chunk(x, 3)


def square(x):
    if x.shape[0] == x.shape[1]:
        return x.T + 1
    return x * 2


def shrink(x):
    while x.shape[0] > 3:
        x = x[:-1]
    return x


FROZEN = {
    function.__name__: function
    for function in (branch, one_row, odd, many, very_many, loop, comprehension, cut, split, chunk, shrink)
}
"""Each computes something else at another number of rows."""


def _lines(function):
    source, first = inspect.getsourcelines(function)
    return range(first, first + len(source))


def _line_in(text):
    return int(text.split("test_frozen.py:")[1].split()[0].rstrip(",.)"))


@pytest.mark.parametrize("kind", FROZEN)
def test_a_frozen_dim_is_fixed_and_the_line_is_said(kind):
    exported = export_model(Calls(FROZEN[kind]), "onnx", inputs=torch.randn(4, 3), verify=False)
    (record,) = exported.dims
    assert (record.input, record.axis, record.symbol, record.size) == ("x", 0, None, 4)
    assert _line_in(record.reason) in _lines(FROZEN[kind])
    assert exported.signature.inputs[0].shape == (4, 3) and str(record) in exported.notices


@pytest.mark.parametrize("kind", sorted(set(FROZEN) - {"cut"}))
def test_a_frozen_dim_that_was_asked_for_is_an_error_with_the_dim_and_the_line(kind):
    with pytest.raises(CaptureError) as caught:
        export_model(
            Calls(FROZEN[kind]), "onnx", inputs=torch.randn(4, 3), dynamic_shapes={"x": {0: "rows"}}, verify=False
        )
    assert _line_in(str(caught.value)) in _lines(FROZEN[kind])
    assert "rows" in str(caught.value) or "size()[0]" in str(caught.value)


def test_a_size_taken_as_an_int_stays_dynamic_by_the_second_strategy():
    exported = export_model(
        Calls(cut), "onnx", inputs=torch.randn(4, 3), dynamic_shapes={"x": {0: "rows"}}, verify=False
    )
    for rows in (2, 4, 7):
        x = torch.randn(rows, 3)
        assert torch.equal(exported(x), cut(x))


def beyond(x):
    return x * 2 if x.shape[0] < 100_000 else x - 1


def test_a_branch_at_a_size_too_large_to_try_is_said():
    exported = export_model(Calls(beyond), "onnx", inputs=torch.randn(4, 3), verify=False)
    assert exported.signature.inputs[0].shape == ("batch", 3)
    (notice,) = [notice for notice in exported.notices if "not tried" in notice]
    assert _line_in(notice) in _lines(beyond) and "batch < 100000" in notice
    limited = {"x": {0: torch.export.Dim("rows", max=5000)}}
    exported = export_model(Calls(beyond), "onnx", inputs=torch.randn(4, 3), dynamic_shapes=limited, verify=False)
    assert not any("not tried" in notice for notice in exported.notices)


def test_a_run_that_the_weights_make_long_is_not_tried_but_said():
    with noted_places():
        rows = {"x": {0: torch.export.Dim.AUTO}}
        program = torch.export.export(Calls(very_many), (torch.randn(4, 3),), dynamic_shapes=rows)
    heavy = nn.Sequential(Calls(very_many), nn.Linear(1 << 20, 1 << 20, bias=False, device="meta"))
    assert [each.size for each in find_untried(program, heavy, {})] == [2001]
    assert not list(find_untried(program, Calls(very_many), {}))


def harmless_branch(x):
    if x.shape[0] == 1:
        return x[0:1] + x
    return x + x


def harmless_view(x):
    return x.view(x.shape[0] // 2, 2, 3)


def whole(x):
    return x.softmax(0).reshape(-1)


@pytest.mark.parametrize("function", [harmless_branch, whole])
def test_a_branch_that_makes_no_difference_leaves_the_dim_dynamic(function):
    exported = export_model(Calls(function), "onnx", inputs=torch.randn(4, 3))
    assert exported.signature.inputs[0].shape == ("batch", 3)
    for rows in (1, 2, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(exported(x), function(x))


def test_a_size_that_the_model_refuses_itself_is_no_difference():
    exported = export_model(Calls(harmless_view), "onnx", inputs=torch.randn(4, 3), verify=False)
    assert exported.signature.inputs[0].shape == ("batch", 3)
    x = torch.randn(6, 3)
    assert torch.equal(exported(x), harmless_view(x))


def test_a_dim_with_bounds_may_be_dynamic_within_them():
    rows = torch.export.Dim("rows", min=3, max=50)
    for function in (branch, many):
        exported = export_model(
            Calls(function), "onnx", inputs=torch.randn(4, 3), dynamic_shapes={"x": {0: rows}}, verify=False
        )
        x = torch.randn(9, 3)
        assert torch.equal(exported(x), function(x))


def test_only_the_frozen_dim_is_given_up():
    class Two(nn.Module):
        def forward(self, tokens, other):
            return tokens + other if tokens.shape[0] != 1 else tokens - other

        def dynamic_shapes(self):
            return {"tokens": {0: "batch", 1: "time"}, "other": {0: "batch", 1: "time"}}

    exported = export_model(Two(), "onnx", inputs=(torch.ones(3, 4), torch.ones(3, 4)), verify=False)
    assert exported.signature.inputs[0].shape == (3, "time")


def test_a_branch_on_two_dims_is_found():
    with pytest.raises(CaptureError, match=r"test_frozen\.py:\d+"):
        export_model(
            Calls(square), "onnx", inputs=torch.randn(4, 9), dynamic_shapes={"x": {0: "a", 1: "b"}}, verify=False
        )


class Related(nn.Module):
    """Sizes that are related in the example alone: 4 and 5."""

    def forward(self, x, y):
        if x.shape[0] + 1 == y.shape[0]:
            x = x * 1
        if x.shape[0] > 4:
            if y.shape[0] != 5:
                raise ValueError("y has five rows")
            return x - 1
        return x * 2

    def dynamic_shapes(self):
        return {"x": {0: "a"}, "y": {0: "b"}}


def test_a_size_is_also_tried_alone_where_the_capture_took_another_to_follow_it():
    exported = export_model(Related(), "onnx", inputs=(torch.ones(4, 3), torch.ones(5, 3)), verify=False)
    assert exported.signature.inputs[0].shape == (4, 3)
    assert any("takes another path where it is 5" in notice for notice in exported.notices)


def test_the_model_and_the_random_state_are_left_alone():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return one_row(x) + self.calls

    model = Counts()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    export_model(model, "onnx", inputs=torch.ones(4, 3), verify=False)
    assert torch.equal(before, torch.get_rng_state()) and model.calls == 0


class ByValue(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x - 1


BY_VALUE = inspect.getsourcelines(ByValue)[1] + 2


def test_a_branch_on_a_value_is_refused_with_the_line_the_code_and_what_a_draft_would_assume(capfd):
    with pytest.raises(CaptureError) as caught:
        export_model(ByValue(), "onnx", inputs=torch.ones(4, 3))
    text = str(caught.value)
    assert f"test_frozen.py:{BY_VALUE} in `if x.sum() > 0:`" in text
    assert f"assume that Eq(u0, 1) is True at test_frozen.py:{BY_VALUE}" in text
    assert "torch.cond" in text and '"draft": True' in text
    assert capfd.readouterr().err == ""


def test_a_draft_is_taken_where_it_is_asked_for_and_says_what_it_assumes():
    exported = export_model(ByValue(), "onnx", inputs=torch.ones(4, 3), options={"draft": True}, verify=False)
    assert torch.equal(exported(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    assert any(f"test_frozen.py:{BY_VALUE}" in notice and "draft" in notice for notice in exported.notices)


def test_an_argument_that_the_model_makes_itself_only_in_eager_is_asked_for():
    class Masks(nn.Module):
        def forward(self, x, mask=None):
            if mask is None and not torch.compiler.is_compiling():
                mask = torch.ones(x.shape[0])
            return x * mask[:, None]

    with pytest.raises(
        CaptureError, match=r"`return x \* mask\[:, None\]`.*is_compiling.*give the argument that is None"
    ):
        export_model(Masks(), "onnx", inputs=torch.ones(4, 3))
    x = torch.randn(4, 3)
    exported = export_model(Masks(), "onnx", inputs=(x, torch.ones(4)))
    assert torch.equal(exported(x, torch.zeros(4)), x * 0)


def test_the_first_error_is_the_one_that_is_shown():
    class Raises(nn.Module):
        def forward(self, x):
            raise LookupError("no such table")

    with pytest.raises(CaptureError, match="no such table") as caught:
        export_model(Raises(), "onnx", inputs=torch.ones(4, 3))
    assert isinstance(caught.value.__cause__, LookupError)
