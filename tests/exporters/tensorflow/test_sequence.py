"""Sequences and optionals, of known and unknown length; ONNX Runtime, NumPy and the specification say what they give."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import tensorflow as tf

from exporters._graph_signature import signature_of
from exporters.tensorflow._convert import lower_model
from exporters.tensorflow._savedmodel import write_savedmodel
from interop import Signature
from tests.exporters.tensorflow._graphs import check_model, lower_text, parse, run_tensorflow

X = np.arange(12, dtype=np.float32).reshape(6, 2)

# A sequence of two tensors: as long as the graph is built, or one that only the running graph knows.
STATIC = "s = SequenceConstruct (a, b)"
DYNAMIC = """n = Constant <value_int = 2> () k = Add (n, zero) e = SequenceEmpty <dtype = 1> ()
    s = Loop (k, , e) <body = body (int64 i, bool go, seq(float) t) => (bool on, seq(float) u) {
        on = Identity (go) first = Equal (i, zero)
        item = If (first) <then_branch = t () => (float[P, Q] one) { one = Identity (a) },
                           else_branch = o () => (float[R, S] two) { two = Identity (b) }>
        u = SequenceInsert (t, item) }>"""


def _model(making, rest, outputs):
    return parse(f"g (float[A, 2] a, float[B, 2] b, int64 zero) => ({outputs}) {{ {making} {rest} }}")


@pytest.mark.parametrize("making", [STATIC, DYNAMIC])
@pytest.mark.parametrize(
    ("rest", "outputs"),
    [
        ("y = SequenceLength (s)", "int64 y"),
        ("y = ConcatFromSequence <axis = 0> (s)", "float[C, D] y"),
        ("p = Constant <value_int = -1> () y = SequenceAt (s, p)", "float[C, D] y"),
        ("y = SequenceAt (s, zero)", "float[C, D] y"),
        ("r = SequenceInsert (s, a, zero) y = ConcatFromSequence <axis = 0> (r)", "float[C, D] y"),
        (
            "p = Constant <value_int = -1> () r = SequenceInsert (s, a, p) y = ConcatFromSequence <axis = 0> (r)",
            "float[C, D] y",
        ),
        ("r = SequenceErase (s) y = ConcatFromSequence <axis = 0> (r)", "float[C, D] y"),
        ("r = SequenceErase (s, zero) y = ConcatFromSequence <axis = 0> (r)", "float[C, D] y"),
    ],
)
def test_sequence_of_tensors_of_different_shapes(making, rest, outputs):
    check_model(_model(making, rest, outputs), [X, X[:3] + 20, np.array(0)])


@pytest.mark.parametrize("making", [STATIC, DYNAMIC])
@pytest.mark.parametrize("attributes", ["axis = 1", "axis = -1, new_axis = 1", "axis = 1, new_axis = 1", "axis = -2"])
def test_concat_from_sequence_takes_any_axis(making, attributes):
    rank = 3 if "new_axis" in attributes else 2
    model = _model(making, f"y = ConcatFromSequence <{attributes}> (s)", f"float[{', '.join('CDE'[:rank])}] y")
    check_model(model, [X, X + 20, np.array(0)])


@pytest.mark.parametrize("making", [STATIC, DYNAMIC])
def test_sequence_map_applies_its_body_to_each_item(making):
    body = "body = b (float[F, 2] p, float[G, 2] q) => (float[H, 2] r) { r = Concat <axis = 0> (p, q) }"
    model = _model(making, f"m = SequenceMap (s, a) <{body}> y = ConcatFromSequence <axis = 0> (m)", "float[C, 2] y")
    b = X[:3] + 20
    (y,) = run_tensorflow(lower_model(ir.from_proto(model)), [X, b, np.array(0)])
    np.testing.assert_array_equal(y, np.concatenate([X, X, b, X]))


@pytest.mark.parametrize("making", [STATIC, DYNAMIC])
def test_sequence_has_gradients(making):
    module = lower_model(ir.from_proto(_model(making, "y = ConcatFromSequence <axis = 0> (s)", "float[C, D] y")))
    a, b = tf.constant(X), tf.constant(X[:3] + 20)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        loss = tf.reduce_sum(tf.square(module(a, b, tf.constant(0, tf.int64))["y"]))
    by_a, by_b = tape.gradient(loss, [a, b])
    np.testing.assert_allclose(by_a, 2 * a)
    np.testing.assert_allclose(by_b, 2 * b)


@pytest.mark.parametrize("split", ["", "int64 s", "int64[K] s"])
@pytest.mark.parametrize("axis", [0, 1])
def test_split_to_sequence_in_parts_that_the_running_graph_knows(split, axis):
    given = ", " + split if split else ""
    model = parse(f"""g (float[A, B] x{given}) => (float[C, D] y, int64 n) {{
        parts = SplitToSequence <axis = {axis}> (x{", s" if split else ""})
        n = SequenceLength (parts)
        p = Constant <value_int = -1> ()
        item = SequenceAt (parts, p)
        last = SequenceConstruct (item, item)
        y = ConcatFromSequence <axis = {1 - axis}> (last)
    }}""")
    size = X.shape[axis]
    sizes = {"": [], "int64 s": [np.array(4 if axis == 0 else 1)], "int64[K] s": [np.array([size - 1, 1])]}
    check_model(model, [X, *sizes[split]])


def test_split_to_sequence_without_dims_of_one():
    model = parse("""g (float[6, B] x) => (float[B] y, int64 n) {
        parts = SplitToSequence <axis = 0, keepdims = 0> (x)
        n = SequenceLength (parts)
        p = Constant <value_int = 4> ()
        y = SequenceAt (parts, p)
    }""")
    check_model(model, [X])


BOUNDARY = """g (seq(float[N, 2]) s, optional(float[M]) o, optional(seq(int64[K])) q, float[A, 2] x)
    => (seq(float[N, 2]) t, optional(float[M]) p, optional(seq(int64[K])) r, bool has) {
    t = SequenceInsert (s, x) p = Identity (o) r = Identity (q) has = OptionalHasElement (o)
}"""


def _encoded(arrays, rank, dtype):
    values = np.concatenate([a.reshape(-1) for a in arrays]) if arrays else np.zeros(0, dtype)
    return values, np.array([a.shape for a in arrays], np.int64).reshape(len(arrays), rank)


@pytest.mark.parametrize("present", [True, False])
def test_sequences_cross_the_boundary_of_a_saved_model(tmp_path, present):
    module = lower_text(BOUNDARY)
    write_savedmodel(module, tmp_path / "model")
    loaded = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    items = [X, X[:0], X[:1]]
    numbers = [np.array([3, 4])] if present else []
    parts = dict(zip(("s.values", "s.shapes"), _encoded(items, 2, np.float32)))
    parts |= dict(zip(("o.values", "o.shapes"), _encoded([X[0]] if present else [], 1, np.float32)))
    parts |= dict(zip(("q.values", "q.shapes"), _encoded(numbers, 1, np.int64))) | {"q.present": np.array(present)}
    names = module.interop_metadata["names"]["inputs"]
    results = loaded(**{names[key]: tf.constant(value) for key, value in (parts | {"x": X[2:]}).items()})

    values, shapes = _encoded([*items, X[2:]], 2, np.float32)
    np.testing.assert_array_equal(results["t.values"], values)
    np.testing.assert_array_equal(results["t.shapes"], shapes)
    assert results["p.values"].numpy().tolist() == ([0.0, 1.0] if present else [])
    assert results["p.shapes"].numpy().tolist() == ([[2]] if present else [])
    assert results["r.values"].numpy().tolist() == ([3, 4] if present else [])
    assert bool(results["r.present"]) == bool(results["has"]) == present


def test_sequence_of_tensors_of_different_ranks_fills_up_its_shapes():
    module = lower_text("g (float[A] x, float[B, C] y) => (seq(float) s) { s = SequenceConstruct (x, y) }")
    values, shapes = run_tensorflow(module, [X[0], X[:2]])
    assert values.tolist() == [0, 1, 0, 1, 2, 3]
    assert shapes.tolist() == [[2, -1], [2, 2]]


def test_signature_tells_what_holds_tensors():
    signature = signature_of(ir.from_proto(parse(BOUNDARY)).graph)
    assert [spec.kind for spec in signature.inputs] == ["sequence", "optional", "optional_sequence", "tensor"]
    assert signature.inputs[0].dtype == "float32" and signature.inputs[2].dtype == "int64"
    assert Signature.from_json(signature.to_json()) == signature
    assert "kind" not in signature.to_json()["inputs"][3]


def test_strings_travel_in_sequences():
    module = lower_text("""g (string[A] x, int64 n) => (string[B] y) {
        e = SequenceEmpty <dtype = 8> ()
        s = Loop (n, , e) <body = b (int64 i, bool go, seq(string) t) => (bool on, seq(string) u) {
            on = Identity (go) u = SequenceInsert (t, x) }>
        y = ConcatFromSequence <axis = 0> (s)
    }""")
    (y,) = run_tensorflow(module, [np.array(["a", "b"], object), np.array(2)])
    assert y.tolist() == [b"a", b"b", b"a", b"b"]
