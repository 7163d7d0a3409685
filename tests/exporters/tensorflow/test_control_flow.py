"""If, Loop and Scan: ONNX Runtime and NumPy say what they compute."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from exporters.errors import ExportError
from tests.exporters.tensorflow._graphs import check_model, lower_text, parse, run_tensorflow

X = np.arange(12, dtype=np.float32).reshape(3, 4)

IF = """g (bool c, float[N, M] x) => (float[K] y, int64 n) {
    y, n = If (c) <then_branch = t () => (float[A] a, int64 i) { a = ReduceSum <keepdims = 0> (x, one)
                                                             i = Constant <value_int = 3> () },
                  else_branch = e () => (float[B] b, int64 j) { b = Reshape (x, minus) j = Size (x) }>
}"""


def _with_constants(text):
    """The graph with two vectors that a text cannot declare beside its inputs."""
    declared = "{ one = Constant <value_ints = [1]> () minus = Constant <value_ints = [-1]> ()"
    return text.replace("{", declared, 1)


def test_if_gives_branches_of_different_shapes():
    check_model(parse(_with_constants(IF)), [np.array(True), X], [np.array(False), X])


def test_if_with_a_known_condition_builds_one_branch():
    text = """g (float[N] x) => (float[M] y) {
        c = Constant <value = bool {1}> ()
        y = If (c) <then_branch = t () => (float[A] a) { a = Neg (x) },
                    else_branch = e () => (float[B] b) { b = Foo (x) }>
    }"""
    with pytest.raises(ExportError, match="Foo"):  # the whole model is searched before any work
        lower_text(text)
    module = lower_text(text.replace("Foo", "Exp"))
    operations = {operation.type for operation in module.serving_signature().graph.get_operations()}
    assert "Neg" in operations and not operations & {"Exp", "If", "StatelessIf"}


def test_if_with_branches_of_different_dtypes_is_an_error():
    text = """g (bool c, float[N] x) => (float[M] y) {
        y = If (c) <then_branch = t () => (float[A] a) { a = Neg (x) },
                    else_branch = e () => (int64[B] b) { b = Shape (x) }>
    }"""
    with pytest.raises(ExportError, match="different types"):
        lower_text(text)


def test_if_has_the_gradient_of_the_taken_branch():
    module = lower_text("""g (bool c, float[N] x) => (float[N] y) {
        y = If (c) <then_branch = t () => (float[A] a) { a = Mul (x, x) },
                    else_branch = e () => (float[B] b) { b = Neg (x) }>
    }""")
    x = tf.constant([1.0, 2.0])
    for condition, want in ((True, [2.0, 4.0]), (False, [-1.0, -1.0])):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = module(tf.constant(condition), x)["y"]
        np.testing.assert_allclose(tape.gradient(y, x), want)


GROWING = """g (int64 m, bool c, float[N] x) => (float[A] last, int64[B] counts, float[C, D] rows) {
    last, counts, rows = Loop (m, c, x) <body = b (int64 i, bool go, float[K] s)
        => (bool on, float[L] t, int64 k, float[N] row) {
            t = Concat <axis = 0> (s, x)
            k = Identity (i)
            row = Mul (x, x)
            n = Size (t)
            most = Constant <value_int = 9> ()
            on = Less (n, most)
        }>
}"""


def test_loop_carries_a_state_that_grows():
    model = parse(GROWING)
    x = np.array([1.0, 2.0], np.float32)
    calls = [(2, True), (9, True), (0, True), (5, False)]
    check_model(model, *([np.array(m), np.array(c), x] for m, c in calls))


def test_loop_without_iterations_keeps_dtypes_and_known_dims():
    module = lower_text("""g (int64 m, float[N, 3] x) => (float[A, B] y, float16[C, D, 3] rows) {
        y, rows = Loop (m, , x) <body = b (int64 i, bool go, float[K, 3] s) => (bool on, float[K, 3] t, float16[E, F] r) {
            on = Identity (go)
            t = Neg (s)
            r = Cast <to = 10> (s)
        }>
    }""")
    y, rows = run_tensorflow(module, [np.array(0), np.ones([2, 3], np.float32)])
    assert y.tolist() == [[1.0] * 3] * 2
    assert rows.dtype == np.float16 and rows.shape == (0, 0, 3)
    assert run_tensorflow(module, [np.array(2), np.ones([2, 3], np.float32)])[1].shape == (2, 2, 3)


def test_loop_runs_until_its_condition_ends():
    check_model(
        parse("""g (bool c, int64 x) => (int64 y) {
            y = Loop (, c, x) <body = b (int64 i, bool go, int64 s) => (bool on, int64 t) {
                t = Add (s, s)
                most = Constant <value_int = 1000> ()
                on = Less (t, most)
            }>
        }"""),
        [np.array(True), np.array(3)],
        [np.array(False), np.array(3)],
    )


def test_loop_inside_a_loop_sees_outer_values():
    check_model(
        parse("""g (int64 m, float[N] x) => (float[N] y, float[A, B, N] all) {
            y, all = Loop (m, , x) <body = outer (int64 i, bool go, float[N] s) => (bool on, float[N] t, float[B, N] rows) {
                on = Identity (go)
                one = Constant <value_int = 1> ()
                k = Add (i, one)
                t, rows = Loop (m, , s) <body = inner (int64 j, bool go2, float[N] u) => (bool on2, float[N] v, float[N] row) {
                    on2 = Identity (go2)
                    f = Cast <to = 1> (k)
                    v = Add (u, f)
                    row = Mul (v, x)
                }>
            }>
        }"""),
        [np.array(3), np.array([1.0, 2.0], np.float32)],
    )


def test_loop_has_gradients():
    module = lower_text("""g (int64 m, float[N] x) => (float[N] y, float[A, N] all) {
        y, all = Loop (m, , x) <body = b (int64 i, bool go, float[N] s) => (bool on, float[N] t, float[N] row) {
            on = Identity (go)
            t = Mul (s, x)
            row = Add (s, s)
        }>
    }""")
    x = tf.constant([2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, rows = module(tf.constant(3, tf.int64), x).values()
    np.testing.assert_allclose(tape.gradient(y, x), 4 * x**3)  # y is x ** 4
    np.testing.assert_allclose(tape.gradient(rows, x), 2 * (1 + 2 * x + 3 * x**2))


def test_scan_goes_along_any_axis_in_both_directions():
    text = """g (float[A] s, float[A, T] x, float[T, A] w) => (float[A] y, float[A, T] up, float[T, A] down) {
        y, up, down = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
                            scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
                            body = b (float[A] p, float[A] q, float[A] r) => (float[A] t, float[A] u, float[A] v) {
                                t = Add (p, q)
                                u = Mul (t, r)
                                v = Sub (t, r)
                            }> (s, x, w)
    }"""
    random = np.random.default_rng(0)
    s, x, w = (random.normal(size=shape).astype(np.float32) for shape in ((2,), (2, 5), (5, 2)))
    check_model(parse(text), [s, x, w])


def test_scan_has_gradients():
    module = lower_text("""g (float[A] s, float[T, A] x) => (float[A] y, float[T, A] all) {
        y, all = Scan <num_scan_inputs = 1, body = b (float[A] p, float[A] q) => (float[A] t, float[A] u) {
            t = Mul (p, q)
            u = Identity (t)
        }> (s, x)
    }""")
    s, x = tf.constant([2.0]), tf.constant([[3.0], [5.0]])
    with tf.GradientTape() as tape:
        tape.watch([s, x])
        y = module(s, x)["y"]
    by_state, by_input = tape.gradient(y, [s, x])
    np.testing.assert_allclose(by_state, [15.0])
    np.testing.assert_allclose(by_input, [[10.0], [6.0]])
