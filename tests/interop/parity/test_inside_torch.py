"""The first difference of torch candidates: at the operator, at the submodule, or a sentence that says why not."""

import copy

import pytest
import torch
from torch import nn

import interop
from interop.parity import locate
from tests.interop.parity.nets import BranchingNet, InnerTanh, Net, rows, seeded, with_other_weight

LINE = "nets.py:"


@pytest.fixture(scope="module")
def net():
    return seeded(Net)


@pytest.fixture(scope="module")
def other_weight(net):
    return with_other_weight(net, "blocks.1.out.weight")


def exported(net):
    return torch.export.export(net, (rows(2, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))


def saved(net, folder):
    path = folder / "net.pt2"
    torch.export.save(exported(net), path)
    return path


FORMS = {
    "module": lambda net, folder: net,
    "program": lambda net, folder: exported(net),
    "archive": saved,
    "unlifted": lambda net, folder: exported(net).module(),
}


@pytest.mark.parametrize("form", FORMS)
def test_changed_weight_is_located_at_its_operator(net, other_weight, tmp_path, form):
    report = interop.check(net, FORMS[form](other_weight, tmp_path), inputs=rows(4, 8))
    found = report.first_difference
    assert not report.passed
    assert (found.operator, found.module) == ("aten.linear.default", "blocks.1.out")
    assert LINE in found.source or "linear.py" in found.source
    assert len(found.nodes) == 1
    assert str(found) in report.summary


def test_changed_operator_is_located_among_equal_ones(net):
    changed = copy.deepcopy(net)
    changed.blocks[1].__class__ = InnerTanh
    found = locate(net, changed, rows(4, 8))
    assert (found.operator, found.module) == ("aten.gelu.default", "blocks.1")


def test_what_cannot_be_captured_is_compared_by_submodules(net, other_weight):
    branching = seeded(BranchingNet)
    branching.load_state_dict(other_weight.state_dict())
    found = locate(net, branching, rows(4, 8))
    assert (found.node, found.operator, found.module) == ("blocks.1.out", "Linear", "blocks.1.out")
    assert "submodule" in found.note


def test_traced_graph_is_compared_by_submodules(net, other_weight):
    found = locate(net, torch.fx.symbolic_trace(other_weight), rows(4, 8))
    assert found.module == "blocks.1.out"


def test_no_hook_and_no_change_is_left(net, other_weight):
    hooks = torch.nn.modules.module._global_forward_hooks
    before, modes = dict(hooks), [part.training for part in other_weight.modules()]
    branching = seeded(BranchingNet).train()
    locate(net, branching, rows(4, 8))
    assert dict(hooks) == before
    assert [part.training for part in other_weight.modules()] == modes
    assert all(part.training for part in branching.modules())


def test_equal_modules_have_no_difference(net):
    assert locate(net, copy.deepcopy(net), rows(4, 8)) is None


def test_script_says_why_there_is_no_place(net, other_weight):
    report = interop.check(net, torch.jit.trace(other_weight, rows(4, 8)), inputs=rows(4, 8))
    assert report.first_difference.node == ""
    assert "TorchScript" in report.first_difference.reason


def test_a_torch_candidate_of_another_reference_says_why(net, other_weight, tmp_path):
    class Twice(nn.Module):
        def forward(self, x):
            return x + x

    report = interop.check(saved(net, tmp_path), Twice(), inputs=rows(4, 8))
    assert not report.passed
    assert report.first_difference.reason


def test_a_candidate_that_raises_says_where(net):
    class Narrow(Net):
        def forward(self, x):
            return super().forward(x.reshape(2, 8))

    changed = seeded(Narrow)
    report = interop.check(net, torch.fx.symbolic_trace(changed), inputs=rows(4, 8))
    assert "raised" in report.cases[0].reason
    assert report.first_difference.reason
