"""Transformers models through the plain call: dims, caches among the results, experts, several kinds of inputs."""

import pytest
import torch

from exporters import export_model
from exporters._example_inputs import find_example_inputs

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SMALL = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
}


def test_cache_in_the_results_becomes_named_outputs_with_eager_values():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).eval()
    exported = export_model(model, "onnx")
    logits, keys, values = exported.signature.output_names
    assert (logits, keys, values) == ("logits", "cache_0_keys", "cache_0_values")
    tokens = torch.randint(0, 64, (2, 7))
    with torch.no_grad():
        eager = model(tokens)
    given = exported.__interop_runtime__().run({"input_ids": tokens})
    layer = eager["cache"].layers[0]
    torch.testing.assert_close(given[keys], layer.keys)
    torch.testing.assert_close(given[values], layer.values)
    torch.testing.assert_close(given[logits], eager.logits)


def test_experts_export_and_route_other_tokens_as_eager_does():
    config = transformers.MixtralConfig(**SMALL, num_local_experts=3, num_experts_per_tok=2, use_cache=False)
    model = transformers.MixtralForCausalLM(config).eval()
    exported = export_model(model, "onnx")
    assert exported.signature.inputs[0].shape == ("batch", "sequence")
    tokens = torch.randint(0, 64, (4, 9))
    with torch.no_grad():
        torch.testing.assert_close(exported(input_ids=tokens)["logits"], model(tokens).logits)


def test_encoder_decoder_gets_both_token_inputs_with_dims_of_their_own():
    config = transformers.T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, use_cache=False
    )
    exported = export_model(transformers.T5ForConditionalGeneration(config).eval(), "onnx")
    shapes = {spec.name: spec.shape for spec in exported.signature.inputs}
    assert shapes["input_ids"] == ("batch", "sequence")
    assert shapes["decoder_input_ids"] == ("batch", "decoder_sequence")


def test_model_of_text_and_images_gets_both():
    part = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config=part | {"vocab_size": 64},
        vision_config=part | {"image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    model = transformers.CLIPModel(config).eval()
    args, kwargs = find_example_inputs(model, None, None, "onnx")
    assert args == () and set(kwargs) == {"input_ids", "pixel_values"}
    assert kwargs["input_ids"].shape[0] == kwargs["pixel_values"].shape[0]


def test_a_mask_is_among_the_inputs_only_where_the_captured_model_needs_one():
    sizes = {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    plain = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).eval()
    config = transformers.SwitchTransformersConfig(**sizes, num_decoder_layers=1, num_experts=2)
    masked = transformers.SwitchTransformersForConditionalGeneration(config).eval()
    assert "attention_mask" not in find_example_inputs(plain, None, None, "onnx")[1]
    found = find_example_inputs(masked, None, None, "onnx")[1]
    assert {"input_ids", "decoder_input_ids", "attention_mask"} <= set(found)
    assert found["attention_mask"].shape == found["input_ids"].shape and bool(found["attention_mask"].all())
    assert not torch.compiler.is_compiling()


def test_patches_of_transformers_are_gone_after_an_export():
    before = torch.nn.functional.scaled_dot_product_attention, torch.where, torch.Tensor.view
    export_model(transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).eval(), "onnx", verify=False)
    assert (torch.nn.functional.scaled_dot_product_attention, torch.where, torch.Tensor.view) == before
