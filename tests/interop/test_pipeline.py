"""tf.data prepares, torch trains: batch after batch by DLPack, in TensorFlow's own memory."""

from __future__ import annotations

import gc

import numpy as np
import psutil
import pytest
import tensorflow as tf
import torch

import interop
from benchmarks import pipeline
from interop.frameworks import framework

BATCHES = 10_000
_ROW = 256  # floats: a batch is 32 KB, so that one kept batch in ten would show


def _dataset():
    rng = np.random.default_rng(0)
    features = rng.integers(0, 255, size=(512, _ROW), dtype=np.uint8)
    labels = (features[:, :8].sum(1) > 8 * 127).astype(np.float32)

    def prepare(row, label):
        return tf.cast(row, tf.float32) / 127.5 - 1.0, label

    return tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(512, seed=0).repeat().map(prepare).batch(32)


def test_torch_trains_on_batches_of_tf_data():
    torch.manual_seed(0)
    model = torch.nn.Linear(_ROW, 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for batch in _dataset().take(200):
        x, y = interop.convert(batch, "torch", copy=False)
        assert x.data_ptr() == framework("tensorflow").address(batch[0])
        assert y.data_ptr() == framework("tensorflow").address(batch[1])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])


def test_memory_is_flat_over_ten_thousand_batches():
    """32 KB a batch: were one batch in ten kept, 30 MB would be."""
    process, source = psutil.Process(), iter(_dataset().prefetch(2))

    def draw(count):
        total = 0.0
        for _ in range(count):
            x, y = interop.convert(next(source), "torch", copy=False)
            total += float(x[0, 0]) + float(y[0])
        gc.collect()
        return total

    draw(1_000)
    before = process.memory_info().rss
    draw(BATCHES)
    assert process.memory_info().rss - before < 10 << 20


def test_a_batch_outlives_its_pipeline():
    tensors = [interop.convert(batch[0], "torch") for batch in _dataset().take(20)]
    values = [tensor.clone() for tensor in tensors]
    gc.collect()
    for _ in _dataset().take(50):
        pass
    assert all(torch.equal(*pair) for pair in zip(tensors, values))


@pytest.mark.parametrize("copy", [None, True])
def test_a_cache_of_batches_is_shared_with_who_writes(copy):
    """``cache()`` after ``batch`` keeps the tensors that it gave out, so a write in torch is seen in the next epoch."""
    dataset = tf.data.Dataset.from_tensor_slices(np.ones((64, 64), np.float32)).batch(32).cache()
    for batch in dataset:
        interop.convert(batch, "torch", copy=copy).add_(1)
    assert {float(tf.reduce_max(batch)) for batch in dataset} == ({2.0} if copy is None else {1.0})


def test_the_benchmark_measures_both_routes():
    found = pipeline.measure((32, 64), 1, 0.02)
    assert found.keys() == {"convert", "numpy"}
    assert all(cost > 0 and speed > 0 for cost, speed in found.values())
