"""Attention and rotary embeddings where the suite leaves off: unknown dims, gradients, shared heads; torch is the witness."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.exporters.tensorflow._nodes import check_node, gradients, lower_node

F32 = np.dtype(np.float32)
RANDOM = np.random.default_rng(3)
Q = RANDOM.normal(size=(2, 4, 3, 8)).astype(np.float32)
K, V = RANDOM.normal(size=(2, 2, 2, 5, 8)).astype(np.float32)
MASK = RANDOM.random((2, 1, 3, 5)) > 0.4
MASK[..., 0] = True


def _torch(q, k, v, mask=None, **options):
    result = scaled_dot_product_attention(*map(torch.tensor, (q, k, v)), mask, enable_gqa=True, **options)
    return result.numpy()


def test_attention_shares_heads_and_masks():
    check_node("Attention", [Q, K, V, MASK], [_torch(Q, K, V, torch.tensor(MASK))], rtol=1e-4)
    bias = RANDOM.normal(size=(3, 5)).astype(np.float32)
    check_node(
        "Attention", [Q, K, V, bias], [_torch(Q, K, V, torch.tensor(bias), scale=0.3)], {"scale": 0.3}, rtol=1e-4
    )


def test_attention_takes_packed_heads():
    def packed(x):
        return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(2, x.shape[2], -1)

    inputs = [packed(Q), packed(K), packed(V)]
    expected = packed(_torch(Q, K, V))
    attributes = {"q_num_heads": 4, "kv_num_heads": 2}
    check_node("Attention", inputs, [expected], attributes, rtol=1e-4)


def test_causal_attention_with_a_cache_sees_all_that_came_before():
    key, value = K[:, :, :3], V[:, :, :3]
    whole = np.tril(np.ones((3, 5), bool), 2)
    expected = _torch(Q, K, V, torch.tensor(whole))
    inputs = [Q, K[:, :, 2:], V[:, :, 2:], None, K[:, :, :2], V[:, :, :2]]
    check_node("Attention", inputs, [expected, K, V], {"is_causal": 1}, rtol=1e-4)
    assert key.shape == value.shape


def test_attention_gradients_equal_those_of_torch():
    tensors = [torch.tensor(x, requires_grad=True) for x in (Q, K, V)]
    mask = torch.tensor(MASK)
    scaled_dot_product_attention(*tensors, mask, enable_gqa=True).square().sum().backward()
    module = lower_node("Attention", [Q, K, V, MASK], [F32])
    feeds = [tf.constant(x) for x in (Q, K, V)]
    with tf.GradientTape() as tape:
        tape.watch(feeds)
        loss = tf.reduce_sum(tf.square(module(*feeds, tf.constant(MASK))["y0"]))
    for gradient, tensor in zip(tape.gradient(loss, feeds), tensors):
        np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-3, atol=1e-5)


def test_a_query_without_keys_gives_zeros_and_finite_gradients():
    mask = MASK.copy()
    mask[0, :, 1] = False
    module = lower_node("Attention", [Q, K, V, mask], [F32])
    feeds = [tf.constant(x) for x in (Q, K, V)]
    with tf.GradientTape() as tape:
        tape.watch(feeds)
        y = module(*feeds, tf.constant(mask))["y0"]
        loss = tf.reduce_sum(tf.square(y))
    assert not y[0, :, 1].numpy().any() and y[0, :, 0].numpy().all()
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(loss, feeds))


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_turns_pairs(interleaved):
    angles = RANDOM.normal(size=(10, 4)).astype(np.float32)
    places = np.array([[3, 4, 5], [0, 1, 2]])
    turn = np.exp(1j * angles[places])[:, None]
    pairs = Q[..., 0::2] + 1j * Q[..., 1::2] if interleaved else Q[..., :4] + 1j * Q[..., 4:]
    turned = pairs * turn
    joined = [turned.real, turned.imag]
    expected = np.stack(joined, -1).reshape(Q.shape) if interleaved else np.concatenate(joined, -1)
    inputs = [Q, np.cos(angles), np.sin(angles), places]
    check_node("RotaryEmbedding", inputs, [expected.astype(np.float32)], {"interleaved": interleaved})
    found = gradients("RotaryEmbedding", inputs, {"interleaved": interleaved})
    np.testing.assert_allclose(found[0], 2 * Q, rtol=1e-4, atol=1e-5)  # a turn keeps lengths
