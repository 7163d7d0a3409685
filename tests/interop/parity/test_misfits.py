"""A candidate that refuses, raises or crashes is a failed candidate; only what the reference refuses is an error."""

import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import interop
from interop.errors import InputError
from tests.interop.parity.nets import Net, rows, seeded, to_onnx

BATCH = ({0: torch.export.Dim("batch", min=1)},)


@pytest.fixture(scope="module")
def net():
    return seeded(Net)


@pytest.fixture(scope="module")
def right(net, tmp_path_factory):
    return to_onnx(net, (rows(2, 8),), tmp_path_factory.mktemp("right") / "right.onnx", dynamic_shapes=BATCH)


@pytest.fixture(scope="module")
def frozen(net, tmp_path_factory):
    return to_onnx(net, (rows(2, 8),), tmp_path_factory.mktemp("frozen") / "frozen.onnx")


def renamed_input(source, target):
    model = onnx.load(source)
    model.graph.input[0].name = "renamed"
    for node in model.graph.node:
        node.input[:] = ["renamed" if name == "x" else name for name in node.input]
    onnx.save(model, target)
    return target


@pytest.mark.parametrize("form", ["tensor", "named"])
def test_a_batch_that_the_file_was_not_made_for_fails_the_file(net, right, frozen, form):
    x = rows(3, 8)
    report = interop.check(net, frozen, right, inputs={"x": x} if form == "named" else x)
    assert [case.passed for case in report.cases] == [False, True]
    assert "expects 2 at axis 0" in report.cases[0].reason
    assert "signature" in report.first_difference.reason


def test_other_input_names_fail_the_candidate_that_has_them(net, right, tmp_path):
    other = renamed_input(right, tmp_path / "other.onnx")
    report = interop.check(net, right, other, inputs={"x": rows(3, 8)})
    assert [case.passed for case in report.cases] == [True, False]
    assert "renamed" in report.cases[1].reason


def test_positional_inputs_reach_every_candidate_under_its_own_names(net, right, tmp_path):
    other = renamed_input(right, tmp_path / "other.onnx")
    assert interop.check(net, right, other, inputs=(rows(3, 8),)).passed
    assert interop.check(other, right, inputs=(rows(3, 8),)).passed


def test_too_many_inputs_for_one_candidate_fail_it(right):
    class Sum(nn.Module):
        def forward(self, x, y=None):
            return x if y is None else x + y

    report = interop.check(Sum(), right, inputs=(rows(2, 8), rows(2, 8)))
    assert not report.passed
    assert "does not take these inputs" in report.cases[0].reason


def test_a_node_that_refuses_the_batch_is_the_first_difference(net, right, tmp_path):
    model = onnx.load(right)
    name = model.graph.node[-1].output[0]
    model.graph.node[-1].output[0] = "before"
    model.graph.initializer.append(numpy_helper.from_array(torch.tensor([2, 3]).numpy(), "frozen"))
    model.graph.node.append(helper.make_node("Reshape", ["before", "frozen"], [name], "freeze"))
    onnx.save(model, tmp_path / "freeze.onnx")
    report = interop.check(net, tmp_path / "freeze.onnx", inputs=rows(4, 8))
    assert report.first_difference.node == "freeze"


def test_the_second_batch_is_located_with_the_second_batch(net, right, tmp_path):
    """A wrong negative half: the first batch cannot show it, and the search has to use the one that does."""
    model = onnx.load(right)
    model.graph.node.insert(0, helper.make_node("LeakyRelu", ["x"], ["leaky"], "leak", alpha=0.9))
    for node in list(model.graph.node)[1:]:
        node.input[:] = ["leaky" if one == "x" else one for one in node.input]
    onnx.save(model, tmp_path / "leaky.onnx")
    x = rows(4, 8).abs()
    report = interop.check(net, tmp_path / "leaky.onnx", inputs=[(x,), (-x,)])
    assert [case.passed for case in report.cases] == [True, False]
    assert report.first_difference.case == "batch 1"
    assert "leak" in report.first_difference.nodes


def test_what_the_reference_refuses_is_an_error(net, right):
    with pytest.raises(InputError, match="reference fails"):
        interop.check(net, right, inputs={"x": rows(2, 8).double()})


def test_isolated_candidates_by_the_python_call(net, right, frozen):
    report = interop.check(net, right, frozen, inputs=rows(3, 8), isolate=True, timeout=100)
    assert [case.passed for case in report.cases] == [True, False]
    assert "process of its own" in report.first_difference.reason
    assert report.candidates == ("right.onnx", "frozen.onnx")


def test_isolation_wants_files_and_a_timeout_wants_isolation(net, right):
    with pytest.raises(InputError, match="in memory has none"):
        interop.check(net, net, inputs=rows(3, 8), isolate=True)
    with pytest.raises(InputError, match="isolate=True"):
        interop.check(net, right, inputs=rows(3, 8), timeout=5)


def test_outputs_of_other_names_say_why_nothing_is_located(right, tmp_path):
    model = onnx.load(right)
    last = next(node for node in model.graph.node if node.output[0] == model.graph.output[0].name)
    last.output[0] = model.graph.output[0].name = "other"
    onnx.save(model, tmp_path / "other.onnx")
    report = interop.check(right, tmp_path / "other.onnx", inputs=rows(3, 8))
    assert "names differ" in report.cases[0].reason
    assert "no values were compared" in report.first_difference.reason
