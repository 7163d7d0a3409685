"""Attributions on every runtime, against Captum on the torch original and against what is known by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import interop
from exporters import export_model
from interop.errors import InputError
from interop.integrations.captum import _compare, attribute, compare_attributions

attr = pytest.importorskip("captum.attr", reason="Captum is not installed")


class Scores(torch.nn.Module):
    """A small CNN."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 3, 3)
        self.out = torch.nn.Linear(3 * 16, 4)

    def forward(self, image):
        return self.out(torch.tanh(self.conv(image)).flatten(1))


class Linear(torch.nn.Module):
    """Its attributions are known: weight times input for each score, and one output is twice the other."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]]))

    def forward(self, x, y):
        return {"once": x @ self.weight.T + y.sum(1, keepdim=True), "twice": 2 * (x @ self.weight.T)}


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def scores() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Scores().eval()


@pytest.fixture(scope="module")
def files(scores, images, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("captum")
    made = {"onnxruntime": ("onnx", "m.onnx"), "tensorflow": ("tensorflow", "saved")}
    return {
        name: export_model(scores, kind, inputs=images, path=folder / file, verify=False).path
        for name, (kind, file) in made.items()
    }


PERTURBATIONS = [
    ("FeatureAblation", {"target": 1}),
    ("Occlusion", {"target": torch.tensor([0, 3]), "sliding_window_shapes": (1, 3, 3), "strides": (1, 3, 3)}),
    ("ShapleyValueSampling", {"target": 2, "n_samples": 2, "feature_mask": torch.arange(36).reshape(1, 1, 6, 6) // 12}),
    ("KernelShap", {"target": 0, "n_samples": 8, "feature_mask": torch.arange(36).reshape(1, 1, 6, 6) // 12}),
]


@pytest.mark.parametrize(
    ("method", "arguments"), PERTURBATIONS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_perturbation_methods_agree_on_every_runtime(method, arguments, scores, files, images):
    report = compare_attributions({"torch": scores, **files}, method, images, **arguments)
    assert [one.candidate for one in report.comparisons] == ["onnxruntime", "tensorflow"]
    for one in report.comparisons:
        assert one.scale > 1e-3
        assert one.max_difference < 1e-5
        assert one.correlation > 0.99999
        assert one.top_k_overlap == 1.0


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("Saliency", {}),
        ("InputXGradient", {}),
        ("IntegratedGradients", {"n_steps": 8}),
        ("GradientShap", {"baselines": 0}),
    ],
)
def test_gradient_methods_agree_through_the_saved_model(method, arguments, scores, files, images):
    if method == "GradientShap":
        arguments = {"baselines": torch.zeros_like(images), "n_samples": 2}
    found = attribute(files["tensorflow"], method, images, target=1, **arguments)["0"]
    expected = attribute(scores, method, images, target=1, **arguments)["0"]
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_attribute_is_what_captum_itself_gives_on_the_module(scores, images):
    own = attr.IntegratedGradients(scores).attribute(images, target=2, n_steps=8)
    torch.testing.assert_close(attribute(scores, "IntegratedGradients", images, target=2, n_steps=8)["0"], own)
    own = attr.DeepLift(scores).attribute(images, target=2)
    torch.testing.assert_close(attribute(scores, attr.DeepLift, images, target=2)["0"], own)


def test_inputs_and_outputs_are_taken_by_name(tmp_path):
    x, y = torch.tensor([[1.0, 10.0, 100.0]]), torch.ones(1, 2)
    path = export_model(Linear(), "onnx", inputs=(x, y), path=tmp_path / "linear.onnx").path
    for model in (path, Linear()):
        found = attribute(model, "FeatureAblation", {"y": y, "x": x}, output="once", target=0)
        assert list(found) == ["y", "x"]
        torch.testing.assert_close(found["x"], torch.tensor([[1.0, -20.0, 300.0]]))
        torch.testing.assert_close(found["y"], torch.ones(1, 2))
    twice = attribute(path, "FeatureAblation", (x, y), output=1, target=1)
    torch.testing.assert_close(twice["0"], torch.tensor([[1.0, 0.0, -200.0]]))
    with pytest.raises(InputError, match="say which one"):
        attribute(path, "FeatureAblation", (x, y), target=1)


def test_another_function_is_seen(scores, images):
    other = Scores().eval()
    with torch.no_grad():
        other.load_state_dict(scores.state_dict())
        other.out.weight[1] *= -1
    [one] = compare_attributions({"a": scores, "b": other}, "FeatureAblation", images, target=1).comparisons
    assert one.correlation == pytest.approx(-1, abs=1e-4)
    assert one.max_difference == pytest.approx(2 * one.scale, rel=1e-3)


def test_compare_gives_the_figures_of_numpy():
    left = np.array([[4.0, -3.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    right = np.array([[4.0, 0.0, 2.0, -3.5], [0.0, 1.0, 2.0, 3.0]])
    one = _compare("c", "x", left, right, top_k=2)
    assert one.top_k_overlap == (1 / 2 + 1) / 2  # {0, 1} and {0, 3}; {2, 3} twice
    assert one.correlation == pytest.approx(np.corrcoef(left.ravel(), right.ravel())[0, 1])
    assert (one.max_difference, one.scale) == (3.5, 4.0)
    flat = np.zeros((1, 3))
    assert _compare("c", "x", flat, flat, 2).correlation == 1.0
    assert math.isnan(_compare("c", "x", flat, np.array([[0.0, 0.0, 1.0]]), 2).correlation)


def test_random_methods_draw_alike_and_leave_the_random_state(scores, images):
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.random.get_rng_state().clone(), np.random.get_state()[1].copy()
    mask = torch.arange(36).reshape(1, 1, 6, 6) // 4
    runs = [
        attribute(scores, "ShapleyValueSampling", images, target=0, feature_mask=mask, n_samples=1, seed=seed)["0"]
        for seed in (3, 3, 4)
    ]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])


@pytest.mark.parametrize("method", ["FeatureAblation", "Saliency"])
def test_a_module_is_explained_in_evaluation_mode_and_keeps_its_own(method):
    model = torch.nn.Sequential(torch.nn.Dropout(0.9), torch.nn.Linear(3, 1, bias=False)).train()
    weight = model[1].weight.detach()
    x = torch.ones(4, 3)
    found = attribute(model, method, x, target=0)["0"]
    expected = weight if method == "FeatureAblation" else weight.abs()
    torch.testing.assert_close(found, expected.expand(4, 3))
    assert all(part.training for part in model.modules())
    assert model[1].weight.grad is None
    assert not x.requires_grad


def test_what_cannot_be_explained_is_an_error(scores, files, images):
    with pytest.raises(InputError, match="computes none"):
        attribute(files["onnxruntime"], "IntegratedGradients", images, target=0)
    with pytest.raises(InputError, match="layers of a torch module"):
        attribute(files["tensorflow"], "DeepLift", images, target=0)
    with pytest.raises(InputError, match="also needs layer"):
        attribute(scores, "LayerConductance", images, target=0)
    with pytest.raises(InputError, match="no attribution method"):
        attribute(scores, "Magic", images)
    with pytest.raises(InputError, match=r"interop\.convert"):
        attribute(scores, "Saliency", images.numpy(), target=0)
    with pytest.raises(InputError, match="at least two"):
        compare_attributions({"torch": scores}, "Saliency", images, target=0)


def test_the_report_is_a_table(scores, images):
    report = compare_attributions({"torch": scores, "again": interop.load(scores)}, "Saliency", images, target=0)
    assert report.attributions["torch"]["0"].shape == (2, 1, 6, 6)
    lines = str(report).splitlines()
    assert lines[0].split()[0] == "Saliency"
    assert lines[1].split()[:4] == ["again", "0", "1.000000", "100.0%"]
    assert lines[-1] == "compared with torch"
