"""All example models to torch and back in float64: the same function, and the same gradients of inputs and parameters.

By way of ONNX the parameters have their own names. By way of TensorFlow they have TensorFlow's, and some lie in another order
of axes: one belongs to the original parameter that has its values. Where TensorFlow stores another form (a batch norm inside a
convolution, gates in one matrix), that is no parameter of the original, and the gradients of the inputs speak for it.
"""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch.utils import _pytree as pytree

import models
from exporters import export_model

NAMES = models.available()
REFORMED = {"detector_head", "digits", "gru_seq", "lstm_tagger", "resnet", "transformer_encoder", "unet"}
"""Models of which TensorFlow stores some weights in another form."""
CLOSE = 1e-6
"""Constants that were folded on the way are float32, also where the rest is float64."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gradients")


def _by_onnx(name, folder):
    through = export_model(models.load(name), "onnx", options={"fuse": False}, verify=False)
    return export_model(through, "torch", verify=False).artifact.module.double()


def _by_tensorflow(name, folder):
    export_model(models.load(name), "tensorflow", path=folder / name, verify=False)
    export_model(folder / name, "onnx", path=folder / f"{name}.onnx", verify=False)
    return export_model(folder / f"{name}.onnx", "torch", verify=False).artifact.module.double()


@functools.cache
def _original(name):
    model = models.load(name).eval().double()
    return model, *_run(model, name)


def _run(module, name):
    """Float outputs, and the gradients of float inputs and of parameters for a loss that weighs every output element."""
    model = models.load(name)
    leaves, spec = pytree.tree_flatten(
        (model.example_inputs(), model.example_kwargs() if hasattr(model, "example_kwargs") else {})
    )
    leaves = [leaf.double().requires_grad_() if _is_float(leaf) else leaf for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    outputs = [output for output in pytree.tree_leaves(module(*args, **kwargs)) if _is_float(output)]
    weights = (torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype).view_as(output) for output in outputs)
    sum((output * weight).square().sum() for output, weight in zip(outputs, weights)).backward()
    gradients = {key: torch.zeros_like(p) if p.grad is None else p.grad for key, p in module.named_parameters()}
    return [output.detach() for output in outputs], [leaf.grad for leaf in leaves if _is_float(leaf)], gradients


def _is_float(value):
    return torch.is_tensor(value) and value.is_floating_point()


def _assert_close(found, expected, scale, what):
    assert found.dtype == torch.float64
    difference = (found - expected).abs().max().item() if found.numel() else 0.0
    assert difference <= CLOSE * max(expected.abs().max().item(), scale), what


def _scale(gradients):
    """What counts as no gradient, such as that of the bias of attention's keys, which the softmax takes out."""
    return 1e-3 * max(gradient.abs().max().item() for gradient in gradients.values())


def _assert_function_and_inputs(found, expected):
    for which, got, want in zip(("output", "input"), found, expected):
        assert len(got) == len(want)
        for index, pair in enumerate(zip(got, want)):
            _assert_close(*pair, 0.0, f"{which} {index}")


@pytest.mark.parametrize("name", NAMES)
def test_by_way_of_onnx_function_and_gradients_are_the_original_s(name, folder):
    _, *expected, wanted = _original(name)
    *found, gradients = _run(_by_onnx(name, folder), name)
    _assert_function_and_inputs(found, expected)
    assert gradients.keys() == wanted.keys()
    for key, gradient in gradients.items():
        _assert_close(gradient, wanted[key], _scale(wanted), key)


def _source_of(parameter, originals):
    """The original parameter with the same values, and the order of its axes; None where there is none."""
    ordered = parameter.detach().flatten().sort().values
    for name, (original, sorted_) in originals.items():
        if sorted_.shape != ordered.shape or not torch.allclose(sorted_, ordered, rtol=1e-6, atol=0):
            continue
        for order in itertools.permutations(range(original.ndim)):
            if torch.allclose(original.permute(order).flatten(), parameter.flatten(), rtol=1e-6, atol=0):
                return name, order
    return None


@pytest.mark.parametrize("name", NAMES)
def test_by_way_of_tensorflow_function_and_gradients_are_the_original_s(name, folder):
    model, *expected, wanted = _original(name)
    module = _by_tensorflow(name, folder)
    *found, gradients = _run(module, name)
    _assert_function_and_inputs(found, expected)
    originals = {key: (p.detach(), p.detach().flatten().sort().values) for key, p in model.named_parameters()}
    sources = {key: _source_of(parameter, originals) for key, parameter in module.named_parameters()}
    assert any(sources.values())
    assert name in REFORMED or all(sources.values())
    sums: dict[str, torch.Tensor] = {}
    for key, source in sources.items():
        if source is not None:  # a weight that is used twice may have become two
            original, order = source
            back = gradients[key].reshape([wanted[original].shape[axis] for axis in order])
            sums[original] = sums.get(original, 0) + back.permute([order.index(axis) for axis in range(len(order))])
    for original, gradient in sums.items():
        _assert_close(gradient, wanted[original], _scale(wanted), original)
