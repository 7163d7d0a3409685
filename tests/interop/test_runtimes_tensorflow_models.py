"""Live TensorFlow models, called through the runtime as they are called themselves."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

import interop
from interop import InputError

ROWS = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


def _functional(outputs=lambda hidden: hidden):
    inputs = keras.Input((3,), name="features")
    return keras.Model(inputs, outputs(keras.layers.Dense(2, name="score")(inputs)))


def test_a_keras_model_runs_in_the_framework_of_its_inputs():
    model = _functional()
    runtime = interop.load(model)
    assert str(runtime.signature) == "(features: float32[?, 3]) -> (score: float32[?, 2])"
    result = runtime(torch.from_numpy(ROWS))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result.numpy(), model(ROWS).numpy(), rtol=1e-6)


def test_lists_dicts_and_single_lists_are_called_as_they_are():
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    listed = interop.load(keras.Model([a, b], [a - b, a * b]))
    difference, product = listed([ROWS, ROWS * 2])
    np.testing.assert_allclose(difference, -ROWS, rtol=1e-6)
    np.testing.assert_allclose(product, ROWS * ROWS * 2, rtol=1e-6)
    keyed = interop.load(keras.Model({"left": a, "right": [b]}, {"sum": a + b}))
    assert keyed.signature.input_names == ("left", "b")
    np.testing.assert_allclose(keyed({"left": ROWS, "right": [ROWS]})["sum"], ROWS * 2, rtol=1e-6)
    np.testing.assert_allclose(interop.load(keras.Model([a], a * 2.0))(ROWS), ROWS * 2, rtol=1e-6)


def test_dropout_is_off():
    model = _functional(keras.layers.Dropout(0.9))
    runtime = interop.load(model)
    np.testing.assert_array_equal(runtime(ROWS), runtime(ROWS))
    np.testing.assert_allclose(runtime(ROWS), model(ROWS, training=False).numpy(), rtol=1e-6)


def test_a_function_is_known_by_its_signature_or_by_an_example():
    @tf.function
    def scale(x, *, by):
        return {"scaled": x * by, "by": by}

    with pytest.raises(InputError, match=r"input_signature.*inputs="):
        interop.load(scale)
    concrete = scale.get_concrete_function(tf.TensorSpec([None, 3]), by=tf.TensorSpec([]))
    result = interop.load(concrete)(ROWS, by=np.float32(3))
    np.testing.assert_allclose(result["scaled"], ROWS * 3, rtol=1e-6)


def test_an_example_frees_the_batch_only():
    runtime = interop.load(tf.function(lambda x, table: tf.gather(table, x)), inputs=(np.zeros(4, np.int64), ROWS[:2]))
    assert [spec.shape for spec in runtime.signature.inputs] == [(None,), (2, 3)]
    assert runtime(np.array([0, 1, 1, 0, 1]), ROWS[:2]).shape == (5, 3)


def test_a_module_with_one_function_is_that_function():
    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3])])
        def serve(self, x):
            return tf.reduce_sum(x, 1)

    np.testing.assert_allclose(interop.load(Net())(ROWS), ROWS.sum(1), rtol=1e-5)


def test_a_ragged_result_is_refused():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def ragged(lengths):
        return tf.ragged.range(lengths)

    with pytest.raises(InputError, match="RaggedTensor"):
        interop.load(ragged)


def test_outputs_can_have_other_names():
    runtime = interop.load(_functional()).with_outputs({"score": "label"})
    assert runtime.signature.output_names == ("label",)
    np.testing.assert_allclose(runtime.run({"features": ROWS})["label"], runtime(ROWS), rtol=0)
