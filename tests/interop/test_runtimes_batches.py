"""``Runtime.map`` and ``Runtime.benchmark``."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf
import torch
from onnx import TensorProto, helper

import interop
from interop.errors import InputError
from interop.runtimes import Benchmark
from tests.interop.runtime_models import Nested, identity_onnx, info, make_onnx, nested_onnx, nested_signature


@pytest.fixture(scope="module")
def nested():
    return interop.load(nested_onnx(nested_signature()))


def samples(count: int):
    return [(torch.full((3,), float(i)), {"k": torch.full((3,), float(i) / 2)}) for i in range(count)]


@pytest.mark.parametrize("batch_size", [1, 3, 4, 100])
def test_samples_are_stacked_and_results_taken_apart(nested, batch_size):
    results = list(nested.map(samples(10), batch_size=batch_size))
    assert len(results) == 10
    for (x, batch), result in zip(samples(10), results):
        expected = Nested()(x, batch)
        assert torch.equal(result["total"], expected["total"]) and torch.equal(result["parts"][0], expected["parts"][0])


def test_batches_pass_as_they_are(nested):
    items = [(torch.full((n, 3), 1.0), {"k": torch.zeros(n, 3)}) for n in (2, 5)]
    assert [result["total"].shape[0] for result in nested.map(items)] == [2, 5]


def test_items_may_be_named_or_single_and_of_any_framework(nested):
    named = [{"x": np.full(3, i, np.float32), "batch_k": np.zeros(3, np.float32)} for i in range(3)]
    assert [result["total"].tolist() for result in nested.map(named, batch_size=2)] == [[2 * i] * 3 for i in range(3)]
    single = interop.load(identity_onnx(TensorProto.FLOAT, ("n", 2), "Neg"))
    images = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(np.stack(list(single.map(images, batch_size=3))), -images)
    tensors = list(single.map(tf.constant(images), batch_size=3))
    assert all(isinstance(item, tf.Tensor) for item in tensors)
    np.testing.assert_array_equal(tf.stack(tensors), -images)


def test_a_batch_is_run_before_more_than_the_next_is_read(nested):
    read = []

    def source():
        for index, item in enumerate(samples(100)):
            read.append(index)
            yield item

    results = nested.map(source(), batch_size=4)
    assert read == []
    next(results)
    assert len(read) == 4


def test_a_fixed_batch_is_filled_up_at_the_end():
    runtime = interop.load(identity_onnx(TensorProto.FLOAT, (4, 2), "Neg"))
    images = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.testing.assert_array_equal(np.stack(list(runtime.map(images, batch_size=4))), -images)
    with pytest.raises(InputError, match=r"batches of \[4\], got batch_size=3"):
        list(runtime.map(images, batch_size=3))


def test_outputs_without_a_batch_axis_are_refused():
    model = make_onnx(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)],
        [info("x", TensorProto.FLOAT, ["n", 2])],
        [info("y", TensorProto.FLOAT, [])],
    )
    with pytest.raises(InputError, match="leave batch_size out"):
        list(interop.load(model).map(np.ones((4, 2), np.float32), batch_size=2))


def test_bad_items_and_sizes_are_refused(nested):
    with pytest.raises(InputError, match="at least 1"):
        nested.map([], batch_size=0)
    with pytest.raises(InputError, match="expects 3"):
        list(nested.map([(torch.ones(4), {"k": torch.ones(4)})], batch_size=1))
    assert list(nested.map([], batch_size=2)) == []


def test_the_progress_bar_is_on_stderr_only(nested, capsys):
    assert len(list(nested.map(samples(3), batch_size=2, progress=True))) == 3
    assert capsys.readouterr().out == ""


def test_benchmark_times_the_call():
    class Sleeper(torch.nn.Module):
        def forward(self, x):
            time.sleep(0.004)
            return x

        def example_inputs(self):
            return (torch.ones(2, 3),)

    result = interop.load(Sleeper()).benchmark(seconds=0.1)
    assert isinstance(result, Benchmark) and 0.004 <= result.low <= result.median <= result.high < 0.1
    assert result.calls >= 5 and "torch: median" in str(result) and " ms" in str(result)


def test_benchmark_makes_inputs_of_the_sizes_asked_for(nested, monkeypatch):
    seen = []
    monkeypatch.setattr(nested, "run", lambda inputs: seen.append({k: (v.dtype, v.shape) for k, v in inputs.items()}))
    nested.benchmark(sizes={"rows": 7}, seconds=0.01)
    assert seen[0] == {"x": (np.float32, (7, 3)), "batch_k": (np.float32, (7, 3))}
    nested.benchmark({"x": np.ones((1, 3)), "batch_k": np.ones((1, 3))}, seconds=0.01)
    assert seen[-1]["x"] == (np.float64, (1, 3))
