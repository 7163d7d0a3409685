"""The families: a class of transformers each, made tiny by rules on the names of configuration attributes.

Nothing here speaks about exporting; an override only makes the small model consistent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FAMILIES", "Family", "build"]


@dataclass(frozen=True)
class Family:
    """A transformers model of random weights.

    Attributes:
        name: the row of the table.
        kind: encoder, decoder, encoder-decoder, vision, audio, multimodal, mixture or state-space.
        cls: name of the class in ``transformers``.
        overrides: configuration values that the rules cannot know.
        cache: let the model return its key-value cache (``config.use_cache``).
    """

    name: str
    kind: str
    cls: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    cache: bool = False


def build(family: Family) -> Any:
    """The model in evaluation mode; the same weights on every call."""
    import torch
    import transformers

    torch.manual_seed(0)
    cls = getattr(transformers, family.cls)
    model = cls(tiny_config(cls.config_class, family)).eval()
    for parameter in model.parameters():  # some classes leave weights at zero, which would hide a wrong graph
        if parameter.is_floating_point() and not parameter.any():
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def tiny_config(config_class: Any, family: Family) -> Any:
    """The default configuration with every size made small, built anew so that derived values fit."""
    values = _shrunk(config_class()) | copy.deepcopy(dict(family.overrides))
    config = config_class(**values)
    for part in (config, *_parts(config).values()):
        if hasattr(part, "use_cache"):
            part.use_cache = family.cache
    return config


def _parts(config: Any) -> dict[str, Any]:
    from transformers import PreTrainedConfig

    return {name: value for name, value in vars(config).items() if isinstance(value, PreTrainedConfig)}


def _shrunk(config: Any) -> dict[str, Any]:
    """The sizes of a configuration by the rules, nested configurations as dicts."""
    names = {own: public for public, own in getattr(config, "attribute_map", {}).items()}
    values: dict[str, Any] = {name: _shrunk(part) for name, part in _parts(config).items()}
    for name, value in vars(config).items():
        size = SIZES.get(name, SIZES.get(names.get(name, "")))
        if size is not None and isinstance(value, int) and not isinstance(value, bool):
            values[name] = min(size, value) if value > 0 else value
    return values


SIZES: dict[str, int] = {
    **dict.fromkeys(("vocab_size", "n_vocab"), 128),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "projection_dim", "n_embed"), 32),
    **dict.fromkeys(("embedding_size", "d_embed", "emb_dim", "true_hidden_size", "time_mix_ch"), 32),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "hidden_dim", "d_ff", "n_inner", "d_inner", "dim_feedforward"), 64
    ),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size", "moe_intermediate_size"), 64),
    **dict.fromkeys(("shared_expert_intermediate_size", "mlp_dim", "shared_intermediate_size", "lm_head_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "num_local_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "n_kv_heads", "num_kv_heads", "multi_query_group_num"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "attention_head_size", "rotary_dim", "qk_rope_head_dim"), 8),
    **dict.fromkeys(("qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank", "kv_channels"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_target_positions"), 64),
    **dict.fromkeys(("max_source_positions",), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_top_k"), 2),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("image_size",), 64),
    **dict.fromkeys(("patch_size",), 16),
    **dict.fromkeys(("state_size", "mamba_d_state", "ssm_state_size"), 8),
    **dict.fromkeys(("num_conv_pos_embeddings", "num_conv_pos_embedding_groups"), 16),
    **dict.fromkeys(("max_length", "num_mel_bins"), 64),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id"), 1),
    **dict.fromkeys(("sliding_window", "attention_window", "sliding_window_size"), 16),
}
"""Attribute -> the largest value it keeps. The names are those of transformers' configurations."""


def _rows(kind: str, classes: str, **overrides: Mapping[str, Any]) -> list[Family]:
    return [Family(cls, kind, cls, overrides.get(cls, {})) for cls in classes.split()]


_DECODERS = _rows(
    "decoder",
    "GPT2LMHeadModel GPTNeoForCausalLM GPTNeoXForCausalLM OPTForCausalLM "
    "BloomForCausalLM LlamaForCausalLM MistralForCausalLM Qwen3ForCausalLM PhiForCausalLM "
    "Phi3ForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM FalconForCausalLM "
    "CohereForCausalLM CodeGenForCausalLM BioGptForCausalLM "
    "SmolLM3ForCausalLM",
    GPTNeoForCausalLM={"attention_types": [[["global", "local"], 1]], "window_size": 16},
    FalconForCausalLM={"num_kv_heads": 1},
    CodeGenForCausalLM={"n_embd": 64, "rotary_dim": 8},
    Gemma3ForCausalLM={"layer_types": ["sliding_attention", "full_attention"]},
)

FAMILIES: tuple[Family, ...] = (
    *_rows(
        "encoder",
        "BertModel RobertaModel DistilBertModel AlbertModel ElectraModel DebertaModel DebertaV2Model MPNetModel "
        "ConvBertModel FNetModel FunnelModel MobileBertModel RemBertModel "
        "RoFormerModel BigBirdModel LongformerModel ModernBertModel XLNetModel",
        FunnelModel={"block_sizes": [1, 1]},
        MobileBertModel={"intra_bottleneck_size": 32},
        LongformerModel={"attention_window": [4, 4]},
    ),
    *_DECODERS,
    *(Family(f"{row.cls} + cache", row.kind, row.cls, row.overrides, cache=True) for row in _DECODERS[:6]),
    *_rows(
        "encoder-decoder",
        "T5ForConditionalGeneration MT5ForConditionalGeneration BartForConditionalGeneration "
        "PegasusForConditionalGeneration MarianMTModel "
        "M2M100ForConditionalGeneration LEDForConditionalGeneration ProphetNetForConditionalGeneration",
        LEDForConditionalGeneration={"attention_window": [4, 4]},
    ),
    *_rows(
        "mixture",
        "MixtralForCausalLM Qwen2MoeForCausalLM Qwen3MoeForCausalLM GraniteMoeForCausalLM "
        "DeepseekV3ForCausalLM GptOssForCausalLM SwitchTransformersForConditionalGeneration",
        DeepseekV3ForCausalLM={"num_key_value_heads": 4},
    ),
    *_rows(
        "state-space",
        "MambaForCausalLM Mamba2ForCausalLM FalconMambaForCausalLM BambaForCausalLM RecurrentGemmaForCausalLM RwkvModel",
        Mamba2ForCausalLM={"num_heads": 8, "head_dim": 8, "expand": 2, "n_groups": 1},
        BambaForCausalLM={"mamba_n_heads": 8, "mamba_d_head": 8, "attn_layer_indices": [1], "mamba_n_groups": 1},
        RecurrentGemmaForCausalLM={"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 16},
    ),
    *_rows(
        "vision",
        "ViTModel BeitModel SwinModel ConvNextModel ResNetModel RegNetModel "
        "MobileViTModel Dinov2Model SegformerModel CvtModel EfficientNetModel FocalNetModel "
        "HieraModel LevitModel YolosModel SiglipVisionModel",
        SwinModel={"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "patch_size": 4, "window_size": 4},
        ConvNextModel={"num_stages": 4, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "patch_size": 4},
        ResNetModel={"embedding_size": 8, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1]},
        RegNetModel={"embedding_size": 8, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1], "groups_width": 8},
        MobileViTModel={"patch_size": 2, "hidden_sizes": [16, 16, 32], "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32]},
        SegformerModel={"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
        CvtModel={"embed_dim": [16, 16, 32], "depth": [1, 2, 3], "num_heads": [1, 2, 4], "num_stages": 3},
        EfficientNetModel={"width_coefficient": 0.25, "depth_coefficient": 0.5, "hidden_dim": 320},
        FocalNetModel={
            "embed_dim": 16,
            "depths": [1, 1],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
            "patch_size": 4,
        }
        | {"hidden_sizes": [16, 32]},
        HieraModel={
            "embed_dim": 16,
            "image_size": [64, 64],
            "depths": [1, 1, 1],
            "num_heads": [1, 2, 4],
            "query_stride": [2, 2],
            "num_query_pool": 2,
            "masked_unit_size": [4, 4],
        },
        LevitModel={
            "hidden_sizes": [16, 32, 48],
            "depths": [1, 1, 1],
            "num_attention_heads": [2, 4, 4],
            "key_dim": [8, 8, 8],
        },
        YolosModel={"image_size": [64, 64], "num_detection_tokens": 4},
    ),
    *_rows(
        "audio",
        "Wav2Vec2Model HubertModel WavLMModel SEWModel ASTModel WhisperForConditionalGeneration "
        "Wav2Vec2ConformerModel MoonshineForConditionalGeneration",
        Wav2Vec2Model={"conv_dim": [16] * 7},
        HubertModel={"conv_dim": [16] * 7},
        WavLMModel={"conv_dim": [16] * 7},
        SEWModel={"conv_dim": [16] * 13},
        Wav2Vec2ConformerModel={"conv_dim": [16] * 7},
        ASTModel={"max_length": 64, "num_mel_bins": 32},
    ),
    *_rows("multimodal", "CLIPModel SiglipModel ViltModel BlipModel"),
)
"""The table; each row is one export."""
