"""An exported model trains: the same gradients, the same step, and a loop that learns."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from torch.utils import _pytree as pytree

import models
from exporters import OptionsError, export_model
from models import digits


def _trainable(model):
    return export_model(model, "tensorflow", options={"trainable": True}).artifact.module


def _arguments(model):
    return model.example_inputs(), model.example_kwargs() if hasattr(model, "example_kwargs") else {}


def _torch_loss(model, args, kwargs):
    floats = [leaf for leaf in pytree.tree_leaves(model(*args, **kwargs)) if leaf.is_floating_point()]
    return sum((leaf**2).sum() for leaf in floats)


def _tensorflow_loss(module, args, kwargs):
    tensors = [tf.constant(leaf.numpy()) for leaf in pytree.tree_leaves((args, kwargs)) if torch.is_tensor(leaf)]
    floats = [result for result in module(*tensors).values() if result.dtype.is_floating]
    return tf.add_n([tf.reduce_sum(result**2) for result in floats])


@pytest.mark.parametrize("name", models.available())
def test_each_parameter_is_one_variable_and_its_gradient_is_torch_s(name):
    model = models.load(name)
    args, kwargs = _arguments(model)
    module = _trainable(model)
    parameters = dict(model.named_parameters())
    assert {n for n, v in module.weights.items() if v.trainable} == set(parameters)
    for key, parameter in parameters.items():
        np.testing.assert_array_equal(module.weights[key].numpy(), parameter.detach().numpy())

    _torch_loss(model, args, kwargs).backward()
    with tf.GradientTape() as tape:
        loss = _tensorflow_loss(module, args, kwargs)
    gradients = tape.gradient(loss, {key: module.weights[key] for key in parameters})
    # A gradient that is zero but for rounding (an attention key's bias) is judged on the scale of the others.
    noise = 1e-6 * max(
        float(parameter.grad.abs().max()) for parameter in parameters.values() if parameter.grad is not None
    )
    for key, parameter in parameters.items():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        got = (
            np.zeros(expected.shape, np.float32)
            if gradients[key] is None
            else tf.convert_to_tensor(gradients[key]).numpy()
        )
        tolerance = 3e-4 * float(expected.abs().max()) + noise
        np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=tolerance, err_msg=key)


def test_running_statistics_are_variables_that_do_not_train():
    model = models.load("digits")
    module = _trainable(model)
    statistics = {name for name, _ in model.named_buffers() if "running" in name}
    assert statistics and statistics <= set(module.weights)
    assert not any(module.weights[name].trainable for name in statistics)


def test_without_trainable_no_variable_trains():
    module = export_model(models.load("mlp"), "tensorflow").artifact.module
    assert module.weights and module.trainable_variables == ()


def test_one_sgd_step_is_the_same_step():
    model = models.load("digits")
    module = _trainable(model)
    images, labels = digits.test_set()
    images, labels = images[:32], labels[:32]

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()

    with tf.GradientTape() as tape:
        logits = module(tf.constant(images.numpy()))["output"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.constant(labels.numpy()), logits)
        loss = tf.reduce_mean(losses)
    variables = module.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(0.1 * gradient)

    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(module.weights[name].numpy(), parameter.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_fine_tuning_an_exported_model_learns_a_new_task_and_survives_saving(tmp_path):
    exported = export_model(models.load("digits"), "tensorflow", options={"trainable": True})
    module = exported.artifact.module
    images, labels = digits.test_set()
    images = tf.constant(images.numpy())
    odd = tf.constant((labels.numpy() % 2).astype(np.int64))  # the new task: odd or even, on the first two logits
    optimizer = tf.keras.optimizers.Adam(1e-3)

    def loss():
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(odd, module(images)["output"][:, :2]))

    before = float(loss())
    for _ in range(15):
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.apply_gradients(zip(tape.gradient(value, module.trainable_variables), module.trainable_variables))
    assert float(loss()) < before / 2

    exported.save(tmp_path / "tuned")
    reloaded = tf.saved_model.load(str(tmp_path / "tuned")).signatures["serving_default"]
    np.testing.assert_allclose(reloaded(image=images)["output"], module(images)["output"], rtol=1e-5, atol=1e-5)


def test_training_signature_normalises_with_the_batch_and_moves_the_statistics():
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    x = torch.randn(8, 1, 6, 6)
    module = export_model(model, "tensorflow", inputs=x, options={"training": True}).artifact.module
    model.train()
    expected = model(x).detach()
    result = module(tf.constant(x.numpy()), training=True)["output"]
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-4, atol=1e-5)
    for name in ("1.running_mean", "1.running_var"):
        np.testing.assert_allclose(module.weights[name].numpy(), model.state_dict()[name].numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(  # and the serving signature uses the moved statistics
        module(tf.constant(x.numpy()))["output"], model.eval()(x).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_dropout_drops_in_training_only(tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Dropout(0.5)).eval()
    x = torch.rand(16, 1, 12, 12)
    exported = export_model(model, "tensorflow", inputs=x, options={"training": True}, path=tmp_path / "m")
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    feeds = {"input": tf.constant(x.numpy())}
    served = loaded.signatures["serving_default"](**feeds)["output"].numpy()
    np.testing.assert_allclose(served, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    first, second = (loaded.signatures["training"](**feeds)["output"].numpy() for _ in range(2))
    zeros = ((first == 0) & (served != 0)).sum() / (served != 0).sum()
    assert 0.4 < zeros < 0.6 and not np.array_equal(first == 0, second == 0)
    assert exported.parity.passed


def test_a_module_without_a_training_signature_says_so():
    module = export_model(models.load("mlp"), "tensorflow", options={"trainable": True}).artifact.module
    with pytest.raises(OptionsError, match="training"):
        module(tf.ones((2, 16)), training=True)
