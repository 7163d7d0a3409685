"""What a bare ``export_model(model, format)`` finds by itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from exporters import MissingInputsError, export_model
from exporters._example_inputs import find_example_inputs


def find(model, inputs=None, kwargs=None):
    return find_example_inputs(model, inputs, kwargs, "onnx")


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, left, right):
        return self.layer(left) + self.layer(right)


def test_a_tensor_a_tuple_and_a_dict_are_taken_as_given():
    x = torch.ones(2, 4)
    assert find(nn.Linear(4, 2), x)[0][0] is x
    assert find(nn.Linear(4, 2), (x,))[0][0] is x
    args, kwargs = find(Pair(), {"right": x, "left": x})
    assert args == () and set(kwargs) == {"left", "right"}


def test_a_dict_that_names_no_parameter_is_the_only_argument():
    class Takes(nn.Module):
        def forward(self, batch):
            return batch["a"] + 1

    args, kwargs = find(Takes(), {"a": torch.ones(2)})
    assert kwargs == {} and set(args[0]) == {"a"}


def test_example_inputs_method_comes_first():
    class Own(nn.Linear):
        def example_inputs(self):
            return (torch.full((5, 4), 7.0),)

    args, _ = find(Own(4, 2))
    assert args[0].shape == (5, 4) and bool((args[0] == 7).all())


def test_lightning_example_input_array_is_found():
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.example_input_array = torch.zeros(6, 3)

        def forward(self, x):
            return self.layer(x)

    assert find(Lit())[0][0].shape == (6, 3)
    assert export_model(Lit(), "onnx").parity.passed


def test_exported_program_brings_its_own():
    program = torch.export.export(nn.Linear(4, 2), (torch.ones(3, 4),))
    assert find(program)[0][0].shape == (3, 4)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Linear(7, 3), nn.ReLU()), (2, 7)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)), (2, 3, 224, 224)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 26 * 26, 2)), (2, 1, 28, 28)),
        (nn.Sequential(nn.Conv1d(5, 2, 3)), (2, 5, 128)),
        (nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 2)), (2, 8)),
        (nn.LSTM(6, 3, batch_first=True), (2, 8, 6)),
        (nn.GRU(6, 3), (8, 2, 6)),
        (nn.TransformerEncoderLayer(16, 4, batch_first=True), (2, 8, 16)),
    ],
)
def test_first_layers_give_an_input_that_the_model_runs_on(model, shape):
    args, kwargs = find(model)
    assert kwargs == {} and args[0].shape == shape
    with torch.no_grad():
        model.eval()(*args)


def test_embedding_input_stays_within_the_vocabulary():
    args, _ = find(nn.Sequential(nn.Embedding(3, 4)))
    assert args[0].dtype == torch.int64 and int(args[0].max()) < 3 and int(args[0].min()) >= 0


def test_half_model_gets_half_inputs():
    assert find(nn.Sequential(nn.Linear(4, 2)).half())[0][0].dtype == torch.float16


def test_missing_inputs_error_shows_the_call_to_write():
    with pytest.raises(MissingInputsError) as caught:
        export_model(Pair(), "onnx")
    message = str(caught.value)
    assert 'export_model(model, "onnx", inputs=(left, right))' in message
    assert "Pair" in message and "example_inputs()" in message


def test_transformers_model_exports_with_the_plain_call():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    model = transformers.BertModel(config).eval()
    exported = export_model(model, "onnx")
    assert exported.parity.passed
    assert exported.signature.input_names == ("input_ids",)
    assert "last_hidden_state" in exported.signature.output_names
    assert exported.signature.symbols == ("batch", "sequence")


def test_vision_transformers_model_gets_images():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
    )
    exported = export_model(transformers.ViTForImageClassification(config).eval(), "onnx")
    assert exported.parity.passed and exported.signature.inputs[0].shape == ("batch", 3, 16, 16)
