"""JAX arrays that do not lie in memory as their shape says: JAX makes unaligned copies of them, which abort TensorFlow."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

import interop

TARGETS = ("numpy", "torch", "tensorflow", "onnxruntime")


def odd_strides():
    """Row-major memory whose axis of one element has another stride than NumPy would give it."""
    return torch.arange(6.0 * 64).reshape(6, 1, 8, 8).permute(0, 2, 3, 1)


def turned(dtype="float32"):
    """A matrix that JAX keeps column by column."""
    place = Format(Layout(major_to_minor=(1, 0)), SingleDeviceSharding(jax.devices()[0]))
    values = jax.device_put(np.arange(12, dtype=dtype).reshape(3, 4), place)
    assert values.format.layout.major_to_minor == (1, 0)
    return values


def test_strides_of_axes_of_one_element_make_no_odd_layout():
    source = odd_strides()
    assert source.is_contiguous()
    assert source.stride()[3] != 1
    there = interop.convert(source, "jax", copy=False)
    assert there.format.layout.major_to_minor == (0, 1, 2, 3)
    assert there.unsafe_buffer_pointer() == source.data_ptr()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("again", [False, True], ids=["first", "shortcut"])
def test_memory_of_odd_strides_goes_on_as_a_view(target, again):
    there = interop.convert(odd_strides(), "jax")
    for _ in range(1 + again):
        result = interop.convert(there, target, copy=False)
    assert interop.frameworks.framework(target).address(result) == there.unsafe_buffer_pointer()
    np.testing.assert_array_equal(interop.convert(result, "numpy"), odd_strides().numpy())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("again", [False, True], ids=["first", "shortcut"])
def test_another_order_of_axes_is_copied(target, again):
    values = turned()
    assert interop.explain(values, target).outcome == "copy"
    if again:
        interop.convert(jax.numpy.ones((3, 4)), target)  # the pair has its shortcut now
    result = interop.convert(values, target)
    np.testing.assert_array_equal(interop.convert(result, "numpy"), np.arange(12, dtype="float32").reshape(3, 4))
    if target != "numpy":
        assert interop.frameworks.framework(target).address(result) % 64 == 0
    with pytest.raises(interop.CopyRequiredError, match="order"):
        interop.convert(values, target, copy=False)


def test_tensorflow_computes_on_what_came_from_another_order_of_axes():
    """It aborts the process on memory that is not aligned."""
    import tensorflow as tf

    for _ in range(20):
        result = tf.pad(interop.convert(turned(), "tensorflow"), [[1, 1], [1, 1]], mode="REFLECT")
    np.testing.assert_array_equal(result.numpy()[1:-1, 1:-1], np.arange(12, dtype="float32").reshape(3, 4))
