"""Packed sequences and LSTMs with a projection, against eager torch."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from exporters import CaptureError, export_model
from exporters.onnx import _strategies, _translate
from interop import InteropError

CELLS = {
    "lstm": nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
    "gru": nn.GRU(3, 4, bias=False),
    "tanh": nn.RNN(3, 4, batch_first=True, bidirectional=True),
    "relu": nn.RNN(3, 4, nonlinearity="relu"),
    "projected": nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True, proj_size=2),
    "projected without biases": nn.LSTM(3, 5, bias=False, proj_size=4),
}


class Reads(nn.Module):
    """Packs, reads, pads again; to the length of the input or of the longest row."""

    def __init__(self, cell, whole, enforce_sorted=False):
        super().__init__()
        self.cell, self.whole, self.enforce_sorted = cell, whole, enforce_sorted

    def forward(self, data, lengths):
        first = self.cell.batch_first
        packed = pack_padded_sequence(data, lengths, first, self.enforce_sorted)
        output, states = self.cell(packed)
        total = data.shape[1 if first else 0] if self.whole else None
        padded, found = pad_packed_sequence(output, first, padding_value=-1.5, total_length=total)
        return padded, states, found


def _inputs(model, batch, time, lengths):
    data = torch.linspace(-3, 3, batch * time * 3).sin().reshape(batch, time, 3)
    return data if model.cell.batch_first else data.transpose(0, 1).contiguous(), torch.tensor(lengths)


def _dims(model):
    first = model.cell.batch_first
    return {"data": {0 if first else 1: "batch", 1 if first else 0: "time"}, "lengths": {0: "batch"}}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("cell", CELLS)
def test_packed_sequence_gives_the_values_of_torch_at_other_lengths(cell, whole):
    model = Reads(CELLS[cell], whole).eval()
    example = _inputs(model, 3, 6, [4, 5, 2])
    exported = export_model(model, "onnx", inputs=example, dynamic_shapes=_dims(model), verify=False)
    for batch, time, lengths in ((3, 6, [4, 5, 2]), (1, 2, [1]), (4, 9, [9, 1, 9, 3])):
        inputs = _inputs(model, batch, time, lengths)
        with torch.no_grad():
            torch.testing.assert_close(exported(*inputs), model(*inputs), rtol=1e-4, atol=1e-6)


def test_sorted_rows_and_first_states_are_taken():
    class Starts(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRU(3, 4, batch_first=True)

        def forward(self, data, lengths, state):
            output, last = self.cell(pack_padded_sequence(data, lengths, True), state)
            doubled = PackedSequence(torch.tanh(output.data * 2), output.batch_sizes)
            return pad_packed_sequence(doubled, True, total_length=data.shape[1])[0], last

    model = Starts().eval()
    inputs = (torch.randn(3, 5, 3), torch.tensor([5, 3, 3]), torch.randn(1, 3, 4))
    exported = export_model(model, "onnx", inputs=inputs, dynamic_shapes=None, verify=False)
    with torch.no_grad():
        torch.testing.assert_close(exported(*inputs), model(*inputs), rtol=1e-4, atol=1e-6)


class Mixes(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(3, 4, batch_first=True)

    def forward(self, data, lengths):
        output, _ = self.cell(pack_padded_sequence(data, lengths, True))
        return output.data.mean(0)


def test_a_mean_over_the_tokens_of_a_packed_sequence_is_refused_with_the_line():
    with pytest.raises(CaptureError, match=r"mean.*test_packed\.py:\d+.*pad_packed_sequence"):
        export_model(Mixes(), "onnx", inputs=(torch.ones(2, 4, 3), torch.tensor([4, 2])), dynamic_shapes=None)


def test_packed_sequences_still_need_the_help(monkeypatch):
    monkeypatch.setattr(_strategies, "packed_sequences", contextlib.nullcontext)
    model = Reads(CELLS["lstm"], True).eval()
    with pytest.raises(InteropError):
        export_model(model, "onnx", inputs=_inputs(model, 2, 4, [4, 2]), dynamic_shapes=None, verify=False)


PROJECTED = [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False, "bidirectional": True}]


@pytest.mark.parametrize("options", PROJECTED)
def test_lstm_with_a_projection_gives_the_values_of_torch(options):
    model = nn.LSTM(3, 5, proj_size=2, **options).eval()
    exported = export_model(
        model, "onnx", inputs=torch.randn(4, 2, 3), dynamic_shapes=({0: "a", 1: "b"},), verify=False
    )
    for shape in ((4, 2, 3), (7, 3, 3), (1, 1, 3)):
        data = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(exported(data), model(data), rtol=1e-4, atol=1e-6)


def test_lstm_with_a_projection_still_needs_the_entry(monkeypatch):
    monkeypatch.setattr(_translate, "decompose", lambda program: program)
    model = nn.LSTM(3, 5, proj_size=2).eval()
    with pytest.raises(InteropError):
        export_model(model, "onnx", inputs=torch.randn(4, 2, 3), dynamic_shapes=None)
