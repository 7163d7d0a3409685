"""``as_strided`` of views: the memory that it reads is that of another value."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch

from exporters import UnsupportedOperatorError, export_model


class Reads(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)


def _added(x):
    y = x * 2
    part = y.t()
    y.add_(1)
    return part.as_strided((3, 2), (1, 3))


def _windows(x):
    """What Longformer does: overlapping windows over rows whose layout came from a transposition."""
    y = x.transpose(0, 1) * 2
    return y.as_strided((y.shape[0] // 2, 2, y.shape[1]), (y.stride(0), *y.stride()))


CASES = {
    "an input": lambda x: x.as_strided((3, 2), (1, 3)),
    "a transposed input": lambda x: x.t().as_strided((3, 2), (1, 3)),
    "a transposed value": lambda x: (x * 2).t().as_strided((3, 2), (1, 3), 1),
    "a slice": lambda x: x[:, 1:].as_strided((3, 2), (1, 3)),
    "before a slice": lambda x: (x * 2)[1:].as_strided((2, 2), (1, 2), 0),
    "a value that lies in another order": lambda x: (x.t() * 2).as_strided((3, 2), (1, 3)),
    "three axes in another order": lambda x: (x[None].permute(2, 0, 1) * 2).as_strided((3, 2), (1, 3)),
    "one of several parts": lambda x: (x * 2).split(2)[1].as_strided((3, 2), (1, 3)),
    "one of several results": lambda x: x.t().max(dim=0, keepdim=True)[0].as_strided((2, 2), (1, 2)),
    "after a change in place": _added,
    "windows": _windows,
}


@pytest.mark.parametrize("case", CASES)
def test_memory_is_read_as_in_eager_torch(case):
    model, x = Reads(CASES[case]), torch.arange(20.0).reshape(4, 5)
    exported = export_model(model, "onnx", inputs=(x,), dynamic_shapes=None)
    assert exported.parity.passed
    torch.testing.assert_close(exported(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize("case", ["a transposed input", "a slice", "a value that lies in another order"])
def test_torch_onnx_alone_still_reads_something_else(case):
    """When this fails, ``exporters/onnx/_storage.py`` can go."""
    model, x = Reads(CASES[case]), torch.arange(20.0).reshape(4, 5)
    program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert not np.array_equal(found, model(x).numpy())


def test_sizes_stay_dynamic():
    model, x = Reads(_windows), torch.arange(40.0).reshape(5, 8)
    exported = export_model(model, "onnx", inputs=(x,), dynamic_shapes={"x": {1: "time"}})
    assert exported.signature.symbols == ("time",)
    for time in (4, 8, 14):
        x = torch.rand(5, time)
        torch.testing.assert_close(exported(x), model(x), rtol=0, atol=0)


def test_a_program_of_the_caller_stays_as_it_is():
    program = torch.export.export(Reads(CASES["a slice"]), (torch.rand(4, 5),))
    before = str(program.graph)
    export_model(program, "onnx")
    assert str(program.graph) == before


def test_a_place_in_memory_that_depends_on_a_size_is_refused():
    model = Reads(lambda x: x[x.shape[0] // 2 :].as_strided((2, 2), (1, 2)))
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.as_strided.*test_storage\.py:\d+.*unfold"):
        export_model(model, "onnx", inputs=(torch.rand(6, 5),), dynamic_shapes={"x": {0: "rows"}})
