"""ONNX Runtime's own attention operators, with itself as the witness."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import interop
from exporters import UnsupportedOperatorError, export_model
from tests.exporters.torch._graphs import node_model, rebuilt, runtime_outputs

RANDOM = np.random.default_rng(2)
BATCH, TIME, HEADS, GROUPS, SIZE = 2, 5, 4, 2, 16


def draw(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def contrib_model(operator, inputs, outputs=1, dtype="f4", **attributes):
    model = node_model(operator, inputs, [dtype] * outputs, {**attributes, "domain": "com.microsoft"})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def results_of(model, inputs):
    found = rebuilt(model)(*(torch.from_numpy(x) for x in inputs if x is not None))
    return found if isinstance(found, tuple) else (found,)


def agree(operator, inputs, outputs=1, valid=None, **attributes):
    model = contrib_model(operator, inputs, outputs, **attributes)
    found = [result.numpy().copy() for result in results_of(model, inputs)]
    expected = runtime_outputs(model, [x for x in inputs if x is not None])
    for row, count in enumerate(valid or ()):  # what stands behind a prompt is nobody's result
        found[0][row, count:] = expected[0][row, count:] = 0
    for result, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5, strict=True)


ANGLES = RANDOM.normal(size=(12, SIZE // 2)).astype(np.float32)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)
Q, K, V = (draw(BATCH, TIME, HEADS * SIZE) for _ in range(3))
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [np.array([3]), np.array([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])])
def test_rotary_embedding(interleaved, places):
    agree("RotaryEmbedding", [draw(BATCH, TIME, HEADS * SIZE), places, COS, SIN], interleaved=interleaved)
    agree("RotaryEmbedding", [draw(BATCH, HEADS, TIME, SIZE), places, COS, SIN], interleaved=interleaved)


def test_rotary_embedding_of_the_first_features():
    places = np.array([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])
    tables = [COS[:, :4], SIN[:, :4]]
    options = {"rotary_embedding_dim": 8, "num_heads": HEADS}
    agree("RotaryEmbedding", [draw(BATCH, TIME, HEADS * SIZE), places, *tables], **options)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(
    ("given", "options"),
    [
        ([], {}),
        ([None, np.array([4, 2], np.int32)], {}),
        ([None, MASK], {}),
        ([None, MASK], {"mask_filter_value": -1.5}),  # so little that hidden keys are seen
        ([None, MASK, np.where(MASK > 0, 0, 9995.0).astype(np.float32)[:, None, None].repeat(TIME, 2)], {}),
        ([draw(3 * HEADS * SIZE), MASK, draw(1, HEADS, TIME, TIME)], {"scale": 0.2}),
        ([None, None, draw(BATCH, HEADS, TIME, TIME)], {}),
    ],
    ids=["plain", "lengths", "mask", "weak mask", "mask against a bias", "bias", "scores"],
)
def test_multi_head_attention(given, options, causal):
    agree("MultiHeadAttention", [Q, K, V, *given], num_heads=HEADS, unidirectional=causal, **options)


def test_multi_head_attention_of_values_of_another_size_and_number():
    keys, values = draw(BATCH, 7, HEADS * SIZE), draw(BATCH, 7, HEADS * 8)
    agree("MultiHeadAttention", [Q, keys, values], num_heads=HEADS)
    agree("MultiHeadAttention", [Q, keys, values, draw(HEADS * (2 * SIZE + 8))], num_heads=HEADS)


def test_multi_head_attention_across_to_heads_that_are_there():
    keys, values = (draw(BATCH, HEADS, 7, SIZE) for _ in range(2))
    agree("MultiHeadAttention", [Q, keys, values], num_heads=HEADS)


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_with_a_cache(causal):
    past = [draw(BATCH, HEADS, 3, SIZE) for _ in range(2)]
    inputs = [Q, K, V, None, None, None, *past]
    agree("MultiHeadAttention", inputs, 3, num_heads=HEADS, unidirectional=causal)


def test_multi_head_attention_of_packed_inputs_equals_that_of_separate_ones():
    """ONNX Runtime takes packed inputs on other devices only."""
    expected = runtime_outputs(contrib_model("MultiHeadAttention", [Q, K, V], num_heads=HEADS), [Q, K, V])[0]
    heads = [x.reshape(BATCH, TIME, HEADS, SIZE) for x in (Q, K, V)]
    for inputs in ([np.stack(heads, 3)], [Q, np.stack(heads[1:], 3)]):
        (found,) = results_of(contrib_model("MultiHeadAttention", inputs, num_heads=HEADS), inputs)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_multi_head_attention_has_the_gradients_of_the_formula():
    inputs = [Q, K, V, draw(3 * HEADS * SIZE), MASK]
    module = rebuilt(contrib_model("MultiHeadAttention", inputs, num_heads=HEADS, unidirectional=1)).double()
    leaves = [torch.from_numpy(x).double().requires_grad_() if x.dtype == np.float32 else x for x in inputs]
    given = [x if torch.is_tensor(x) else torch.from_numpy(x) for x in leaves]
    module(*given).square().sum().backward()
    found = [leaf.grad for leaf in leaves if torch.is_tensor(leaf)]

    q, k, v, bias = (torch.from_numpy(x).double().requires_grad_() for x in inputs[:4])
    parts = (x + shift for x, shift in zip((q, k, v), bias.chunk(3)))
    heads = [part.reshape(BATCH, TIME, HEADS, SIZE).transpose(1, 2) for part in parts]
    hidden = torch.where(torch.from_numpy(MASK) > 0, 0.0, -10000.0)[:, None, None]
    future = torch.full((TIME, TIME), float("-inf"), dtype=torch.float64).triu(1)
    weights = torch.softmax(heads[0] @ heads[1].mT / SIZE**0.5 + hidden + future, -1)
    (weights @ heads[2]).transpose(1, 2).reshape(BATCH, TIME, -1).square().sum().backward()
    for got, want in zip(found, (q.grad, k.grad, v.grad, bias.grad), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def grouped(query, *rest):
    """Queries, and keys and values of fewer heads."""
    keys, values = (draw(query.shape[0], query.shape[1], GROUPS * SIZE) for _ in range(2))
    return [query, keys, values, *rest]


PROMPT = [
    {},
    {"local_window_size": 2},
    {"softcap": 3.0},
    {"scale": 0.3},
    {"do_rotary": 1},
    {"do_rotary": 1, "rotary_interleaved": 1},
]


@pytest.mark.parametrize("options", PROMPT, ids=str)
@pytest.mark.parametrize("lengths", [[4, 4], [4, 2]])
def test_group_query_attention_of_a_prompt(options, lengths):
    cache = [draw(BATCH, GROUPS, 0, SIZE) for _ in range(2)]
    counts = [np.array(lengths, np.int32), np.array(TIME, np.int32)]
    tables = [COS, SIN] if "do_rotary" in options else []
    valid = [length + 1 for length in lengths]
    inputs = grouped(Q, *cache, *counts, *tables)
    agree("GroupQueryAttention", inputs, 3, valid, num_heads=HEADS, kv_num_heads=GROUPS, **options)


@pytest.mark.parametrize("options", PROMPT, ids=str)
@pytest.mark.parametrize("lengths", [[4, 4], [4, 2]])
def test_group_query_attention_of_a_further_token(options, lengths):
    cache = [draw(BATCH, GROUPS, 4, SIZE) for _ in range(2)]
    counts = [np.array(lengths, np.int32), np.array(5, np.int32)]
    tables = [COS, SIN] if "do_rotary" in options else []
    inputs = grouped(Q[:, :1], *cache, *counts, *tables)
    model = contrib_model("GroupQueryAttention", inputs, 3, num_heads=HEADS, kv_num_heads=GROUPS, **options)
    found, expected = results_of(model, inputs), runtime_outputs(model, inputs)
    np.testing.assert_allclose(found[0].numpy(), expected[0], rtol=1e-4, atol=1e-5)
    for got, want in zip(found[1:], expected[1:], strict=True):
        for row, last in enumerate(lengths):  # what a cache has behind its tokens is nobody's
            np.testing.assert_allclose(got[row, :, : last + 1].numpy(), want[row, :, : last + 1], rtol=1e-4, atol=1e-5)


def test_group_query_attention_of_packed_heads_without_causality_and_with_a_bias():
    cache = [draw(BATCH, GROUPS, 0, SIZE) for _ in range(2)]
    counts = [np.array([4, 4], np.int32), np.array(TIME, np.int32)]
    packed = draw(BATCH, TIME, (HEADS + 2 * GROUPS) * SIZE)
    common = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    agree("GroupQueryAttention", [packed, None, None, *cache, *counts], 3, **common)
    bias = draw(1, 1, TIME, TIME)
    inputs = grouped(Q, *cache, *counts, None, None, None, bias)
    agree("GroupQueryAttention", inputs, 3, **common)


def test_what_is_not_expressed_is_refused_by_name(tmp_path):
    model = contrib_model("GroupQueryAttention", grouped(
        Q, draw(BATCH, GROUPS, 0, SIZE), draw(BATCH, GROUPS, 0, SIZE), np.array([4, 4], np.int32),
        np.array(TIME, np.int32)), 3, num_heads=HEADS, kv_num_heads=GROUPS, smooth_softmax=1)  # fmt: skip
    onnx.save(model, tmp_path / "smooth.onnx")
    with pytest.raises(UnsupportedOperatorError, match="smooth_softmax"):
        export_model(tmp_path / "smooth.onnx", "torch")


def _decoder():
    """A decoder's attention as ONNX Runtime's generators have it: its lengths come from the mask."""
    text = """decoder (float[b, t, 32] x, int64[b, all] mask, float[b, 2, past, 16] keys, float[b, 2, past, 16] values)
        => (float[b, t, 64] y, float[b, 2, all, 16] new_keys, float[b, 2, all, 16] new_values) {
        one = Constant <value_ints = [1]> ()
        count = ReduceSum <keepdims = 0> (mask, one)
        last = Sub (count, one)
        lengths = Cast <to = 6> (last)
        shape = Shape <start = 1> (mask)
        total64 = Squeeze (shape)
        total = Cast <to = 6> (total64)
        q = MatMul (x, wq)
        k = MatMul (x, wk)
        v = MatMul (x, wv)
        y, new_keys, new_values = com.microsoft.GroupQueryAttention
            <num_heads = 4, kv_num_heads = 2, do_rotary = 1> (q, k, v, keys, values, lengths, total, cos, sin)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> {text}')
    weights = {"wq": draw(32, HEADS * SIZE), "wk": draw(32, GROUPS * SIZE), "wv": draw(32, GROUPS * SIZE)}
    for name, array in {**weights, "cos": COS, "sin": SIN}.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def test_a_decoder_is_written_and_runs_with_caches_of_other_lengths(tmp_path):
    onnx.save(_decoder(), tmp_path / "decoder.onnx")

    def batch(rows, time, past):
        caches = {name: draw(rows, GROUPS, past, SIZE) for name in ("keys", "values")}
        return {"x": draw(rows, time, 32), "mask": np.ones((rows, time + past), np.int64), **caches}

    exported = export_model(tmp_path / "decoder.onnx", "torch", inputs=batch(2, 1, 4), path=tmp_path / "decoder.pt2")
    original = interop.load(tmp_path / "decoder.onnx")
    for runtime, sizes in ((interop.load(exported), (3, 5, 0)), (interop.load(exported.path), (3, 1, 9))):
        inputs = batch(*sizes)
        found = runtime.run(inputs)
        for name, want in original.run(inputs).items():
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-4)
