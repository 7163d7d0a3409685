"""Every example model as a LiteRT file: the same function after saving and loading, or refused with its operators."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import interop
import models
from exporters import UnsupportedOperatorError, export_model

REFUSED = {
    # Sizes that come from other sizes are divided in int64, and Resize by dynamic sizes places its samples in float64, as
    # ONNX Runtime does; LiteRT divides int32 and float32 only.
    "detector_head": {"tf.AddV2", "tf.Floor", "tf.Mul", "tf.RealDiv", "tf.TruncateDiv"},
}
"""Model -> the operators that LiteRT has no kernel for, exactly."""


def _arguments(model):
    return model.example_inputs(), model.example_kwargs() if hasattr(model, "example_kwargs") else {}


def _assert_same(runtime, model, args, kwargs):
    with torch.no_grad():
        expected, spec = pytree.tree_flatten(model(*args, **kwargs))
    results, result_spec = pytree.tree_flatten(runtime(*args, **kwargs))
    assert result_spec == spec
    for got, want in zip(results, expected, strict=True):
        assert isinstance(got, torch.Tensor)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in models.available() if name not in REFUSED])
def test_model_is_verified_saved_and_answers_the_model_s_own_call(name, tmp_path):
    model = models.load(name)
    exported = export_model(model, "litert", path=tmp_path / f"{name}.tflite")
    assert exported.parity.passed and len(exported.parity.cases) >= 2
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.tflite"]
    runtime = interop.load(exported.path)
    assert runtime.name == "litert"
    assert runtime.signature.input_names == exported.signature.input_names
    assert runtime.signature.output_names == exported.signature.output_names
    args, kwargs = _arguments(model)
    _assert_same(runtime, model, args, kwargs)

    def three_rows(leaf):
        return torch.cat([leaf, leaf])[:3] if torch.is_tensor(leaf) else leaf

    _assert_same(runtime, model, *pytree.tree_map(three_rows, (args, kwargs)))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_model_is_refused_with_all_its_operators_and_no_other_word(name, capfd):
    with pytest.raises(UnsupportedOperatorError, match="LiteRT has no builtin operator") as caught:
        export_model(models.load(name), "litert")
    assert {record.operator for record in caught.value.unsupported} == REFUSED[name]
    assert all(record.node for record in caught.value.unsupported)
    assert "custom op" not in capfd.readouterr().err  # the converter writes pages of it past Python
