"""What the single models promise beyond running."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import models
from models import transformer_encoder


def test_gpt_with_cache_equals_one_pass_without():
    model = models.load("gpt")
    tokens = torch.randint(64, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole, whole_cache = model(tokens, model.empty_cache(2))
        cache, pieces = model.empty_cache(2), []
        for part in tokens.split([4, 1, 1, 3], dim=1):
            logits, cache = model(part, cache)
            pieces.append(logits)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-4, atol=1e-5)
    assert cache[0][0].shape == whole_cache[0][0].shape == (2, 4, 9, 8)
    for left, right in zip(cache, whole_cache, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_gpt_sees_no_future():
    model = models.load("gpt")
    tokens = torch.randint(64, (1, 6), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 4] = (tokens[0, 4] + 1) % 64
    with torch.no_grad():
        left, right = (model(each, model.empty_cache(1))[0] for each in (tokens, changed))
    torch.testing.assert_close(left[:, :4], right[:, :4], rtol=0, atol=1e-6)
    assert (left[:, 4:] - right[:, 4:]).abs().amax() > 1e-2


def test_gpt_exported_generates_from_an_empty_cache(tmp_path):
    import onnxruntime

    model = models.load("gpt")
    path = tmp_path / "gpt.onnx"
    torch.onnx.export(model, model.example_inputs(), path, dynamic_shapes=model.dynamic_shapes(), dynamo=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    tokens = torch.tensor([[3, 14, 15]])
    cache = [tensor.numpy() for pair in model.empty_cache(1) for tensor in pair]
    sequence = tokens
    for _ in range(5):
        logits, *cache = session.run(None, dict(zip(names, [tokens.numpy(), *cache], strict=True)))
        with torch.no_grad():
            expected = model(sequence, model.empty_cache(1))[0][:, -1]
        np.testing.assert_allclose(logits[:, -1], expected.numpy(), rtol=1e-4, atol=1e-5)
        tokens = expected.argmax(dim=-1, keepdim=True)
        sequence = torch.cat([sequence, tokens], dim=1)
    assert cache[0].shape == (1, 4, 7, 8)


def test_transformer_encoder_ignores_padding():
    model = models.load("transformer_encoder")
    tokens, mask = model.example_inputs()
    changed = torch.where(mask, tokens, 42)
    shorter = tokens[1:2, :5], mask[1:2, :5]
    with torch.no_grad():
        expected = model(tokens, mask)
        assert torch.equal(model(changed, mask), expected)
        torch.testing.assert_close(model(*shorter), expected[1:2], rtol=1e-4, atol=1e-5)
        assert torch.isfinite(model(tokens, torch.zeros_like(mask))).all()


def test_transformer_encoder_attention_equals_torch():
    generator = torch.Generator().manual_seed(1)
    ours = models.load("transformer_encoder").layers[0].attention
    theirs = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(2, 6, 32, generator=generator)
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
        expected, _ = theirs(x, x, x, key_padding_mask=~mask)
        torch.testing.assert_close(ours(x, mask), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("position", "column"), [(0, 0), (5, 3), (7, 6)])
def test_sinusoids_follow_the_paper(position, column):
    angle = position / 10_000 ** ((column - column % 2) / 8)
    expected = math.cos(angle) if column % 2 else math.sin(angle)
    assert transformer_encoder.sinusoids(9, 8)[position, column].item() == pytest.approx(expected, abs=1e-6)


def test_control_flow_takes_both_branches():
    model = models.load("control_flow")
    (signal,) = model.example_inputs()
    with torch.no_grad():
        torch.testing.assert_close(model(signal), model.calm(signal))
        torch.testing.assert_close(model(10 * signal), model.loud(torch.tanh(10 * signal)))


def test_control_flow_exported_takes_both_branches(tmp_path):
    import onnxruntime

    model = models.load("control_flow")
    path = tmp_path / "control_flow.onnx"
    (signal,) = model.example_inputs()
    torch.onnx.export(model, (signal,), path, dynamic_shapes={"signal": {0: "batch"}}, dynamo=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for scale in (1, 10):
        (actual,) = session.run(None, {"signal": (scale * signal).numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(actual, model(scale * signal).numpy(), rtol=1e-4, atol=1e-5)


def test_dict_model_outputs_fit_together():
    model = models.load("dict_model")
    with torch.no_grad():
        outputs = model(*model.example_inputs())
    assert list(outputs) == ["logits", "probabilities", "label"]
    torch.testing.assert_close(outputs["probabilities"].log().diff(dim=1), outputs["logits"].diff(dim=1))
    assert outputs["label"].dtype == torch.int64
    assert outputs["label"].tolist() == outputs["logits"].numpy().argmax(axis=1).tolist()


def test_two_inputs_probabilities_sum_to_one():
    model = models.load("two_inputs")
    with torch.no_grad():
        probabilities = model(*model.example_inputs(), **model.example_kwargs())
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(2))


def test_lstm_tagger_reads_both_directions():
    model = models.load("lstm_tagger")
    (tokens,) = model.example_inputs()
    changed = tokens.clone()
    changed[0, 3] = (tokens[0, 3] + 1) % 100
    with torch.no_grad():
        difference = (model(tokens) - model(changed)).abs().amax(dim=-1)
    assert (difference[0] > 0).all()
    assert (difference[1] == 0).all()


def test_detector_head_has_three_scales():
    model = models.load("detector_head")
    with torch.no_grad():
        scores, boxes = model(*model.example_inputs())
    assert [tuple(level.shape) for level in scores] == [(2, 4, 16, 24), (2, 4, 8, 12), (2, 4, 4, 6)]
    assert [tuple(level.shape) for level in boxes] == [(2, 4, 16, 24), (2, 4, 8, 12), (2, 4, 4, 6)]


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("resnet", [(2, 10)]),
        ("unet", [(2, 2, 32, 32)]),
        ("vit", [(2, 10)]),
        ("lstm_tagger", [(2, 7, 5)]),
        ("gru_seq", [(2, 9, 3), (2, 24)]),
        ("conv_transpose_autoencoder", [(3, 1, 28, 28), (3, 16)]),
    ],
)
def test_output_shapes_are_the_documented_ones(name, shapes):
    model = models.load(name)
    with torch.no_grad():
        outputs = model(*model.example_inputs())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert [tuple(output.shape) for output in outputs] == shapes
