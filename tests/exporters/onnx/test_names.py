"""Names, structures and order of inputs and outputs."""

from __future__ import annotations

import json

import onnx
import pytest
import torch
from torch import nn

import interop
from exporters import CaptureError, ExportError, OptionsError, TranslationError, export_model


class Dict(nn.Module):
    def forward(self, x, y=None):
        return {
            "zeros": torch.zeros_like(x),
            "ones": torch.ones_like(x),
            "inner": {"sum": x + y},
            "none": None,
            "list": [x, y],
        }


def _path(exported, tmp_path):
    return exported.save(tmp_path / "m.onnx")


def test_dict_keys_become_output_names_and_the_dict_comes_back(tmp_path):
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    exported = export_model(Dict(), "onnx", inputs=(x, y))
    assert exported.signature.output_names == ("zeros", "ones", "inner_sum", "list_0", "list_1")
    for call in (exported, interop.load(_path(exported, tmp_path))):
        result = call(x, y)
        assert list(result) == ["zeros", "ones", "inner", "none", "list"]
        assert (
            result["none"] is None and torch.equal(result["inner"]["sum"], x + y) and torch.equal(result["list"][1], y)
        )
        assert bool((result["ones"] == 1).all()) and bool((result["zeros"] == 0).all())


def test_keyword_arguments_are_bound_by_name_whatever_their_order():
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    exported = export_model(Dict(), "onnx", kwargs={"y": y, "x": x})
    assert exported.signature.input_names == ("x", "y")
    assert torch.equal(exported(y=y, x=x)["list"][1], y)
    assert torch.equal(exported(x, y=y)["list"][0], x)
    assert torch.equal(exported(x, y)["list"][0], x)


def test_positional_parameters_may_be_given_by_name_at_run_time():
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    exported = export_model(Dict(), "onnx", inputs=(x, y))
    assert torch.equal(exported(x=x, y=y)["inner"]["sum"], x + y)
    with pytest.raises(interop.InputError, match="positional"):
        exported(x)
    with pytest.raises(interop.InputError):
        exported(x, y, x)


def test_a_dict_as_the_only_positional_argument():
    class Takes(nn.Module):
        def forward(self, batch):
            return batch["a"] - batch["b"]

    batch = {"b": torch.randn(2, 3), "a": torch.randn(2, 3)}
    exported = export_model(Takes(), "onnx", inputs=(batch,))
    assert torch.equal(exported(batch), batch["a"] - batch["b"])
    assert torch.equal(exported(dict(reversed(batch.items()))), batch["a"] - batch["b"])
    with pytest.raises(interop.InputError, match="keys"):
        exported({"a": batch["a"]})


@pytest.mark.parametrize("name", ["relu", "linear", "weight", "bias", "add"])
def test_an_argument_may_be_called_like_an_inner_value(name, tmp_path):
    namespace = {"torch": torch}
    exec(
        f"def forward(self, {name}):\n    return {{'{name}': torch.relu(self.layer({name})), 'linear': {name} + 1}}",
        namespace,
    )
    model_type = type("Model", (nn.Module,), {"forward": namespace["forward"]})
    model = model_type()
    model.layer = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    exported = export_model(model, "onnx", inputs=x, path=tmp_path / "m.onnx")
    names = [*exported.signature.input_names, *exported.signature.output_names]
    assert len(set(names)) == len(names) and names[0] == name
    result = interop.load(tmp_path / "m.onnx")(x)
    torch.testing.assert_close(result[name], model(x)[name].detach())


def test_swapped_dict_outputs_of_one_shape_keep_their_values():
    class Swapped(nn.Module):
        def forward(self, ones, zeros):
            return {"zeros": ones * 0, "ones": zeros * 0 + 1}

    result = export_model(Swapped(), "onnx", inputs=(torch.randn(2, 2), torch.randn(2, 2)))(
        torch.ones(2, 2), torch.ones(2, 2)
    )
    assert bool((result["zeros"] == 0).all()) and bool((result["ones"] == 1).all())


def test_unused_inputs_stay():
    class Ignores(nn.Module):
        def forward(self, x, unused):
            return x * 2

    exported = export_model(Ignores(), "onnx", inputs=(torch.ones(2, 3), torch.ones(2, 5)))
    assert exported.signature.input_names == ("x", "unused")
    assert exported(torch.ones(4, 3), torch.ones(4, 5)).shape == (4, 3)


def test_same_tensor_twice_an_input_and_a_constant_as_outputs(tmp_path):
    class Odd(nn.Module):
        def forward(self, x):
            y = x + 1
            return y, y, x, torch.arange(3)

    exported = export_model(Odd(), "onnx", inputs=torch.ones(2, 3))
    for call in (exported, interop.load(_path(exported, tmp_path))):
        a, b, c, d = call(torch.full((2, 3), 5.0))
        assert torch.equal(a, b) and bool((a == 6).all()) and bool((c == 5).all()) and d.tolist() == [0, 1, 2]


def test_constants_of_the_call_are_checked_at_run_time():
    class Flag(nn.Module):
        def forward(self, x, double: bool = False):
            return x * 2 if double else x

    exported = export_model(Flag(), "onnx", inputs=(torch.ones(2, 3), True))
    assert bool((exported(torch.ones(2, 3), True) == 2).all())
    with pytest.raises(interop.InputError, match="exported with True"):
        exported(torch.ones(2, 3), False)


def test_the_file_says_what_it_is(tmp_path):
    model = nn.Sequential(nn.Linear(4, 2))
    proto = onnx.load(_path(export_model(model, "onnx"), tmp_path))
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    assert proto.producer_name == "tensor-interop"
    assert metadata["tensor_interop.torch_class"] == "Sequential"
    assert json.loads(metadata["tensor_interop.versions"])["torch"] == torch.__version__
    assert json.loads(metadata["tensor_interop.parameters"]) == {"0.weight": True, "0.bias": True}
    assert {tensor.name for tensor in proto.graph.initializer} >= {"0.weight", "0.bias"}


def test_tied_weights_are_stored_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 8)
            self.head = nn.Linear(8, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    exported = export_model(Tied(), "onnx")
    large = [value for value in exported.artifact.model.graph.initializers.values() if value.const_value.size >= 400]
    assert len(large) == 1


def test_no_path_of_this_machine_unless_asked_for(tmp_path):
    class Mine(nn.Module):
        def forward(self, x):
            return torch.relu(x) + 1

    x = torch.ones(2, 3)
    quiet = _path(export_model(Mine(), "onnx", inputs=x), tmp_path).read_bytes()
    full = export_model(
        Mine(), "onnx", inputs=x, options={"provenance": "full"}, path=tmp_path / "f.onnx"
    ).path.read_bytes()
    here = __file__.encode()
    assert here not in quiet and b"site-packages" not in quiet and b"stack_trace" not in quiet
    assert b"test_names.py:" in quiet
    assert here in full


def test_two_exports_are_byte_identical(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    files = [export_model(model, "onnx", path=tmp_path / f"{i}.onnx").path.read_bytes() for i in range(2)]
    assert files[0] == files[1]


@pytest.mark.parametrize("opset", [18, 20, 21])
def test_the_requested_opset_is_honoured(opset):
    exported = export_model(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)), "onnx", options={"opset": opset})
    assert exported.artifact.model.opset_imports[""] == opset


def test_an_opset_that_cannot_be_had_is_refused():
    with pytest.raises((OptionsError, TranslationError), match=r"opset|13"):
        export_model(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)), "onnx", options={"opset": 13})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"opsett": 18}, "opsett"),
        ({"opset": "new"}, "opset"),
        ({"provenance": "some"}, "provenance"),
        (7, "OnnxOptions"),
    ],
)
def test_wrong_options_are_refused_by_name(options, words):
    with pytest.raises(OptionsError, match=words):
        export_model(nn.Linear(4, 2), "onnx", options=options)


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(OptionsError, match=r"onnx, tensorflow.*did you mean 'onnx'"):
        export_model(nn.Linear(4, 2), "onxx")


def test_an_operator_that_onnx_lacks_is_named_with_the_user_s_line():
    class Strange(nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    with pytest.raises(ExportError, match=r"bessel_j0.*test_names\.py"):
        export_model(Strange(), "onnx", inputs=torch.ones(2, 3))


def test_a_branch_on_a_tensor_s_value_names_the_user_s_line():
    class Branch(nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                return x
            return -x

    with pytest.raises(CaptureError, match=r"test_names\.py:\d+"):
        export_model(Branch(), "onnx", inputs=torch.ones(2, 3))
