"""Operators that change shapes, and Pad."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from exporters.tensorflow._convert import lower_model
from tests.exporters.tensorflow._nodes import check_node, gradients, lower_node

RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((2, 3, 4)).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize(
    ("target", "shape"), [((0, -1), (2, 12)), ((4, 0, 2), (4, 3, 2)), ((-1,), (24,)), ((0, 0, 0), (2, 3, 4))]
)
def test_reshape_copies_dims_for_zeros(target, shape, constants):
    check_node("Reshape", [DATA, ints(*target)], [DATA.reshape(shape)], constants=constants)


@pytest.mark.parametrize("constants", [(), (1,)])
def test_reshape_allowzero_keeps_empty_dims(constants):
    data = np.zeros((0, 3), np.float32)
    check_node("Reshape", [data, ints(3, 0)], [data.reshape(3, 0)], {"allowzero": 1}, constants=constants)


def test_reshape_leaves_one_unknown_dim_to_tensorflow():
    module = lower_node("Reshape", [DATA, ints(0, 12)], [DATA.dtype], constants=(1,))
    types = [op.type for op in module.serving_signature().graph.get_operations()]
    assert "Shape" not in types
    assert module(DATA)["y0"].shape == (2, 12)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4])
def test_small_types_are_moved(dtype):
    data = np.arange(6).reshape(2, 3).astype(dtype)
    check_node("Transpose", [data], [data.T])
    check_node("Pad", [data, ints(1, 0, 0, 1)], [np.pad(data, ((1, 0), (0, 1)))], constants=(1,))


@pytest.mark.parametrize("constants", [(), (1,)])
def test_squeeze_and_unsqueeze_take_negative_axes(constants):
    data = DATA.reshape(1, 2, 1, 12)
    check_node("Squeeze", [data, ints(-2, 0)], [data.reshape(2, 12)], constants=constants, known=(1,))
    check_node("Unsqueeze", [DATA, ints(-1, 1)], [DATA.reshape(2, 1, 3, 4, 1)], constants=constants, known=(1,))


def test_squeeze_without_axes_removes_all_ones():
    check_node("Squeeze", [DATA.reshape(1, 2, 12, 1)], [DATA.reshape(2, 12)])


@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2, 3])
def test_flatten_cuts_at_any_axis(axis):
    cut = axis + 3 if axis < 0 else axis
    rows = int(np.prod(DATA.shape[:cut]))
    check_node("Flatten", [DATA], [DATA.reshape(rows, -1)], {"axis": axis})


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("target", [(2, 1, 4), (5, 1, 1, 1), (3, 1), (1,), (7, 2, 3, 4)])
def test_expand_broadcasts_both_ways(target, constants):
    shape = np.broadcast_shapes(DATA.shape, target)
    check_node("Expand", [DATA, ints(*target)], [np.broadcast_to(DATA, shape)], constants=constants)
    thin = DATA[:, :1]
    shape = np.broadcast_shapes(thin.shape, target)
    check_node("Expand", [thin, ints(*target)], [np.broadcast_to(thin, shape)], constants=constants)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.bool_])
def test_tile_repeats(dtype):
    data = DATA.astype(dtype)
    check_node("Tile", [data, ints(1, 2, 3)], [np.tile(data, (1, 2, 3))], constants=(1,))


def test_split_makes_the_last_part_shorter():
    data = np.arange(14, dtype=np.float32).reshape(2, 7)
    check_node("Split", [data], np.split(data, [3, 6], axis=1), {"axis": -1, "num_outputs": 3})
    check_node("Split", [data, ints(1, 6)], np.split(data, [1], axis=1), {"axis": 1})


def test_shape_and_size_take_a_part_of_unknown_dims():
    check_node("Shape", [DATA], [ints(2, 3, 4)])
    check_node("Shape", [DATA], [ints(3)], {"start": -2, "end": 2})
    check_node("Shape", [DATA], [ints()], {"start": 2, "end": 1})
    check_node("Size", [DATA], [np.array(24, np.int64)])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space_are_inverse_with_unknown_dims(mode):
    image = torch.arange(2 * 8 * 4 * 6, dtype=torch.float32).reshape(2, 8, 4, 6)
    if mode == "CRD":
        shuffled = torch.nn.functional.pixel_shuffle(image, 2).numpy()
    else:
        blocks = image.reshape(2, 2, 2, 2, 4, 6).permute(0, 3, 4, 1, 5, 2)
        shuffled = blocks.reshape(2, 2, 8, 12).numpy()
    check_node("DepthToSpace", [image.numpy()], [shuffled], {"blocksize": 2, "mode": mode})
    check_node("SpaceToDepth", [shuffled], [image.numpy()], {"blocksize": 2, "mode": mode})


def test_center_crop_pad_takes_unknown_dims():
    data = np.arange(20, dtype=np.float32).reshape(4, 5)
    check_node("CenterCropPad", [data, ints(2, 7)], [np.pad(data[1:3], ((0, 0), (1, 1)))])


@pytest.mark.parametrize("constants", [(), (1,), (1, 3)])
def test_pad_constant_crops_where_negative(constants):
    padded = np.pad(DATA[:, 1:, :-2], ((0, 0), (0, 2), (3, 0)), constant_values=7)
    pads = ints(3, -1, -2, 2)
    check_node("Pad", [DATA, pads, np.float32(7), ints(-1, 1)], [padded], constants=constants)


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(0, 1, 2, 0, 2, 3), (1, 4, 0, 0, 6, 9)])
def test_pad_repeats_as_numpy_does(mode, pads, constants):
    pairs = list(zip(pads[:3], pads[3:]))
    check_node("Pad", [DATA, ints(*pads)], [np.pad(DATA, pairs, mode)], {"mode": mode}, constants=constants)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_pad_of_a_single_element_repeats_it(mode):
    data = np.ones((1, 1), np.float32)
    check_node("Pad", [data, ints(2, 0, 1, 0)], [np.ones((4, 1), np.float32)], {"mode": mode}, constants=(1,))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad_has_the_gradient_of_torch(mode):
    names = {"edge": "replicate", "wrap": "circular"}
    data = torch.tensor(DATA, requires_grad=True)
    torch.nn.functional.pad(data, (2, 1), names.get(mode, mode)).square().sum().backward()
    (gradient,) = gradients("Pad", [DATA, ints(0, 0, 2, 0, 0, 1)], {"mode": mode}, constants=(1,))
    np.testing.assert_allclose(gradient, data.grad.numpy(), rtol=1e-5)


def test_static_dims_survive_a_calculated_reshape():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 25]>
        heads (float[batch, steps, 8] x) => (float[batch, steps, 2, 4] y)
        <int64 one = {1}, int64[1] axes = {0}, int64[2] inner = {2, 4}>
        {
            first = Shape <start = 0, end = 1> (x)
            shape = Shape (x)
            second = Gather (shape, one)
            second_dim = Unsqueeze (second, axes)
            target = Concat <axis = 0> (first, second_dim, inner)
            y = Reshape (x, target)
        }""")
    module = lower_model(ir.from_proto(model))
    (result,) = module.serving_signature().structured_outputs.values()
    assert result.shape.as_list() == [None, None, 2, 4]
    x = np.arange(80, dtype=np.float32).reshape(2, 5, 8)
    np.testing.assert_array_equal(module(x)["y"], x.reshape(2, 5, 2, 4))
    assert module(x[:0])["y"].shape == (0, 5, 2, 4)
