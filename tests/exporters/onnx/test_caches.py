"""Key-value caches of Transformers as inputs and results: a decoder that is exported with one generates as eager torch does."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

import interop
from exporters import export_model
from interop.errors import InputError

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("transformers.exporters", reason="this Transformers has no exporters")

LLAMA = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
}


def _lively(model):
    """Weights large enough that greedy generation does not repeat one token."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.6)
    return model.eval()


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1
    )
    return _lively(transformers.GPT2LMHeadModel(config))


def llama():
    return _lively(transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)))


def t5():
    config = transformers.T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return _lively(transformers.T5ForConditionalGeneration(config))


@torch.no_grad()
def prefilled(model, tokens, **more):
    """The eager model's cache after these tokens, and the greedy next one."""
    result = model(tokens, use_cache=True, **more)
    return result.cache, result.logits[:, -1:].argmax(-1)


@torch.no_grad()
def generate(call, token, cache, steps, name="input_ids", **fixed):
    """Greedy tokens, the logits of each step, and the last cache."""
    tokens, logits = [token], []
    for _ in range(steps):
        result = call(**{name: tokens[-1], "cache": cache}, **fixed)
        cache = result.cache
        logits.append(result.logits)
        tokens.append(result.logits[:, -1:].argmax(-1))
    return torch.cat(tokens, 1), torch.cat(logits, 1), cache


@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_decoder_with_a_cache_generates_as_eager_does(make):
    model, prompt = make(), torch.arange(14).reshape(2, 7) % 64
    cache, token = prefilled(model, prompt)
    exported = export_model(model, "onnx", inputs={"input_ids": token, "cache": cache})
    assert cache.get_seq_length() == 7  # the caller's cache is not grown
    shapes = {spec.name: spec.shape for spec in exported.signature.inputs}
    assert shapes["input_ids"] == ("batch", "sequence")
    assert shapes["cache_1_values"][::2] == ("batch", "past_sequence")

    tokens, logits, _ = generate(model, token, copy.deepcopy(cache), 6)
    found, found_logits, last = generate(exported, token, cache, 6)
    assert torch.equal(found, tokens) and len(tokens.unique()) > 3
    torch.testing.assert_close(found_logits, logits, rtol=1e-4, atol=1e-4)
    assert type(last) is transformers.DynamicCache and last.get_seq_length() == 13


def test_a_cache_from_the_exported_model_goes_on_in_eager_and_the_other_way_round():
    model = gpt2()
    cache, token = prefilled(model, torch.arange(10).reshape(2, 5))
    exported = export_model(model, "onnx", inputs={"input_ids": token, "cache": cache}, verify=False)
    several = torch.tensor([[3, 9, 4], [60, 1, 2]])  # more tokens and another batch than the example's
    other, _ = prefilled(model, torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, 13]]))
    with torch.no_grad():
        eager = model(several[:1], cache=copy.deepcopy(other))
        found = exported(input_ids=several[:1], cache=other)
        torch.testing.assert_close(found.logits, eager.logits, rtol=1e-4, atol=1e-4)
        next_eager = model(several[1:, :2], cache=eager.cache).logits
        torch.testing.assert_close(model(several[1:, :2], cache=found.cache).logits, next_eager, rtol=1e-4, atol=1e-4)


def test_a_mask_that_covers_cache_and_tokens_hides_what_eager_hides():
    model = llama()
    cache, token = prefilled(model, torch.arange(12).reshape(2, 6))
    mask = torch.ones(2, 7, dtype=torch.long)
    example = {"input_ids": token, "attention_mask": mask, "cache": cache}
    exported = export_model(model, "onnx", inputs=example, verify=False)
    longer, _ = prefilled(model, torch.arange(20).reshape(2, 10))
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[0, :4] = 0
    with torch.no_grad():
        expected = model(token, attention_mask=mask, cache=copy.deepcopy(longer)).logits
        unmasked = model(token, cache=copy.deepcopy(longer)).logits
    found = exported(input_ids=token, attention_mask=mask, cache=longer).logits
    assert (expected - unmasked).abs().max() > 1e-2
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_an_encoder_decoder_cache_generates_as_eager_does():
    model = t5()
    source = torch.arange(1, 13).reshape(2, 6)
    with torch.no_grad():
        encoded = model.get_encoder()(source)
    start = torch.zeros(2, 1, dtype=torch.long)
    first = {"encoder_outputs": encoded, "decoder_input_ids": start}
    with torch.no_grad():
        result = model(**first, use_cache=True)
    token = result.logits[:, -1:].argmax(-1)
    example = {"encoder_outputs": encoded, "decoder_input_ids": token, "cache": copy.deepcopy(result.cache)}
    exported = export_model(model, "onnx", inputs=example, verify=False)
    arguments = {"name": "decoder_input_ids", "encoder_outputs": encoded}
    tokens, logits, _ = generate(model, token, copy.deepcopy(result.cache), 5, **arguments)
    found, found_logits, last = generate(exported, token, result.cache, 5, **arguments)
    assert torch.equal(found, tokens)
    torch.testing.assert_close(found_logits, logits, rtol=1e-4, atol=1e-4)
    assert type(last) is transformers.EncoderDecoderCache and last.get_seq_length() == 6


def test_a_cache_with_a_window_goes_on_past_the_window_and_a_cut_one_is_refused():
    config = transformers.MistralConfig(**LLAMA | {"num_hidden_layers": 1}, sliding_window=10)
    model = _lively(transformers.MistralForCausalLM(config))
    cache, token = prefilled(model, torch.arange(14).reshape(2, 7))
    assert cache.is_sliding == [True]
    exported = export_model(model, "onnx", inputs={"input_ids": token, "cache": cache}, verify=False)
    tokens, logits, cut = generate(model, token, copy.deepcopy(cache), 8)
    found, found_logits, whole = generate(exported, token, cache, 8)
    assert torch.equal(found, tokens)
    torch.testing.assert_close(found_logits, logits, rtol=1e-4, atol=1e-4)
    assert whole.get_seq_length() == cut.get_seq_length() == 15
    with pytest.raises(
        InputError, match=r"cumulative_length.*15, and keys hold 9 tokens.*before it was cut to a window"
    ):
        exported(input_ids=token, cache=cut)


def test_an_empty_cache_in_the_example_does_not_take_a_full_one():
    model = gpt2()
    tokens = torch.arange(10).reshape(2, 5)
    exported = export_model(
        model, "onnx", inputs={"input_ids": tokens, "cache": transformers.DynamicCache()}, verify=False
    )
    cache, _ = prefilled(model, tokens)
    with torch.no_grad():
        result = exported(input_ids=tokens, cache=transformers.DynamicCache())
        torch.testing.assert_close(result.logits, model(tokens).logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result.cache.layers[1].keys, cache.layers[1].keys, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match=r"layers.*empty"):
        exported(input_ids=tokens, cache=cache)


def test_without_transformers_a_cache_is_a_dict_of_arrays_both_ways(tmp_path):
    model = gpt2()
    cache, token = prefilled(model, torch.arange(10).reshape(2, 5))
    exported = export_model(
        model, "onnx", inputs={"input_ids": token, "cache": cache}, path=tmp_path / "gpt.onnx", verify=False
    )
    arrays = [[layer.keys.numpy(), layer.values.numpy()] for layer in cache.layers]
    runtime = interop.load(exported.path)
    given = {"layers": [{"keys": keys, "values": values} for keys, values in arrays]}
    result = runtime(input_ids=token.numpy(), cache=given)
    again = runtime(input_ids=token.numpy(), cache=result.cache)
    with torch.no_grad():
        expected = model(token, cache=model(token, cache=copy.deepcopy(cache)).cache).logits
    torch.testing.assert_close(torch.from_numpy(again.logits), expected, rtol=1e-4, atol=1e-4)
    code = (
        "import sys, numpy as np, interop; run = interop.load(sys.argv[1]);"
        "layer = {'keys': np.ones((1, 2, 4, 8), np.float32), 'values': np.ones((1, 2, 4, 8), np.float32)};"
        "token = np.ones((1, 1), np.int64); result = run(input_ids=token, cache={'layers': [layer] * 2});"
        "result = run(input_ids=token, cache=result['cache']); assert 'transformers' not in sys.modules;"
        "assert result['cache']['layers'][0]['keys'].shape == (1, 2, 6, 8)"
    )
    subprocess.run([sys.executable, "-c", code, str(exported.path)], check=True, timeout=120)
