"""torch to ONNX and back: the same function, the same gradients by name, real modules, exportable again."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from typer.testing import CliRunner

import interop
import models
from exporters import OptionsError, export_model
from interop.cli import app

NAMES = models.available()
REAL = (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.Linear, nn.LayerNorm, nn.Embedding, nn.LSTM, nn.MaxPool2d)


def _arguments(model):
    return model.example_inputs(), model.example_kwargs() if hasattr(model, "example_kwargs") else {}


@functools.cache
def _onnx(name, folder):
    return export_model(models.load(name), "onnx", path=folder / f"{name}.onnx", options={"fuse": False}, verify=False)


@functools.cache
def _back(name, folder):
    return export_model(_onnx(name, folder).path, "torch", verify=name == "mlp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("round")


def _outputs(model, arguments):
    args, kwargs = arguments
    return pytree.tree_flatten(model(*args, **kwargs))


def _loss(outputs):
    return sum(x.square().sum() for x in outputs if x.is_floating_point())


@pytest.mark.parametrize("name", NAMES)
def test_module_that_came_back_answers_the_original_s_own_call(name, folder):
    model, back = models.load(name), _back(name, folder).artifact.module

    def three_rows(leaf):
        return torch.cat([leaf, leaf])[:3] if torch.is_tensor(leaf) else leaf

    assert not back.training
    for arguments in (_arguments(model), pytree.tree_map(three_rows, _arguments(model))):
        with torch.no_grad():
            (expected, spec), (found, found_spec) = _outputs(model, arguments), _outputs(back, arguments)
        assert found_spec == spec
        for got, want in zip(found, expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_the_original_s_under_the_same_names(name, folder):
    model, back = models.load(name), _back(name, folder).artifact.module
    back.zero_grad()
    arguments = _arguments(model)
    for module in (model, back):
        _loss(_outputs(module, arguments)[0]).backward()
    expected = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    found = {key: p.grad for key, p in back.named_parameters() if p.grad is not None}
    used = {key: grad for key, grad in expected.items() if key in found or bool(grad.any())}
    assert found.keys() == used.keys()
    for key, grad in used.items():
        torch.testing.assert_close(found[key], grad, rtol=1e-3, atol=1e-4, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_modules_again_at_their_own_paths(name, folder):
    model, back = models.load(name), _back(name, folder).artifact.module
    own = dict(model.named_parameters())  # a layer that shares its weight with an earlier one has none here
    for path, layer in model.named_modules():
        if isinstance(layer, REAL) and any(key.startswith(f"{path}.weight") for key in own):
            again = back.get_submodule(path)
            in_a_branch = name == "control_flow"  # a branch reads the weights of its layer
            assert type(again) is (nn.Module if in_a_branch else type(layer)), path
            assert {k: v.shape for k, v in again.named_parameters()} == {
                k: v.shape for k, v in layer.named_parameters()
            }, path


def test_a_training_step_moves_the_parameters_as_the_original_s(folder):
    model = models.load("digits").eval()
    back = export_model(_onnx("digits", folder).path, "torch", verify=False).artifact.module
    arguments = _arguments(model)
    for module in (model, back):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        _loss(_outputs(module, arguments)[0]).backward()
        optimizer.step()
    state = back.state_dict()
    for key, value in model.named_parameters():
        torch.testing.assert_close(state[key], value, rtol=1e-4, atol=1e-5)


def test_batch_norm_trains_as_the_original_s(folder):
    model = models.load("digits")
    back = export_model(_onnx("digits", folder).path, "torch", verify=False).artifact.module
    norms = [path for path, layer in model.named_modules() if isinstance(layer, nn.BatchNorm2d)]
    before = {path: model.get_submodule(path).running_mean.clone() for path in norms}
    for module in (model, back):
        module.train()(*model.example_inputs())
    for path in norms:
        one, other = model.get_submodule(path), back.get_submodule(path)
        assert not torch.equal(one.running_mean, before[path])
        torch.testing.assert_close(other.running_mean, one.running_mean)
        torch.testing.assert_close(other.running_var, one.running_var)


@pytest.mark.parametrize(
    "name", ["control_flow", "digits", "detector_head", "dict_model", "gpt", "gru_seq", "lstm_tagger"]
)
def test_saved_file_is_the_same_function_at_other_sizes(name, folder):
    model = models.load(name)
    path = _back(name, folder).save(folder / f"{name}.pt2")
    runtime = interop.load(path)
    wanted = {symbol for spec in _onnx(name, folder).signature.inputs for symbol in spec.symbols}
    assert len(runtime.signature.symbols) == len(wanted)
    interop.check(model, runtime).raise_for_failure()
    assert runtime.signature.output_names == _onnx(name, folder).signature.output_names


@pytest.mark.parametrize("name", ["gpt", "lstm_tagger"])
def test_module_that_came_back_exports_to_onnx_again(name, folder):
    model, back = models.load(name), _back(name, folder)
    args, kwargs = _arguments(model)
    again = export_model(back.artifact.module, "onnx", inputs=args, kwargs=kwargs)
    assert again.parity.passed
    assert any(record.symbol for record in again.dims)
    interop.check(model, again).raise_for_failure()


def test_torch_model_goes_to_torch_through_onnx_and_is_verified():
    model = models.load("vit")
    exported = export_model(model, "torch")
    assert exported.parity.passed
    assert exported.format == "torch"
    assert len(exported.parity.cases) >= 2
    assert set(dict(model.named_parameters())) == set(dict(exported.artifact.module.named_parameters()))


def test_parameters_need_no_gradients_where_they_are_not_to_train(folder):
    module = export_model(
        _onnx("mlp", folder).path, "torch", options={"trainable": False}, verify=False
    ).artifact.module
    assert [p.requires_grad for p in module.parameters()] == [False] * 6


def test_command_line_writes_a_pt2_file(tmp_path):
    result = CliRunner().invoke(app, ["export", "models.mlp:MLP", "--to", "torch", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert interop.load(tmp_path / "MLP.pt2")(torch.zeros(3, 16)).shape == (3, 4)


@pytest.mark.parametrize("opset", [0, "20"])
def test_options_refuse_an_opset_that_is_no_number(opset):
    with pytest.raises(OptionsError, match="opset"):
        export_model(models.load("mlp"), "torch", options={"opset": opset})
