"""What was measured to fail in the field with torch.onnx: each entry gives eager's value or is refused by name and line.

A key is a public report, or what was measured where there is none.
"""

from __future__ import annotations

import inspect
import re

import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import interop
from exporters import CaptureError, ExportError, export_model
from interop import InteropError
from tests.exporters.onnx.correction_cases import REFUSED, WRONG

INF = float("inf")


class Calls(nn.Module):
    """A function as a model, with layers of its own."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def _ramp(*shape, dtype=torch.float32):
    count = 1
    for size in shape:
        count *= size
    return torch.linspace(-2, 2, count).sin().reshape(shape).to(dtype)


SQUARE = torch.eye(3) * 2 + 0.1

VALUES = {
    "pytorch#105349 divisor_override": (
        lambda self, x: functional.avg_pool2d(x, 3, 2, 1, divisor_override=3),
        [_ramp(2, 3, 7, 5)],
    ),
    "pytorch#61034 index_put accumulates": (
        lambda self, x: x.index_put((torch.tensor([0, 0, 2]),), torch.ones(3, 4), accumulate=True),
        [_ramp(3, 4)],
    ),
    "pytorch#111159 index_add with repeated indices": (
        lambda self, x: x.index_add(0, torch.tensor([0, 0, 2]), torch.ones(3, 4)),
        [_ramp(3, 4)],
    ),
    "pytorch#78442 integer // rounds down": (lambda self, x: (x // 3, x % 3), [torch.tensor([-7, -1, 0, 5, 9])]),
    "onnxscript#2479 a bool mask with an empty row": (
        lambda self, q, keep: functional.scaled_dot_product_attention(q, q, q, keep),
        [_ramp(2, 2, 3, 4), torch.tensor([[True, False, True], [False] * 3, [True] * 3])],
    ),
    "pytorch#103963 a float mask with an empty row": (
        lambda self, q, bias: functional.scaled_dot_product_attention(q, q, q, bias),
        [_ramp(2, 2, 3, 4), torch.tensor([[0.0, -INF, 0], [-INF] * 3, [0, 0, 1]])],
    ),
    "pytorch#42653 adaptive pooling to a size that is no factor": (
        lambda self, x: functional.adaptive_avg_pool2d(x, (2, 3)),
        [_ramp(2, 3, 5, 7)],
    ),
    "pytorch#118740 a GRU of two layers and ways": (
        lambda self, x: self.layer(x),
        [_ramp(4, 5, 3)],
        {"layer": nn.GRU(3, 4, 2, bidirectional=True)},
    ),
    "LSTM with proj_size": (lambda self, x: self.layer(x), [_ramp(4, 5, 3)], {"layer": nn.LSTM(3, 5, proj_size=2)}),
    "RNN with relu": (lambda self, x: self.layer(x), [_ramp(4, 5, 3)], {"layer": nn.RNN(3, 5, nonlinearity="relu")}),
    "an LSTM cell": (lambda self, x: self.layer(x), [_ramp(4, 3)], {"layer": nn.LSTMCell(3, 5)}),
    "attention of three dims": (lambda self, q: functional.scaled_dot_product_attention(q, q, q), [_ramp(2, 3, 4)]),
    "topk gives both results by name": (lambda self, x: torch.topk(x, 2), [torch.tensor([[1.0, 3, 2], [5, 4, 6]])]),
    "split, chunk and tensor_split of a fixed dim": (
        lambda self, x: (torch.split(x, 2, 1), torch.chunk(x, 3, 1), torch.tensor_split(x, 4, 1)),
        [_ramp(2, 7)],
    ),
    "onnxruntime#20674 Clip of int64": (lambda self, x: (x.clamp(min=-1), x.clamp(max=2)), [torch.tensor([-7, 0, 5])]),
    "bool Where": (lambda self, x: torch.where(x, x[0], ~x), [torch.tensor([[True, False], [False, False]])]),
    "bool Add": (lambda self, x: x + x[0], [torch.tensor([[True, False], [False, False]])]),
    "int16 MatMul": (lambda self, x: x @ x, [torch.tensor([[300, -7], [5, 9]], dtype=torch.int16)]),
    "float64 Resize": (
        lambda self, x: functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
        [_ramp(1, 2, 4, 5, dtype=torch.float64)],
    ),
    "complex numbers inside": (lambda self, x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=8), [_ramp(3, 8)]),
    "masked_select and nonzero": (lambda self, x: (torch.masked_select(x, x > 0), torch.nonzero(x > 0)), [_ramp(3, 4)]),
    "pytorch#167848 a constant and an input": (lambda self, x: (torch.ones(2), x), [_ramp(3, 4)]),
    "pytorch PR#64190 one tensor three times": (lambda self, x: [x + 1] * 3, [_ramp(3, 4)]),
}
"""Key -> the function, its inputs, and its layers. The result is that of eager torch."""

MEASURED = (
    "log_sigmoid.default",
    "atan2.default",
    "scatter_reduce.two",
    "max.dim",
    "argmax.default",
    "sign.default",
    "cumprod.default",
    "cummax.default",
    "median.dim",
    "median.default",
    "kthvalue.default",
    "mode.default",
    "sort.stable",
    "_cdist_forward.default",
    "searchsorted.Tensor",
    "erfinv.default",
    "fmax.default",
    "fmin.default",
    "copysign.Tensor",
    "hypot.default",
    "index_reduce.default",
    "masked_select.default",
    "scaled_dot_product_attention.default",
)
"""The entries that ``correction_cases.py`` holds, each compared with torch in ``test_corrections.py``."""


@pytest.mark.parametrize("key", VALUES)
def test_entry_gives_the_value_of_torch(key):
    function, inputs, *layers = VALUES[key]
    torch.manual_seed(0)
    model = Calls(function, **(layers[0] if layers else {})).eval()
    exported = export_model(model, "onnx", inputs=tuple(inputs), dynamic_shapes=None, verify=False)
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*inputs))
    results = pytree.tree_leaves(exported(*inputs))
    assert len(results) == len(expected)
    for result, want in zip(results, expected):
        torch.testing.assert_close(result, want, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_measured_operators_have_their_cases():
    assert set(MEASURED) <= set(WRONG | REFUSED)


REFUSALS = {
    "inverse": (lambda self, x: torch.linalg.inv(x), [SQUARE], "linalg_inv"),
    "solve": (lambda self, x: torch.linalg.solve(x, x), [SQUARE], "linalg_solve"),
    "cholesky": (lambda self, x: torch.linalg.cholesky(x), [SQUARE], "linalg_cholesky"),
    "qr": (lambda self, x: torch.linalg.qr(x)[0], [SQUARE], "linalg_qr"),
    "svd": (lambda self, x: torch.linalg.svdvals(x), [SQUARE], "linalg_svd"),
    "logdet": (lambda self, x: torch.linalg.slogdet(x)[1], [SQUARE], "linalg_slogdet"),
    "bfloat16 Linear": (
        lambda self, x: self.layer(x),
        [_ramp(2, 3, dtype=torch.bfloat16)],
        "Gemm.*bfloat16",
        {"layer": nn.Linear(3, 4, dtype=torch.bfloat16)},
    ),
    "bfloat16 Conv": (
        lambda self, x: self.layer(x),
        [_ramp(2, 3, 5, 5, dtype=torch.bfloat16)],
        "Conv.*bfloat16",
        {"layer": nn.Conv2d(3, 4, 3, dtype=torch.bfloat16)},
    ),
    "a complex result": (lambda self, x: torch.fft.rfft(x), [_ramp(3, 8)], "fft_rfft.*complex"),
    "ties of topk": (lambda self, x: torch.topk(x, 2), [torch.tensor([1.0, 1, 1, 0])], "TopK.*indices|indices.*TopK"),
    "pytorch#112512 a Python branch on a value": (
        lambda self, x: x * 2 if x.sum() > 0 else x,
        [_ramp(3, 4)],
        "x.sum\\(\\) > 0",
    ),
}
"""Key -> the function, its inputs, what the message says of the operator, and layers."""


@pytest.mark.parametrize("key", REFUSALS)
def test_entry_is_refused_with_the_operator_and_the_line(key):
    function, inputs, operator, *layers = REFUSALS[key]
    model = Calls(function, **(layers[0] if layers else {})).eval()
    with pytest.raises(InteropError) as caught:
        export_model(model, "onnx", inputs=tuple(inputs), dynamic_shapes=None)
    text = str(caught.value)
    assert re.search(operator, text, re.DOTALL), text
    lines = [inspect.getsourcelines(function)[1], inspect.getsourcelines(Calls.forward)[1] + 1]
    found = {int(line) for line in re.findall(r"test_field\.py:(\d+)", text)}
    assert any(first <= line <= first + 3 for line in found for first in lines), text


def test_a_complex_input_is_refused_by_name():
    model = Calls(lambda self, signal: torch.view_as_real(signal))
    with pytest.raises(ExportError, match=r"inputs_0.*complex.*view_as_real"):
        export_model(model, "onnx", inputs=(torch.ones(2, 3, dtype=torch.complex64),), dynamic_shapes=None)


def test_sequences_of_other_lengths_pass_through_two_ways_and_layers():
    """onnxscript#2674: with a dynamic time the GRU failed."""
    model = nn.GRU(3, 4, 2, bidirectional=True, batch_first=True).eval()
    exported = export_model(model, "onnx", inputs=_ramp(2, 5, 3), dynamic_shapes=({0: "batch", 1: "time"},))
    with torch.no_grad():
        torch.testing.assert_close(exported(_ramp(3, 9, 3)), model(_ramp(3, 9, 3)), rtol=1e-5, atol=1e-6)


def test_an_unused_argument_stays_an_input():
    """pytorch#104949."""
    model = Calls(lambda self, used, unused: used * 2)
    exported = export_model(model, "onnx", inputs=(_ramp(2, 3), _ramp(4)), dynamic_shapes=None)
    assert len(exported.signature.inputs) == 2
    assert torch.equal(exported(_ramp(2, 3), _ramp(4)), _ramp(2, 3) * 2)


def test_labels_of_a_dict_are_not_swapped():
    """pytorch#165758."""
    model = Calls(lambda self, x: {"zeros": torch.zeros_like(x), "ones": torch.ones_like(x)})
    exported = export_model(model, "onnx", inputs=_ramp(2, 3))
    result = exported(_ramp(2, 3))
    assert bool((result["zeros"] == 0).all()) and bool((result["ones"] == 1).all())
    assert exported.signature.output_names == ("zeros", "ones")


def test_a_tied_weight_is_stored_once(tmp_path):
    """pytorch#108342."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 16)
            self.head = nn.Linear(16, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    exported = export_model(Tied(), "onnx", inputs=torch.tensor([[1, 2, 3], [4, 5, 6]]))
    stored = onnx.load(exported.save(tmp_path / "tied.onnx")).graph.initializer
    assert sum(len(each.raw_data) for each in stored if len(each.dims) == 2) == 50 * 16 * 4


def test_a_small_model_is_one_file_that_can_be_moved(tmp_path):
    """pytorch#126479."""
    path = export_model(nn.Linear(3, 2), "onnx", inputs=_ramp(2, 3)).save(tmp_path / "small.onnx")
    (tmp_path / "elsewhere").mkdir()
    moved = path.rename(tmp_path / "elsewhere" / "moved.onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["elsewhere"]
    assert interop.load(moved)(_ramp(2, 3)).shape == (2, 2)


def test_an_opset_is_honoured_or_refused(tmp_path):
    """onnx#6811."""
    model = nn.LayerNorm(4)
    with pytest.raises(ExportError, match=r"13.*18|18.*13"):
        export_model(model, "onnx", inputs=_ramp(2, 4), options={"opset": 13})
    exported = export_model(model, "onnx", inputs=_ramp(2, 4), options={"opset": 20})
    opsets = {each.domain: each.version for each in onnx.load(exported.save(tmp_path / "m.onnx")).opset_import}
    assert opsets[""] == 20


def test_a_loop_over_a_dynamic_dim_is_no_silent_freeze():
    """pytorch#29647."""

    def summed(self, x):
        total = x[0]
        for row in range(1, x.shape[0]):
            total = total * 0.5 + x[row]
        return total

    with pytest.raises(CaptureError, match=r"test_field\.py:\d+"):
        export_model(Calls(summed), "onnx", inputs=(_ramp(3, 4),), dynamic_shapes={"inputs": ({0: "rows"},)})
