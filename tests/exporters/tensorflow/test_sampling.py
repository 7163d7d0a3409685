"""Sampling at computed positions: grids, deformed kernels, regions; against torch and plain NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.exporters.tensorflow._nodes import check_node, gradients


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(
    ("mode", "torch_mode", "rank"),
    [("linear", "bilinear", 2), ("nearest", "nearest", 2), ("linear", "bilinear", 3), ("cubic", "bicubic", 2)],
)
def test_grid_sample_and_its_gradient_equal_torch(padding, align, mode, torch_mode, rank):
    x = _normal(2, 3, *(4, 5, 6)[-rank:])
    # Outside the input a cubic differs: ONNX moves the position to the border first, torch each of its taps.
    reach = 0.7 if mode == "cubic" else 1.5
    grid = np.random.default_rng(0).uniform(-reach, reach, (2, *(3, 4, 2)[-rank:], rank)).astype("float32")
    tensors = [torch.from_numpy(a).requires_grad_() for a in (x, grid)]
    expected = functional.grid_sample(*tensors, mode=torch_mode, padding_mode=padding, align_corners=align)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(align)}
    check_node("GridSample", [x, grid], [expected.detach().numpy()], attributes, rtol=1e-4)
    expected.square().sum().backward()
    # Rounded positions have no gradient.
    found = gradients("GridSample", [x, grid], attributes, constants=(1,) if mode == "nearest" else ())
    np.testing.assert_allclose(found[0], tensors[0].grad.numpy(), rtol=1e-3, atol=1e-4)
    if mode != "nearest":
        np.testing.assert_allclose(found[1], tensors[1].grad.numpy(), rtol=1e-3, atol=1e-3)


def _bilinear(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """A value between the elements of ``[C, H, W]``; nothing stands outside."""
    total = np.zeros(image.shape[0])
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
                total += image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


@pytest.mark.parametrize(("group", "offset_group", "stride", "dilation"), [(1, 1, 1, 1), (2, 2, 2, 1), (1, 4, 1, 2)])
def test_deform_conv_samples_moved_taps(group, offset_group, stride, dilation):
    x, w, b = _normal(2, 4, 6, 7), _normal(6, 4 // group, 3, 2), _normal(6)
    height = (6 + 2 - dilation * 2 - 1) // stride + 1
    width = (7 + 2 - dilation - 1) // stride + 1
    offset, mask = _normal(2, offset_group * 12, height, width), _normal(2, offset_group * 6, height, width)
    patches = np.zeros((2, 4, 3, 2, height, width))
    for n, o, i, j, row, column in np.ndindex(2, offset_group, 3, 2, height, width):
        tap = o * 6 + i * 2 + j
        y = row * stride - 1 + i * dilation + offset[n, 2 * tap, row, column]
        z = column * stride - 1 + j * dilation + offset[n, 2 * tap + 1, row, column]
        part = slice(o * 4 // offset_group, (o + 1) * 4 // offset_group)
        patches[n, part, i, j, row, column] = _bilinear(x[n, part], y, z) * mask[n, tap, row, column]
    split = patches.reshape(2, group, 4 // group, 3, 2, height, width)
    expected = np.einsum("ngcijhw,gmcij->ngmhw", split, w.reshape(group, 6 // group, 4 // group, 3, 2))
    expected = expected.reshape(2, 6, height, width) + b[:, None, None]
    attributes = {
        "group": group,
        "offset_group": offset_group,
        "strides": [stride] * 2,
        "dilations": [dilation] * 2,
        "pads": [1] * 4,
        "kernel_shape": [3, 2],
    }
    check_node("DeformConv", [x, w, offset, b, mask], [expected.astype("float32")], attributes, known=(0, 1), rtol=1e-4)


def _align_region(image, region, ratio, mode, offset):
    """One region of RoiAlign by 2 x 3 bins, as the specification tells it."""
    x1, y1, x2, y2 = region * 0.5 - offset
    height, width = y2 - y1, x2 - x1
    if not offset:
        height, width = max(height, 1), max(width, 1)
    result = np.zeros((image.shape[0], 2, 3))
    for row, column in np.ndindex(2, 3):
        rows = ratio or math.ceil(height / 2)
        columns = ratio or math.ceil(width / 3)
        samples = []
        for i, j in np.ndindex(rows, columns):
            y = y1 + (row + (i + 0.5) / rows) * height / 2
            x = x1 + (column + (j + 0.5) / columns) * width / 3
            if not (-1 <= y <= image.shape[1] and -1 <= x <= image.shape[2]):
                samples.append(np.zeros(image.shape[0]))
                continue
            y, x = min(max(y, 0), image.shape[1] - 1), min(max(x, 0), image.shape[2] - 1)
            low, left = min(int(y), image.shape[1] - 2), min(int(x), image.shape[2] - 2)
            corners = [
                image[:, low + a, left + b] * (1 - abs(y - low - a)) * (1 - abs(x - left - b))
                for a in (0, 1)
                for b in (0, 1)
            ]
            samples.append(np.sum(corners, 0) if mode == "avg" else np.max(corners, 0))
        result[:, row, column] = np.mean(samples, 0) if mode == "avg" else np.max(samples, 0)
    return result


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize(("opset", "coordinates"), [(22, "half_pixel"), (22, "output_half_pixel"), (13, None)])
def test_roi_align_follows_the_specification(mode, ratio, opset, coordinates):
    x = np.abs(_normal(2, 3, 8, 9))
    rois = np.array([[1, 2, 9, 13], [-3, 0, 20, 6], [4, 4, 4.5, 4.5]], "float32")
    images = np.array([1, 0, 1])
    offset = 0.5 if coordinates == "half_pixel" else 0.0
    expected = np.stack([_align_region(x[n], roi, ratio, mode, offset) for n, roi in zip(images, rois)])
    attributes = {"output_height": 2, "output_width": 3, "mode": mode, "sampling_ratio": ratio, "spatial_scale": 0.5}
    if coordinates:
        attributes["coordinate_transformation_mode"] = coordinates
    check_node("RoiAlign", [x, rois, images], [expected.astype("float32")], attributes, rtol=1e-4, opset=opset)


def test_max_roi_pool_takes_the_largest_of_each_bin():
    x = _normal(2, 3, 6, 6)
    rois = np.array([[1, 0, 0, 3, 3], [0, 2, 2, 5, 5]], "float32")  # four elements a side, both ends included
    expected = np.stack([x[1, :, :4, :4], x[0, :, 2:, 2:]]).reshape(2, 3, 2, 2, 2, 2).max((3, 5))
    check_node("MaxRoiPool", [x, rois], [expected], {"pooled_shape": [2, 2]}, known=(0,))
