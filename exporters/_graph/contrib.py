"""What both tables know of ONNX Runtime's own operators.

Source: the operator schemas of onnxruntime, ``docs/ContribOperators.md``.
"""

from __future__ import annotations

__all__ = ["FLOAT32_MIN_EPSILON", "GROUP_QUERY_UNUSED", "HIDDEN", "MICROSOFT", "MULTI_HEAD_UNUSED"]

MICROSOFT = "com.microsoft"
"""The domain."""

FLOAT32_MIN_EPSILON = 9.999999960041972e-13
"""1e-12 as float32, the default of the skip and embedding normalisations."""

HIDDEN = -10000.0
"""What attention adds to the score of a hidden key by default."""

MULTI_HEAD_UNUSED = ("past_sequence_length", "cache_indirection")
"""What MultiHeadAttention has for decoding in place, which is not expressed."""

GROUP_QUERY_UNUSED = (
    "head_sink",
    "k_scale",
    "v_scale",
    "q_norm_weight",
    "k_norm_weight",
    "query_seqlens",
    "k_quant_type",
    "v_quant_type",
    "sliding_window_cache",
    "qk_output",
    "smooth_softmax",
)
"""What GroupQueryAttention has beside attention, masks and rotary embedding, which is not expressed."""
