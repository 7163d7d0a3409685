"""Nested, keyword and object arguments: bound, checked and located by torch alone."""

import dataclasses
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import interop
from interop.errors import InputError
from interop.parity import locate
from tests.interop.parity.nets import rows, seeded, to_onnx

X, W = rows(2, 4), rows(8).abs() + 1


@dataclasses.dataclass
class Box:
    x: torch.Tensor
    w: torch.Tensor


torch.export.register_dataclass(Box, serialized_type_name="tests.parity.Box")


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

    def core(self, x, w):
        return torch.tanh(self.b(torch.sigmoid(self.a(x)) * w))


class OfDict(Base):
    def forward(self, batch):
        return {"y": self.core(batch["x"], batch["w"])}


class OfNested(Base):
    def forward(self, batch):
        return {"y": [self.core(batch["d"]["x"][0], batch["w"])]}


class OfKeyword(Base):
    def forward(self, x, *, w=None):
        return self.core(x, w)


class OfKeywords(Base):
    def forward(self, x, **rest):
        return self.core(x, rest["w"])


class OfDataclass(Base):
    def forward(self, box):
        return Box(self.core(box.x, box.w), box.w)


CASES = {
    "dict": (OfDict, ({"x": X, "w": W},), {}),
    "nested": (OfNested, ({"d": {"x": [X]}, "w": W},), {}),
    "keyword": (OfKeyword, (X,), {"w": W}),
    "keywords": (OfKeywords, (X,), {"w": W}),
    "dataclass": (OfDataclass, (Box(X, W),), {}),
}


def by_name(kind):
    _, args, kwargs = CASES[kind]
    first = {"keyword": "x", "keywords": "x", "dataclass": "box"}.get(kind, "batch")
    return {first: args[0], **kwargs}


@pytest.fixture(scope="module", params=CASES)
def subject(request, tmp_path_factory):
    """A module, an ONNX file of torch.onnx with a wrong weight, and the arguments by the names of ``forward``."""
    kind, args, kwargs = CASES[request.param]
    net, path = seeded(kind), tmp_path_factory.mktemp(request.param) / "net.onnx"
    keywords = dict(kwargs)
    if isinstance(args[-1], dict) and not kwargs:
        args = (*args, {})
    to_onnx(net, args, path, keywords)
    model = onnx.load(path)
    tensor = next(one for one in model.graph.initializer if one.name == "b.weight")
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.01), tensor.name))
    onnx.save(model, path.with_name("wrong.onnx"))
    return net, path, path.with_name("wrong.onnx"), by_name(request.param), args[: len(CASES[request.param][1])], kwargs


def test_right_file_passes_with_arguments_by_name(subject):
    net, right, _, named, *_ = subject
    interop.check(net, right, inputs=named).raise_for_failure()


def test_wrong_file_is_located_by_torch_alone(subject, monkeypatch):
    monkeypatch.delitem(sys.modules, "exporters", raising=False)
    net, _, wrong, named, args, kwargs = subject
    for given in [named, *([] if kwargs else [args])]:
        found = locate(net, wrong, given)
        assert (found.operator, found.module) == ("Gemm", "b")
        assert interop.check(net, wrong, inputs=given).first_difference.node == found.node


def test_inputs_in_another_order_than_forward_are_bound_by_name(tmp_path):
    class Minus(nn.Module):
        def forward(self, x, y):
            return x - y

    path = to_onnx(Minus(), (X, X * 2), tmp_path / "minus.onnx")
    model = onnx.load(path)
    first, second = list(model.graph.input)
    del model.graph.input[:]
    model.graph.input.extend([second, first])
    onnx.save(model, path)
    assert interop.check(Minus(), path, inputs={"x": X, "y": X * 2}).passed


def test_a_flag_that_was_exported_with_another_value_fails_the_candidate(tmp_path):
    exporters = pytest.importorskip("exporters")

    class Switch(nn.Module):
        def forward(self, x, double=True):
            return x * 2 if double else x

    exporters.export_model(
        Switch(), "onnx", inputs=(X,), kwargs={"double": True}, path=tmp_path / "switch.onnx", verify=False
    )
    assert interop.check(Switch(), tmp_path / "switch.onnx", inputs={"x": X, "double": True}).passed
    report = interop.check(Switch(), tmp_path / "switch.onnx", inputs={"x": X, "double": False})
    assert not report.passed
    assert "does not take these inputs" in report.cases[0].reason


def test_names_that_fit_no_model_are_an_error(tmp_path):
    net = seeded(OfKeyword)
    path = to_onnx(net, (X,), tmp_path / "net.onnx", {"w": W})
    with pytest.raises(InputError, match="missing"):
        interop.check(net, path, inputs={"x": X, "v": W})
