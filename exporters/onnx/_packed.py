"""Packed sequences and projected LSTMs, which torch.export or torch.onnx cannot follow, as operators of our own.

While a model is captured, a packed sequence stays in its padded form, (time, batch, ...), with the lengths beside it: that is
what ONNX's LSTM, GRU and RNN take. Code between packing and padding may treat each token by itself, which is the same in both
forms; anything else (a mean over all tokens) is refused by ``check_packed``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.utils import rnn

from exporters._provenance import user_frame
from exporters.errors import CaptureError

__all__ = ["check_packed", "packed_sequences"]

_CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
Tensor = torch.Tensor


@torch.library.custom_op("tensor_interop_onnx::packed", mutates_args=())
def _packed(padded: Tensor) -> Tensor:
    """Where a padded sequence starts to stand for a packed one."""
    return padded.clone()


@torch.library.custom_op("tensor_interop_onnx::unpacked", mutates_args=())
def _unpacked(padded: Tensor) -> Tensor:
    """Where it is a padded sequence again."""
    return padded.clone()


@torch.library.custom_op("tensor_interop_onnx::packed_rnn", mutates_args=())
def _packed_rnn(
    data: Tensor,
    lengths: Tensor,
    hidden: Tensor,
    cell: Tensor,
    params: list[Tensor],
    kind: str,
    has_biases: bool,
    layers: int,
    bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """A recurrent network over padded (time, batch, features) and lengths; zeros after the end of each row.

    ``cell`` matters to an LSTM only. Gives the output and the final states.
    """
    packed: Any = rnn.pack_padded_sequence(data, lengths.cpu(), enforce_sorted=False)
    order: Any = packed.sorted_indices
    states = [state.index_select(1, order) for state in (hidden, cell)]
    run: Any = getattr(torch, kind)
    given = states if kind == "lstm" else states[0]
    result = run(
        packed.data, packed.batch_sizes, given, params, has_biases, layers, 0.0, False, bidirectional
    )  # dropout 0, no training
    output, _ = rnn.pad_packed_sequence(
        rnn.PackedSequence(result[0], packed.batch_sizes, order, packed.unsorted_indices), total_length=data.shape[0]
    )
    finals = [state.index_select(1, packed.unsorted_indices) for state in result[1:]]
    return output.contiguous(), finals[0], finals[1] if kind == "lstm" else cell.clone()


@torch.library.custom_op("tensor_interop_onnx::projected_lstm", mutates_args=())
def _projected_lstm(
    data: Tensor,
    hidden: Tensor,
    cell: Tensor,
    params: list[Tensor],
    has_biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """``torch.lstm`` with projections among the parameters."""
    output, *finals = torch.lstm(
        data, [hidden, cell], params, has_biases, layers, 0.0, False, bidirectional, batch_first
    )
    return output, finals[0], finals[1]


@_packed.register_fake
@_unpacked.register_fake
def _(padded: Any) -> Any:
    return torch.empty_like(padded)


@_packed_rnn.register_fake
def _(data: Any, lengths: Any, hidden: Any, cell: Any, *rest: Any) -> Any:
    return _shapes(data, hidden, cell, rest[-1])


@_projected_lstm.register_fake
def _(data: Any, hidden: Any, cell: Any, *rest: Any) -> Any:
    return _shapes(data, hidden, cell, rest[-2])


def _shapes(data: Any, hidden: Any, cell: Any, two_ways: bool) -> Any:
    width = hidden.shape[-1] * (2 if two_ways else 1)
    return data.new_empty((*data.shape[:-1], width)), torch.empty_like(hidden), torch.empty_like(cell)


class _Lengths:
    """Stands for ``PackedSequence.batch_sizes`` while a model is captured."""

    def __init__(self, lengths: Tensor, batch: Any, time: Any) -> None:
        self.lengths, self.batch, self.time = lengths, batch, time
        self.device = torch.device("cpu")  # which torch asks of batch sizes

    def __getitem__(self, index: int) -> Any:
        """The first step has every row; how many have the others depends on values."""
        if index != 0:
            raise NotImplementedError("batch_sizes of a packed sequence depend on the values of the lengths")
        return self.batch

    def size(self, axis: int) -> Any:
        return _Longest()


class _Longest:
    """The length of the longest row, which is not known; ``total_length`` is taken to be as long."""

    def __gt__(self, other: Any) -> bool:
        return False


def _pack(padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, _Lengths]:
    steps = padded.transpose(0, 1) if batch_first else padded
    return torch.ops.tensor_interop_onnx.packed(steps), _Lengths(lengths, steps.shape[1], steps.shape[0])


def _pad(data: Tensor, sizes: _Lengths, batch_first: bool, fill: float, total: Any) -> tuple[Tensor, Tensor]:
    padded, lengths = torch.ops.tensor_interop_onnx.unpacked(data), sizes.lengths
    inside = torch.arange(sizes.time, device=data.device)[:, None] < lengths[None]
    padded = torch.where(inside.reshape(*inside.shape, *[1] * (padded.dim() - 2)), padded, fill)
    if isinstance(total, _Longest):
        longest = lengths.max().item()
        check: Any = torch._check
        check(longest >= 0)
        check(longest <= sizes.time)
        padded = padded[:longest]
    else:
        margins = [0, 0] * (padded.dim() - 1) + [0, total - sizes.time]
        padded = nn.functional.pad(padded, margins, value=fill)
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _run(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(data: Any, *rest: Any) -> Any:
        if not isinstance(rest[0], _Lengths):
            return original(data, *rest)
        sizes, hx, params, has_biases, layers, _, training, two_ways = rest
        if training:
            raise NotImplementedError("a packed sequence in training mode")
        hidden, cell = hx if kind == "lstm" else (hx, hx)
        results = torch.ops.tensor_interop_onnx.packed_rnn(
            data, sizes.lengths, hidden, cell, list(params), kind, has_biases, layers, two_ways
        )
        return results if kind == "lstm" else results[:2]

    return call


def _unless_packed(original: Callable[..., Any]) -> Callable[..., Any]:
    """The check of the arguments in torch takes the size of the batch as a number, which would fix it."""

    def check(self: Any, data: Any, hidden: Any, batch_sizes: Any) -> None:
        if not isinstance(batch_sizes, _Lengths):
            original(self, data, hidden, batch_sizes)

    return check


@contextlib.contextmanager
def packed_sequences() -> Iterator[None]:
    """While this is open, ``pack_padded_sequence`` and ``pad_packed_sequence`` keep the padded form."""
    functions: Any = torch._VF
    replaced = {kind: _run(kind, getattr(functions, kind)) for kind in _CELLS}
    replaced |= {"_pack_padded_sequence": _pack, "_pad_packed_sequence": _pad}
    with contextlib.ExitStack() as stack:
        for name, function in replaced.items():
            stack.enter_context(patch.object(functions, name, function, create=True))
        for owner in (nn.RNNBase, nn.LSTM):
            checked = _unless_packed(owner.check_forward_args)
            stack.enter_context(patch.object(owner, "check_forward_args", checked))
        yield


def check_packed(program: torch.export.ExportedProgram) -> None:
    """Refuse code that mixes the tokens of a packed sequence, which is not the same in the padded form.

    Raises:
        CaptureError: it names the operator and the user's line.
    """
    packed: set[torch.fx.Node] = set()
    for node in program.graph.nodes:
        sources = packed.intersection(node.all_input_nodes)
        if _starts(node):
            packed.add(node)
        elif not sources or _ends(node):
            continue
        elif _by_token(node):
            packed.add(node)
        else:
            where = user_frame(node.stack_trace or "")
            raise CaptureError(
                f"{str(node.target).removesuffix('.default')}{f' ({where})' if where else ''} works on the data of a packed "
                "sequence across its tokens, which ONNX cannot express. Call pad_packed_sequence first"
            )


_OURS = torch.ops.tensor_interop_onnx


def _starts(node: torch.fx.Node) -> bool:
    if node.target is _OURS.packed.default:
        return True
    if "getitem" not in str(node.target):
        return False
    source: Any = node.args[0]
    is_rnn = isinstance(source, torch.fx.Node) and source.target is _OURS.packed_rnn.default
    return is_rnn and bool(node.args[1] == 0)


def _ends(node: torch.fx.Node) -> bool:
    return node.target in (_OURS.unpacked.default, _OURS.packed_rnn.default)


_BY_TOKEN = {
    torch.ops.aten.linear.default,
    torch.ops.aten.dropout.default,
    torch.ops.aten.layer_norm.default,
    torch.ops.aten.sym_size.int,
}


def _by_token(node: torch.fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return node.target in _BY_TOKEN or torch.Tag.pointwise in tags
