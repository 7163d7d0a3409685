"""ONNX Runtime's own attention operators, with itself as the witness."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import tensorflow as tf
from onnx import TensorProto, helper

from exporters.tensorflow._convert import lower_model
from tests.exporters.tensorflow._runtime import node_model, run_both

RANDOM = np.random.default_rng(2)
BATCH, TIME, HEADS, SIZE = 2, 5, 4, 16
MICROSOFT = "com.microsoft"


def _draw(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def _agree(operator, inputs, outputs=1, valid=None, **attributes):
    model = node_model(operator, inputs, outputs, attributes, domain=MICROSOFT)
    results, expected = run_both(model, inputs)
    for row, count in enumerate(valid or ()):  # what stands behind a prompt is nobody's result
        results[0][row, count:] = expected[0][row, count:] = 0
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5, strict=True)


ANGLES = RANDOM.normal(size=(12, SIZE // 2)).astype(np.float32)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [np.array([3]), np.array([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])])
def test_rotary_embedding(interleaved, places):
    _agree("RotaryEmbedding", [_draw(BATCH, TIME, HEADS * SIZE), places, COS, SIN], interleaved=interleaved)
    _agree("RotaryEmbedding", [_draw(BATCH, HEADS, TIME, SIZE), places, COS, SIN], interleaved=interleaved)


Q, K, V = (_draw(BATCH, TIME, HEADS * SIZE) for _ in range(3))


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(causal):
    bias = _draw(3 * HEADS * SIZE)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)
    scores = _draw(1, HEADS, TIME, TIME)
    lengths = np.array([4, 2], np.int32)
    _agree("MultiHeadAttention", [Q, K, V], num_heads=HEADS, unidirectional=causal)
    _agree("MultiHeadAttention", [Q, K, V, None, lengths], num_heads=HEADS, unidirectional=causal)
    _agree("MultiHeadAttention", [Q, K, V, bias, mask, scores], num_heads=HEADS, unidirectional=causal, scale=0.2)


def test_multi_head_attention_with_a_cache():
    past = [_draw(BATCH, HEADS, 3, SIZE) for _ in range(2)]
    _agree("MultiHeadAttention", [Q, K, V, None, None, None, *past], 3, num_heads=HEADS, unidirectional=1)


def test_multi_head_attention_of_packed_inputs_equals_that_of_separate_ones():
    """ONNX Runtime takes packed inputs on other devices only."""
    separate = [Q, K, V]
    _, (expected,) = run_both(
        node_model("MultiHeadAttention", separate, 1, {"num_heads": HEADS}, domain=MICROSOFT), separate
    )
    together = [Q, np.stack([x.reshape(BATCH, TIME, HEADS, SIZE) for x in (K, V)], 3)]
    model = node_model("MultiHeadAttention", together, 1, {"num_heads": HEADS}, domain=MICROSOFT)
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    results = lower_model(ir.from_proto(model))(*map(tf.constant, together))
    np.testing.assert_allclose(results["y0"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"local_window_size": 2}, {"softcap": 3.0}, {"do_rotary": 1}])
@pytest.mark.parametrize("lengths", [[4, 4], [4, 2]])
def test_group_query_attention_of_a_prompt(options, lengths):
    groups = [_draw(BATCH, TIME, 2 * SIZE) for _ in range(2)]
    cache = [_draw(BATCH, 2, 0, SIZE) for _ in range(2)]
    counts = [np.array(lengths, np.int32), np.array(TIME, np.int32)]
    tables = [COS, SIN] if "do_rotary" in options else []
    valid = [length + 1 for length in lengths]
    inputs = [Q, *groups, *cache, *counts, *tables]
    _agree("GroupQueryAttention", inputs, 3, valid, num_heads=HEADS, kv_num_heads=2, **options)


@pytest.mark.parametrize("options", [{}, {"local_window_size": 3}, {"do_rotary": 1}])
def test_group_query_attention_of_a_further_token(options):
    query, *groups = (x[:, :1] for x in (Q, K[..., : 2 * SIZE], V[..., : 2 * SIZE]))
    cache = [_draw(BATCH, 2, 4, SIZE) for _ in range(2)]
    counts = [np.array([4, 4], np.int32), np.array(5, np.int32)]
    tables = [COS, SIN] if "do_rotary" in options else []
    inputs = [query, *groups, *cache, *counts, *tables]
    _agree("GroupQueryAttention", inputs, 3, num_heads=HEADS, kv_num_heads=2, **options)
