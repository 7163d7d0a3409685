"""TensorFlow models to ONNX: TensorFlow's own values are the truth."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
import torch

import interop
import models
from exporters import TranslationError, UnsupportedOperatorError, export_model
from exporters.onnx.from_tensorflow import _freeze
from interop import InputError

NEGATIVES = [-7, -6, -1, 0, 1, 6, 7, -(2**31)]
DIVISORS = [3, -3, 5, -5, -1, 4, -4, 3]


def _function(*specs):
    return lambda python: tf.function(python, input_signature=[tf.TensorSpec(shape, dtype) for shape, dtype in specs])


def _compare(function, *arrays, rtol=0.0, atol=0.0, verify=True):
    """Export a tf.function and compare it with its own eager values on these inputs."""
    expected = [value.numpy() for value in tf.nest.flatten(function.python_function(*map(tf.constant, arrays)))]
    found = tf.nest.flatten(export_model(function, "onnx", verify=verify)(*arrays))
    for mine, right in zip(found, expected, strict=True):
        assert mine.dtype == right.dtype
        np.testing.assert_allclose(mine, right, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8", "float32"])
def test_division_rounds_down_as_in_tensorflow(dtype):
    @_function(([None], dtype), ([None], dtype))
    def divide(x, y):
        return x // y, x % y

    left, right = np.array(NEGATIVES), np.array(DIVISORS)
    if dtype in ("int8", "uint8"):
        left = np.where(left < -128, -128, left)
    if dtype == "uint8":
        left, right = np.abs(left), np.abs(right)
    _compare(divide, left.astype(dtype), right.astype(dtype))


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_truncatemod_takes_the_sign_of_the_dividend(dtype):
    @_function(([None], dtype), ([None], dtype))
    def divide(x, y):
        return tf.truncatemod(x, y)

    _compare(divide, np.array(NEGATIVES, dtype), np.array(DIVISORS, dtype))


def test_division_of_uint64_is_refused_by_name():
    @_function(([None], "uint64"), ([None], "uint64"))
    def divide(x, y):
        return tf.raw_ops.FloorDiv(x=x, y=y)

    with pytest.raises(UnsupportedOperatorError, match=r"FloorDiv at node .*uint64"):
        export_model(divide, "onnx")


@pytest.mark.parametrize("method", ["area", "bicubic", "lanczos3", "mitchellcubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_resize_that_onnx_does_not_have(method, antialias):
    @_function(([None, 5, 8, 2], "float32"))
    def resize(x):
        return tf.image.resize(x, (3, 11), method=method, antialias=antialias)

    _compare(resize, np.random.default_rng(0).normal(size=(2, 5, 8, 2)).astype("float32"), atol=2e-6)


def test_resize_of_an_unknown_size_is_refused_by_name(tmp_path):
    @_function(([None, None, 8, 2], "float32"))
    def resize(x):
        return tf.image.resize(x, (3, 11), method="area")

    with pytest.raises(UnsupportedOperatorError, match=r"ResizeArea at node .*fixed size"):
        export_model(resize, "onnx", path=tmp_path / "m.onnx")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_scatter_nd_sums_duplicates(dtype):
    @_function(([None, 1], "int32"), ([None, 2], dtype))
    def scatter(indices, updates):
        return tf.scatter_nd(indices, updates, [4, 2])

    updates = np.arange(8).reshape(4, 2).astype(dtype)
    _compare(scatter, np.array([[1], [3], [1], [1]], np.int32), updates)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_of_an_index_outside_is_off(axis):
    @_function(([None, 3], "int32"))
    def encode(x):
        return tf.one_hot(x, 4, axis=axis), tf.one_hot(x, 4, on_value=7, off_value=-2, axis=axis, dtype="int64")

    _compare(encode, np.array([[-1, 0, 3], [4, -4, 2]], np.int32))


def test_exact_gelu_loads_and_agrees():
    @_function(([None], "float32"))
    def gelu(x):
        return tf.nn.gelu(x), tf.math.erfc(x)

    _compare(gelu, np.linspace(-8, 8, 101, dtype="float32"), atol=5e-7)


def test_products_with_a_logarithm_are_zero_at_zero():
    @_function(([None], "float32"), ([None], "float32"))
    def combine(x, y):
        return tf.math.xlogy(x, y), tf.math.xlog1py(x, y), tf.math.xdivy(x, y), tf.math.divide_no_nan(x, y)

    _compare(combine, np.array([0, 0, 2, 3], "float32"), np.array([0, 5, 0.5, 4], "float32"), rtol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_of_equal_values(side):
    @_function(([None, 4], "float32"), ([None, 5], "float32"))
    def search(table, values):
        return tf.searchsorted(table, values, side=side)

    table = np.array([[1, 2, 2, 3], [0, 0, 5, 9]], "float32")
    _compare(
        search, table, np.array([[0, 1, 2, 3, 4], [-1, 0, 5, 6, 10]], "float32"), verify=False
    )  # made inputs are not sorted


def test_matrix_inverse_and_its_adjoint():
    @_function(([None, 3, 3], "float32"))
    def invert(x):
        return tf.linalg.inv(x), tf.linalg.inv(x, adjoint=True)

    matrices = np.eye(3, dtype="float32") * 4 + np.random.default_rng(0).normal(size=(2, 3, 3)).astype("float32")
    _compare(invert, matrices, atol=1e-6)


def _loop(place):
    @_function(([4, 2], "float32"))
    def fill(x):
        def body(step, rows):
            return step + 1, rows.write(place(step), x[step] * 2)

        rows = tf.TensorArray("float32", 4, element_shape=[2])
        return tf.while_loop(lambda step, _: step < 4, body, (0, rows), maximum_iterations=4)[1].stack()

    return fill


@pytest.mark.parametrize("place", [lambda step: step, lambda step: 3 - step])
def test_rows_of_a_loop_stand_where_they_were_written(place):
    _compare(_loop(place), np.arange(8, dtype="float32").reshape(4, 2))


def test_rows_in_another_order_are_refused():
    with pytest.raises(UnsupportedOperatorError, match="order that an ONNX Loop does not have"):
        export_model(_loop(lambda step: (step * 3) % 4), "onnx")


def test_unknown_operators_are_all_named_before_a_file_is_written(tmp_path):
    @_function(([None, 3, 3], "float32"))
    def unknown(x):
        return tf.linalg.cholesky(x), tf.linalg.qr(x)[0]

    with pytest.raises(UnsupportedOperatorError) as caught:
        export_model(unknown, "onnx", path=tmp_path / "m.onnx", verify=False)
    assert {row.operator for row in caught.value.unsupported} == {"Cholesky", "Qr"}
    assert not any(tmp_path.iterdir())


def test_bfloat16_is_refused_not_made_float16():
    @_function(([None, 3], "bfloat16"))
    def square(x):
        return x * x

    with pytest.raises(UnsupportedOperatorError, match=r"Mul at node .*bfloat16 as float16"):
        export_model(square, "onnx")


def test_outputs_may_be_inputs_constants_or_the_same_twice():
    @_function(([None, 3], "float32"), ([2], "int32"))
    def various(x, unused):
        return x, x + 1, x + 1, tf.constant([2.0]), tf.shape(x)[0]

    rows = np.arange(6, dtype="float32").reshape(2, 3)
    _compare(various, rows, np.zeros(2, np.int32))


def test_names_of_outputs_win_over_names_inside():
    @_function(([3, 3], "float32"))
    def clash(relu):
        return {"MatMul": tf.nn.relu(relu), "a/b:0": relu @ relu, "Relu": relu * 2}

    found = export_model(clash, "onnx")
    x = np.linspace(-1, 1, 9, dtype="float32").reshape(3, 3)
    np.testing.assert_allclose(found(x)["a/b:0"], x @ x, rtol=1e-6)
    np.testing.assert_array_equal(found(x)["MatMul"], np.maximum(x, 0))


def test_open_dims_are_one_where_the_model_needs_that():
    @_function(([None, 2], "float32"), ([None, 2], "float32"))
    def add(x, y):
        return x + y

    @_function(([None, 2], "float32"), ([None, 2], "float32"))
    def join(x, y):
        return tf.concat([x, y], 0)

    assert export_model(add, "onnx").signature.symbols == ("batch",)
    assert export_model(join, "onnx").signature.symbols == ("x_batch", "y_batch")


def _sequential():
    keras.utils.set_random_seed(0)
    layers = [keras.Input((6,), name="features"), keras.layers.Dense(5, "gelu", name="hidden")]
    return keras.Sequential([*layers, keras.layers.Dense(3, "softmax", name="label")])


def test_keras_sequential_keeps_names_batch_and_values():
    model = _sequential()
    exported = export_model(model, "onnx")
    assert str(exported.signature) == "(features: float32[batch, 6]) -> (label: float32[batch, 3])"
    assert exported.parity.passed and len(exported.parity.cases) >= 3
    rows = np.random.default_rng(0).normal(size=(7, 6)).astype("float32")
    np.testing.assert_allclose(exported(rows), model(rows).numpy(), atol=1e-6)


def test_keras_functional_with_lists_and_recurrence():
    tokens, extra = keras.Input((None,), dtype="int32", name="tokens"), keras.Input((4,), name="extra")
    hidden = keras.layers.Bidirectional(keras.layers.LSTM(4))(keras.layers.Embedding(9, 3)(tokens))
    hidden = keras.layers.Concatenate()([hidden, extra])
    model = keras.Model([tokens, extra], [keras.layers.Dense(2, name="score")(hidden), hidden])
    exported = export_model(model, "onnx")
    assert exported.signature.input_names == ("tokens", "extra")
    assert exported.signature.output_names[0] == "score"
    ids, numbers = np.array([[1, 2, 8], [0, 3, 3]], np.int32), np.ones((2, 4), np.float32)
    for mine, right in zip(exported([ids, numbers]), model([ids, numbers]), strict=True):
        np.testing.assert_allclose(mine, right.numpy(), atol=1e-6)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = keras.layers.Embedding(5, 3)

    def call(self, inputs):
        return {"sum": tf.reduce_sum(self.embed(inputs["ids"]), 1) + inputs["bias"], "ids": inputs["ids"]}


def test_keras_subclassed_takes_and_gives_dicts():
    model = Subclassed()
    batch = {"ids": np.array([[1, 4], [2, 0]], np.int64), "bias": np.ones((2, 3), np.float32)}
    exported = export_model(model, "onnx", inputs=batch)
    assert exported.signature.input_names == ("ids", "bias") and exported.signature.symbols == ("batch",)
    assert exported.signature.output_names == ("sum", "ids_output")
    np.testing.assert_array_equal(exported(batch)["ids"], batch["ids"])
    np.testing.assert_allclose(exported(batch)["sum"], model(batch)["sum"].numpy(), atol=1e-6)


def test_a_model_that_was_never_called_needs_an_example():
    with pytest.raises(InputError, match="inputs="):
        export_model(Subclassed(), "onnx")


class Scaled(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(tf.range(8, dtype=tf.float32)[:, tf.newaxis] / 8)
        self.offset = tf.constant([3.0])  # an eager tensor that the function captures

    @tf.function
    def __call__(self, x, scale):
        return x @ self.weight * scale + self.offset


def test_tf_module_by_example_keeps_its_captured_values():
    model = Scaled()
    x, scale = np.ones((3, 8), np.float32), np.full((1, 1), 2, np.float32)
    exported = export_model(model, "onnx", inputs=(x, scale))
    assert exported.signature.input_names == ("x", "scale")
    np.testing.assert_allclose(exported(x, scale), model(x, scale).numpy(), rtol=1e-6)


def test_savedmodel_of_keras(tmp_path):
    model = _sequential()
    model.export(tmp_path / "saved", verbose=False)
    exported = export_model(tmp_path / "saved", "onnx", path=tmp_path / "m.onnx")
    assert exported.signature.input_names == ("features",)
    report = interop.check(str(tmp_path / "saved"), str(tmp_path / "m.onnx"))
    assert report.passed


@pytest.mark.parametrize("name", ["dict_model", "lstm_tagger", "vit"])
def test_torch_to_tensorflow_to_onnx_is_the_same_model(name, tmp_path):
    model = models.load(name)
    first = export_model(model, "tensorflow", path=tmp_path / "saved", verify=False)
    second = export_model(tmp_path / "saved", "onnx", path=tmp_path / "m.onnx")
    assert second.signature == first.signature
    assert interop.check(model, str(tmp_path / "m.onnx")).passed


def test_another_signature_of_a_savedmodel_is_a_source(tmp_path):
    options = {"signatures": {"label": "label"}}
    export_model(models.load("dict_model"), "tensorflow", path=tmp_path / "saved", verify=False, options=options)
    exported = export_model(interop.load(tmp_path / "saved", signature="label"), "onnx")
    assert exported.signature.output_names == ("label",)


def test_a_tensorflow_export_in_memory_is_a_source():
    model = models.load("mlp")
    exported = export_model(export_model(model, "tensorflow", verify=False), "onnx")
    assert interop.check(model, exported).passed


@pytest.mark.parametrize("target", ["torch", "tensorflow"])
def test_other_formats_take_tensorflow_models(target):
    model = _sequential()
    rows = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    exported = export_model(model, target)
    assert exported.signature.input_names == ("features",)
    np.testing.assert_allclose(np.asarray(exported(rows)), model(rows).numpy(), atol=1e-6)


def _attention():
    keras.utils.set_random_seed(0)
    x = keras.Input((4, 6), name="x")
    hidden = keras.layers.MultiHeadAttention(2, 3, name="attention")(x, x)
    return keras.Model(x, keras.layers.GRU(5, name="gru")(hidden), name="model")


def _content(model, path):
    export_model(model, "onnx", path=path, verify=False)
    return path.read_bytes()


def test_two_exports_are_equal_bytes(tmp_path):
    model = _attention()
    first = _content(model, tmp_path / "a.onnx")
    _content(_sequential(), tmp_path / "other.onnx")  # moves every counter
    assert first == _content(model, tmp_path / "b.onnx")


def test_names_hold_no_counters_of_the_process(tmp_path):
    _content(_attention(), tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx").graph
    names = [name for node in graph.node for name in (node.name, *node.output)] + [
        item.name for item in graph.initializer
    ]
    assert names and not [name for name in names if "__" in name or "PartitionedCall" in name]


def test_opset_is_honoured_or_refused():
    model = _sequential()
    assert export_model(model, "onnx", options={"opset": 16}).artifact.model.opset_imports[""] == 16
    for opset in (15, 21):
        with pytest.raises(TranslationError, match="opset 16 to 18"):
            export_model(model, "onnx", options={"opset": opset})


def test_a_model_beyond_one_message_is_refused(monkeypatch):
    monkeypatch.setattr(_freeze, "LIMIT_BYTES", 8)
    with pytest.raises(TranslationError, match="2 GiB"):
        export_model(_sequential(), "onnx")


def test_the_model_stays_as_it_was():
    model = _sequential()
    before = [weight.numpy().copy() for weight in model.weights]
    export_model(model, "onnx")
    assert all(np.array_equal(mine, weight.numpy()) for mine, weight in zip(before, model.weights, strict=True))


def test_importing_the_room_loads_no_tensorflow():
    code = "import sys, exporters.onnx; print('tensorflow' in sys.modules, 'tf2onnx' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == ["False", "False"]


def test_torch_models_are_no_tensorflow_source():
    from exporters._sources import is_tensorflow

    assert not is_tensorflow(torch.nn.Linear(2, 2)) and not is_tensorflow("model.onnx")
