"""Convolutions against torch: ranks, groups, dilations, paddings, element types, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.exporters.tensorflow._nodes import check_node, gradients

CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
SIZES = (9, 8, 7)


def _normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def _operands(rank: int, group: int, kernel: int, channels: int = 4) -> list[np.ndarray]:
    return [_normal(2, channels, *SIZES[-rank:]), _normal(8, channels // group, *[kernel] * rank), _normal(8)]


# rank, group, stride, dilation, pad
CASES = [
    (1, 1, 2, 1, 1),
    (1, 2, 1, 2, 2),
    (1, 4, 2, 1, 0),
    (2, 1, 1, 1, 1),
    (2, 1, 2, 2, 3),
    (2, 2, 2, 1, 1),
    (2, 4, 1, 2, 2),
    (2, 4, 2, 1, 1),
    (2, 4, 1, 2, 1),
    (2, 4, 2, 2, 1),
    (2, 4, (2, 1), 1, 0),
    (3, 1, 2, 1, 1),
    (3, 1, 1, 2, 2),
    (3, 2, (2, 1, 1), 1, 1),
    (3, 4, 1, (1, 2, 1), 1),
]


@pytest.mark.parametrize(("rank", "group", "stride", "dilation", "pad"), CASES)
def test_conv_and_its_gradients_equal_torch(rank, group, stride, dilation, pad):
    x, w, b = _operands(rank, group, 3)
    options = {"stride": stride, "padding": pad, "dilation": dilation, "groups": group}
    attributes = {
        "strides": np.broadcast_to(stride, rank).tolist(),
        "pads": [pad] * 2 * rank,
        "dilations": np.broadcast_to(dilation, rank).tolist(),
        "group": group,
        "kernel_shape": [3] * rank,
    }
    tensors = [torch.from_numpy(a).requires_grad_() for a in (x, w, b)]
    expected = CONV[rank](*tensors, **options)
    check_node("Conv", [x, w, b], [expected.detach().numpy()], attributes, known=(1,), rtol=1e-4)
    expected.square().sum().backward()
    for found, tensor in zip(gradients("Conv", [x, w, b], attributes), tensors, strict=True):
        np.testing.assert_allclose(found, tensor.grad.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [7, 8])
def test_conv_same_padding_covers_the_input(auto_pad, stride, size):
    x, w = _normal(1, 2, size, size), _normal(3, 2, 4, 4)
    total = max((-(-size // stride) - 1) * stride + 4 - size, 0)
    small = total // 2
    begin = small if auto_pad == "SAME_UPPER" else total - small
    padded = functional.pad(torch.from_numpy(x), [begin, total - begin] * 2)
    expected = functional.conv2d(padded, torch.from_numpy(w), stride=stride).numpy()
    check_node("Conv", [x, w], [expected], {"auto_pad": auto_pad, "strides": [stride] * 2}, known=(1,), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize(("group", "dilation"), [(1, 1), (1, 2), (2, 1), (4, 2)])
def test_conv_other_element_types(dtype, group, dilation):
    x, w = (a.astype(dtype) for a in _operands(2, group, 3)[:2])
    exact = functional.conv2d(*(torch.from_numpy(a).double() for a in (x, w)), dilation=dilation, groups=group)
    attributes = {"group": group, "dilations": [dilation] * 2}
    rtol = 2e-3 if dtype == "float16" else 1e-9
    check_node("Conv", [x, w], [exact.numpy().astype(dtype)], attributes, known=(1,), rtol=rtol)


# rank, group, stride, dilation, pad, output padding
TRANSPOSED_CASES = [
    (1, 1, 2, 1, 1, 1),
    (1, 4, 2, 1, 0, 0),
    (2, 1, 2, 1, 1, 1),
    (2, 2, 3, 1, 0, 2),
    (2, 4, 2, 1, 1, 0),
    (2, 1, 1, 2, 1, 0),
    (2, 4, (2, 1), 2, 1, 0),
    (3, 1, 2, 1, 1, 1),
    (3, 2, 1, 2, 0, 0),
]


@pytest.mark.parametrize(("rank", "group", "stride", "dilation", "pad", "extra"), TRANSPOSED_CASES)
@pytest.mark.parametrize("multiplier", [1, 3])
def test_conv_transpose_and_its_gradients_equal_torch(rank, group, stride, dilation, pad, extra, multiplier):
    x, w = _normal(2, 4, *(5, 4, 3)[-rank:]), _normal(4, multiplier, *[3] * rank)
    b = _normal(multiplier * group)
    options = {"stride": stride, "padding": pad, "dilation": dilation, "groups": group, "output_padding": extra}
    attributes = {
        "strides": np.broadcast_to(stride, rank).tolist(),
        "pads": [pad] * 2 * rank,
        "dilations": np.broadcast_to(dilation, rank).tolist(),
        "output_padding": [extra] * rank,
        "group": group,
        "kernel_shape": [3] * rank,
    }
    tensors = [torch.from_numpy(a).requires_grad_() for a in (x, w, b)]
    expected = TRANSPOSED[rank](*tensors, **options)
    check_node("ConvTranspose", [x, w, b], [expected.detach().numpy()], attributes, known=(1,), rtol=1e-4)
    expected.square().sum().backward()
    found = gradients("ConvTranspose", [x, w, b], attributes, constants=(1,))
    np.testing.assert_allclose(found[0], tensors[0].grad.numpy(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found[1], tensors[2].grad.numpy(), rtol=1e-3, atol=1e-3)


def test_conv_transpose_output_shape_moves_the_cut():
    x, w = _normal(1, 1, 3, 3), _normal(1, 2, 3, 3)
    whole = functional.conv_transpose2d(torch.from_numpy(x), torch.from_numpy(w), stride=2).numpy()  # 7 x 7
    attributes = {"strides": [2, 2], "output_shape": [6, 4]}
    check_node("ConvTranspose", [x, w], [whole[:, :, 1:, 2:6]], attributes, known=(1,), rtol=1e-4)
    attributes["auto_pad"] = "SAME_UPPER"
    check_node("ConvTranspose", [x, w], [whole[:, :, :6, 1:5]], attributes, known=(1,), rtol=1e-4)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_col2im_equals_torch_fold(step):
    shapes = np.array([8, 8]), np.array([2, 3])
    attributes = {"strides": [step, step], "pads": [0, 1, 1, 0], "dilations": [1, 1]}
    # torch pads both ends alike: fold into a larger image and cut it.
    counts = [(8 + 1 - 2) // step + 1, (8 + 1 - 3) // step + 1]
    x = _normal(2, 3 * 6, counts[0] * counts[1])
    larger = functional.fold(torch.from_numpy(x), (9, 9), (2, 3), stride=step).numpy()
    check_node("Col2Im", [x, *shapes], [larger[:, :, :8, 1:]], attributes, constants=(1, 2))
    check_node("Col2Im", [x, *shapes], [larger[:, :, :8, 1:]], attributes, known=(1, 2))


def test_causal_conv_continues_from_its_state():
    x, w, b = _normal(2, 3, 9), _normal(3, 1, 4), _normal(3)
    whole = functional.conv1d(functional.pad(torch.from_numpy(x), [3, 0]), *map(torch.from_numpy, (w, b)), groups=3)
    past = np.pad(x, [(0, 0), (0, 0), (3, 0)])[:, :, 5:8]
    expected = functional.silu(whole)[:, :, 5:].numpy()
    check_node(
        "CausalConvWithState", [x[:, :, 5:], w, b, past], [expected, x[:, :, 6:]], {"activation": "silu"}, known=(1,)
    )
