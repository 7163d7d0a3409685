"""The first difference of TensorFlow candidates, live and loaded from disk."""

import sys

import pytest
import torch

import interop
from interop.parity.inside import open_inside
from interop.parity.inside_tensorflow import OUTLINE_FILE
from interop.parity.witness import witness_of
from tests.interop.parity.nets import Images, Net, rows, seeded

exporters = pytest.importorskip("exporters")
tf = pytest.importorskip("tensorflow")

SUBJECTS = {"Net": (Net, (8,), "blocks.1.out", "Gemm"), "Images": (Images, (3, 8, 8), "second", "Conv")}


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request, tmp_path_factory):
    """A module, its export with one weight changed, the same on disk, and where the change is."""
    kind, shape, place, operator = SUBJECTS[request.param]
    net = seeded(kind)
    exported = exporters.export_model(net, "tensorflow", inputs=(rows(2, *shape),), verify=False)
    variable = exported.artifact.module.weights[f"{place}.weight"]
    variable.assign(variable * 1.05)
    path = tmp_path_factory.mktemp(request.param) / "saved"
    exported.artifact.write(path)
    return net, {"live": exported, "saved": path}, rows(4, *shape), place, operator


@pytest.mark.parametrize("form", ["live", "saved"])
@pytest.mark.parametrize("alone", [False, True])
def test_changed_weight_is_located_at_its_node(subject, form, alone, monkeypatch):
    if alone:
        monkeypatch.delitem(sys.modules, "exporters")
    net, forms, x, place, operator = subject
    found = interop.check(net, forms[form], inputs=x, witnesses=False).first_difference
    assert (found.operator, found.module) == (operator, place)
    assert len(found.nodes) == 1
    assert found.source
    later = [layer for layer in found.layers if layer.error > 1e-3]
    assert later[0].node == found.node
    assert sum(layer.local > 1e-3 for layer in found.layers) == 1  # the others only hand the error on


def test_what_is_pinned_is_not_given_back_as_computed(subject):
    net, forms, x, *_ = subject
    inside = open_inside(forms["live"], witness_of(forms["live"]))
    (name,) = inside.graph.inputs
    free = inside.run({name: x.numpy()})
    assert not free.errors
    expected = net(x).detach().numpy()
    again = inside.run({name: x.numpy()}, {inside.graph.outputs[0]: expected})
    assert free.values[inside.graph.outputs[0]].shape == expected.shape
    assert (again.values[inside.graph.outputs[0]] == free.values[inside.graph.outputs[0]]).all()


def test_foreign_savedmodel_says_why(tmp_path):
    class Twice(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
        def __call__(self, x):
            return {"output": x * 2.1}

    tf.saved_model.save(Twice(), str(tmp_path / "foreign"), signatures=Twice().__call__)

    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2

    report = interop.check(Net(), tmp_path / "foreign", inputs=rows(4, 8))
    assert not report.passed
    assert "does not say which of its tensors" in report.first_difference.reason


def test_damaged_outline_says_so(subject, tmp_path):
    import shutil

    net, forms, x, *_ = subject
    copied = tmp_path / "copied"
    shutil.copytree(forms["saved"], copied)
    (copied / OUTLINE_FILE).write_bytes(b"\xff\xff\xff")
    report = interop.check(net, copied, inputs=x, witnesses=False)
    assert "damaged" in report.first_difference.reason


def test_outline_has_no_weights_and_no_folders(subject):
    import onnx

    model = onnx.load(subject[1]["saved"] / OUTLINE_FILE)
    assert not model.graph.initializer
    for node in model.graph.node:
        for entry in node.metadata_props:
            if entry.key == "tensor_interop.source":
                assert "/" not in entry.value
