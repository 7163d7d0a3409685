"""Resize against torch and onnx's reference evaluator, with sizes known and unknown."""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest
import torch
from onnx import TensorProto, helper
from torch.nn import functional

from tests.exporters.tensorflow._nodes import check_node, gradients

NONE = np.zeros(0, "float32")


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def _reference(inputs: list[np.ndarray], attributes: dict[str, object]) -> np.ndarray:
    names = ["X", "roi", "scales", "sizes"][: len(inputs)]
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), None) for n, a in zip(names, inputs)
    ]
    node = helper.make_node("Resize", names, ["Y"], **attributes)
    made = [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)]
    model = helper.make_model(helper.make_graph([node], "g", given, made), opset_imports=[helper.make_opsetid("", 19)])
    return onnx.reference.ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))[0]


@pytest.mark.parametrize("size", [(10, 14), (3, 4), (5, 9)])
@pytest.mark.parametrize(
    ("mode", "torch_mode", "coordinates", "options"),
    [
        ("nearest", "nearest", "asymmetric", {"nearest_mode": "floor"}),
        ("nearest", "nearest-exact", "half_pixel", {"nearest_mode": "round_prefer_ceil"}),
        ("linear", "bilinear", "half_pixel", {}),
        ("linear", "bilinear", "align_corners", {}),
        ("linear", "bilinear", "half_pixel", {"antialias": 1, "exclude_outside": 1}),
        ("cubic", "bicubic", "half_pixel", {}),
        ("cubic", "bicubic", "align_corners", {}),
    ],
)
def test_resize_of_images_and_its_gradient_equal_torch(size, mode, torch_mode, coordinates, options):
    x = _normal(2, 3, 5, 7)
    tensor = torch.from_numpy(x).requires_grad_()
    settings = {} if mode == "nearest" else {"align_corners": coordinates == "align_corners"}
    settings |= {"antialias": True} if "antialias" in options else {}
    expected = functional.interpolate(tensor, size, mode=torch_mode, **settings)
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, **options}
    inputs = [x, NONE, NONE, np.array([2, 3, *size])]
    for constants, known in (((1, 2, 3), ()), ((1, 2), (3,))):
        check_node(
            "Resize", inputs, [expected.detach().numpy()], attributes, constants=constants, known=known, rtol=1e-4
        )
    expected.square().sum().backward()
    found = gradients("Resize", inputs, attributes, constants=(1, 2, 3))[0]
    np.testing.assert_allclose(found, tensor.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "coordinates",
    ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"],
)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scale", [2.0, 0.5, 1.7, 0.3])
def test_resize_by_scales_equals_the_reference(coordinates, mode, scale):
    x = _normal(1, 2, 4, 6)
    roi = np.array([0, 0, 0.21, -0.1, 1, 1, 0.93, 1.2], "float32")
    inputs = [x, roi, np.array([1, 1, scale, scale], "float32")]
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "extrapolation_value": 7.0}
    expected = _reference(inputs, attributes)
    check_node("Resize", inputs, [expected], attributes, constants=(1, 2), rtol=1e-4)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize_nearest_roundings_equal_the_reference(rounding):
    x = np.arange(9.0, dtype="float32").reshape(1, 1, 9)
    inputs = [x, NONE, NONE, np.array([1, 1, 6])]
    attributes = {"nearest_mode": rounding}
    check_node("Resize", inputs, [_reference(inputs, attributes)], attributes, constants=(1, 2, 3))


def test_resize_of_volumes_equals_torch():
    x = _normal(1, 2, 3, 4, 5)
    expected = functional.interpolate(torch.from_numpy(x), scale_factor=2, mode="trilinear").numpy()
    inputs = [x, NONE, np.array([1, 1, 2, 2, 2], "float32")]
    check_node("Resize", inputs, [expected], {"mode": "linear"}, constants=(1, 2), rtol=1e-4)


def test_resize_of_a_long_signal_picks_taps_and_equals_torch():
    x = _normal(1, 2, 600)
    # In float32, torch places the last samples only to 1e-4.
    expected = functional.interpolate(torch.from_numpy(x).double(), 1000, mode="linear").float().numpy()
    attributes = {"mode": "linear", "axes": [2]}
    check_node("Resize", [x, NONE, NONE, np.array([1000])], [expected], attributes, constants=(1, 2, 3), rtol=1e-4)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resize_keeps_the_aspect_ratio(policy):
    x = _normal(1, 1, 4, 6)
    inputs = [x, NONE, NONE, np.array([7, 8])]
    attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "linear"}
    expected = _reference(inputs, attributes)
    assert expected.shape[2:] == ((5, 8) if policy == "not_larger" else (7, 11))
    check_node("Resize", inputs, [expected], attributes, constants=(1, 2, 3), rtol=1e-4)
    check_node("Resize", inputs, [expected], attributes, constants=(1, 2), known=(3,), rtol=1e-4)


def test_resize_of_integers_rounds_and_saturates():
    x = np.array([[[0, 255, 0, 255, 10, 11]]], "uint8")
    inputs = [x, NONE, NONE, np.array([1, 1, 11])]
    attributes = {"mode": "cubic"}
    check_node("Resize", inputs, [_reference(inputs, attributes)], attributes, constants=(1, 2, 3))
