"""The ``nn`` module of a node, where there is one that computes the same and holds its weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import onnx_ir as ir
import torch
from torch import nn

__all__ = ["MODULES", "Built", "build_module"]


@dataclass(frozen=True)
class Built:
    """A module that still lacks its weights.

    Attributes:
        module: the module; its weights are on the meta device.
        weights: name of a weight in the module -> position of the node's input that it is.
        arguments: positions of the inputs that the module is called with.
        prepare: makes the module's arguments from those inputs.
        finish: makes the node's outputs from what the module gives; with ``prepare`` only.
        options: keyword arguments of both.
    """

    module: nn.Module
    weights: Mapping[str, int]
    arguments: tuple[int, ...] = (0,)
    prepare: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


Builder = Callable[..., Built | None]
Function = TypeVar("Function", bound=Builder)

MODULES: dict[str, Builder] = {}
"""Operator -> ``build(constants, rank, **attributes)``: the inputs that are known (None for others), the rank of input 0."""


def build_module(
    node: ir.Node, constants: Sequence[torch.Tensor | None], attributes: Mapping[str, Any]
) -> Built | None:
    """The module of a node; None where only a function computes the same."""
    build = MODULES.get(node.op_type)
    if build is None or (len(node.outputs) > 1 and node.op_type != "Recurrent"):
        return None
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    known = inspect.signature(build).parameters
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    given = {name: value for name, value in attributes.items() if takes_all or name in known}
    return build(list(constants), None if shape is None else len(shape), **given)


def _module(operator: str) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        MODULES[operator] = function
        return function

    return register


def _optional(constants: Sequence[Any], position: int) -> Any:
    return constants[position] if position < len(constants) else None


_CONVS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def _symmetric(pads: Sequence[int] | None, rank: int) -> list[int] | None:
    """One padding an axis, where both ends have the same."""
    if not pads:
        return [0] * rank
    begins, ends = list(pads[:rank]), list(pads[rank:])
    return begins if begins == ends and min(begins) >= 0 else None


@_module("Conv")
def conv(constants: Any, rank: Any, *, auto_pad="NOTSET", dilations=None, group=1, pads=None, strides=None):  # type: ignore[no-untyped-def]  # ONNX attributes
    weight, bias = constants[1], _optional(constants, 2)
    if weight is None or weight.ndim - 2 not in _CONVS or (len(constants) > 2 and bias is None):
        return None
    spatial = weight.ndim - 2
    padding = _symmetric(None if auto_pad == "VALID" else pads, spatial)
    if auto_pad not in ("NOTSET", "VALID") or padding is None:
        return None
    ones = [1] * spatial
    module = _CONVS[spatial](
        weight.shape[1] * group, weight.shape[0], tuple(weight.shape[2:]), tuple(strides or ones), tuple(padding),
        tuple(dilations or ones), group, bias is not None, device="meta",
    )  # fmt: skip
    return Built(module, {"weight": 1} | ({} if bias is None else {"bias": 2}))


@_module("ConvTranspose")
def conv_transpose(  # type: ignore[no-untyped-def]  # ONNX attributes
    constants: Any, rank: Any, *, auto_pad="NOTSET", dilations=None, group=1, output_padding=None, output_shape=None,
    pads=None, strides=None,
):  # fmt: skip
    weight, bias = constants[1], _optional(constants, 2)
    if weight is None or weight.ndim - 2 not in _TRANSPOSED or (len(constants) > 2 and bias is None):
        return None
    spatial = weight.ndim - 2
    ones, padding = [1] * spatial, _symmetric(None if auto_pad == "VALID" else pads, spatial)
    strides, dilations, extra = strides or ones, dilations or ones, output_padding or [0] * spatial
    fits = all(more < max(s, d) for more, s, d in zip(extra, strides, dilations))
    if auto_pad not in ("NOTSET", "VALID") or output_shape or padding is None or not fits:
        return None
    module = _TRANSPOSED[spatial](
        weight.shape[0], weight.shape[1] * group, tuple(weight.shape[2:]), tuple(strides), tuple(padding), tuple(extra),
        group, bias is not None, tuple(dilations), device="meta",
    )  # fmt: skip
    return Built(module, {"weight": 1} | ({} if bias is None else {"bias": 2}))


@_module("Gemm")
def gemm(constants: Any, rank: Any, *, alpha=1.0, beta=1.0, transA=0, transB=0):  # type: ignore[no-untyped-def]  # noqa: N803  # ONNX attributes
    weight, bias = constants[1], _optional(constants, 2)
    if weight is None or not transB or transA or alpha != 1 or beta != 1 or (len(constants) > 2 and bias is None):
        return None
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        return None
    return _linear(weight, bias)


@_module("Linear")
def linear(constants: Any, rank: Any) -> Built | None:
    """What ``exporters.torch._rebuild`` makes of MatMul, Transpose and Add."""
    weight, bias = constants[1], _optional(constants, 2)
    return None if weight is None or (len(constants) > 2 and bias is None) else _linear(weight, bias)


def _linear(weight: Any, bias: Any) -> Built:
    module = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    return Built(module, {"weight": 1} | ({} if bias is None else {"bias": 2}))


_BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
_INSTANCE_NORMS = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}


@_module("BatchNormalization")
def batch_normalization(constants: Any, rank: Any, *, epsilon=1e-5, momentum=0.9, training_mode=0):  # type: ignore[no-untyped-def]  # ONNX attributes
    if rank not in _BATCH_NORMS or training_mode or any(constants[i] is None for i in range(1, 5)):
        return None
    if len({x.dtype for x in constants[1:5]}) > 1:
        return None
    module = _BATCH_NORMS[rank](constants[1].shape[0], epsilon, 1 - momentum, device="meta")
    module.num_batches_tracked = torch.zeros([], dtype=torch.int64)
    return Built(module, {"weight": 1, "bias": 2, "running_mean": 3, "running_var": 4})


@_module("InstanceNormalization")
def instance_normalization(constants: Any, rank: Any, *, epsilon=1e-5):  # type: ignore[no-untyped-def]  # ONNX attributes
    if rank not in _INSTANCE_NORMS or constants[1] is None or constants[2] is None:
        return None
    module = _INSTANCE_NORMS[rank](constants[1].shape[0], epsilon, affine=True, device="meta")
    return Built(module, {"weight": 1, "bias": 2})


@_module("LayerNormalization")
def layer_normalization(constants: Any, rank: Any, *, axis=-1, epsilon=1e-5):  # type: ignore[no-untyped-def]  # ONNX attributes
    weight, bias = constants[1], _optional(constants, 2)
    if weight is None or rank is None or (len(constants) > 2 and bias is None):
        return None
    if weight.ndim != rank - axis % rank or (bias is not None and bias.shape != weight.shape):
        return None
    module = nn.LayerNorm(tuple(weight.shape), epsilon, bias=bias is not None, device="meta")
    return Built(module, {"weight": 1} | ({} if bias is None else {"bias": 2}))


@_module("RMSNormalization")
def rms_normalization(constants: Any, rank: Any, *, axis=-1, epsilon=1e-5):  # type: ignore[no-untyped-def]  # ONNX attributes
    weight = constants[1]
    if weight is None or rank is None or weight.ndim != rank - axis % rank:
        return None
    return Built(nn.RMSNorm(tuple(weight.shape), epsilon, device="meta"), {"weight": 1})


@_module("GroupNormalization")
def group_normalization(constants: Any, rank: Any, *, num_groups, epsilon=1e-5):  # type: ignore[no-untyped-def]  # ONNX attributes
    weight, bias = constants[1], constants[2]
    if weight is None or bias is None or rank is None:
        return None
    shape = constants[0] if constants[0] is None else constants[0].shape
    if shape is None and weight.shape[0] == num_groups and num_groups > 1:
        return None  # one weight a group (opset 18), or one a channel: the function sees the channels
    return Built(nn.GroupNorm(num_groups, weight.shape[0], epsilon, device="meta"), {"weight": 1, "bias": 2})


@_module("Gather")
def gather(constants: Any, rank: Any, *, axis=0):  # type: ignore[no-untyped-def]  # ONNX attributes
    """An embedding: rows of a table of floats that the model holds."""
    table = constants[0]
    if table is None or constants[1] is not None or axis != 0 or table.ndim != 2 or not table.is_floating_point():
        return None
    return Built(nn.Embedding(table.shape[0], table.shape[1], device="meta"), {"weight": 0}, (1,))


@_module("PRelu")
def prelu(constants: Any, rank: Any) -> Built | None:
    """Where the slope is one number, or one a channel, already of the shape that the module has."""
    slope = constants[1]
    if slope is None or slope.ndim != 1 or slope.shape[0] != 1:
        return None
    return Built(nn.PReLU(slope.shape[0], device="meta"), {"weight": 1})


_MAX_POOLS = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_AVERAGE_POOLS = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}


@dataclass(frozen=True)
class _Pool:
    """The attributes of a pool that a module computes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilations: tuple[int, ...]


def _pool(attributes: Mapping[str, Any]) -> _Pool | None:
    kernel, auto_pad = attributes["kernel_shape"], attributes.get("auto_pad", "NOTSET")
    ones = [1] * len(kernel)
    padding = _symmetric(None if auto_pad == "VALID" else attributes.get("pads"), len(kernel))
    if len(kernel) > 3 or auto_pad not in ("NOTSET", "VALID") or padding is None or attributes.get("ceil_mode"):
        return None
    if any(2 * pad > size for pad, size in zip(padding, kernel)):
        return None
    strides, dilations = attributes.get("strides") or ones, attributes.get("dilations") or ones
    return _Pool(tuple(kernel), tuple(strides), tuple(padding), tuple(dilations))


@_module("MaxPool")
def max_pool(constants: Any, rank: Any, **attributes: Any) -> Built | None:
    """Windows that torch's own pools have: the same padding at both ends, nothing rounded up."""
    pool = _pool(attributes)
    if pool is None:
        return None
    return Built(_MAX_POOLS[len(pool.kernel)](pool.kernel, pool.strides, pool.padding, pool.dilations), {})


@_module("AveragePool")
def average_pool(constants: Any, rank: Any, **attributes: Any) -> Built | None:
    """Likewise, without gaps in the window."""
    pool = _pool(attributes)
    if pool is None or any(dilation != 1 for dilation in pool.dilations):
        return None
    counts_padding = bool(attributes.get("count_include_pad", 0))
    return Built(_AVERAGE_POOLS[len(pool.kernel)](pool.kernel, pool.strides, pool.padding, False, counts_padding), {})


_GLOBAL_AVERAGE = {3: nn.AdaptiveAvgPool1d, 4: nn.AdaptiveAvgPool2d, 5: nn.AdaptiveAvgPool3d}


@_module("GlobalAveragePool")
def global_average_pool(constants: Any, rank: Any) -> Built | None:
    """The mean of each channel."""
    return Built(_GLOBAL_AVERAGE[rank](1), {}) if rank in _GLOBAL_AVERAGE else None


_RECURRENT = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN_TANH": nn.RNN, "RNN_RELU": nn.RNN}


@_module("Recurrent")
def recurrent(constants: Any, rank: Any, *, mode, hidden_size, reverse=0, layout=0, alone=0):  # type: ignore[no-untyped-def]  # ONNX attributes
    """What ``exporters.torch._recurrent`` makes of a layer's weights; layers of a stack share one torch module."""
    from exporters.torch.ops.recurrent import recurrent_inputs, recurrent_results

    weights = constants[3:]
    if not alone or any(weight is None for weight in weights):
        return None
    biased, directions = any(w.ndim == 1 for w in weights), sum(w.ndim == 2 for w in weights) // 2
    options = {"nonlinearity": mode.removeprefix("RNN_").lower()} if mode.startswith("RNN") else {}
    module = _RECURRENT[mode](
        weights[0].shape[1], hidden_size, bias=biased, bidirectional=directions == 2, device="meta", **options
    )
    names = {name: 3 + index for index, name in enumerate(module._flat_weights_names)}
    layers = {"mode": mode, "reverse": reverse, "layout": layout, "directions": directions}
    return Built(module, names, (0, 1, 2), recurrent_inputs, recurrent_results, layers | {"hidden_size": hidden_size})
