"""``explain`` and ``convert`` agree for the producers whose tensors are always dense: TensorFlow, ONNX Runtime, JAX.

``test_convert_property`` does the same for NumPy and torch, whose tensors have every layout. A second hop follows each
conversion, so that what one framework made is a source for all others.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interop import ConversionError, convert, explain
from tests.interop.tensor_matrix import (
    CONSUMERS,
    DTYPES,
    ORT_TYPES,
    OrtValue,
    _ort,
    address_of,
    bytes_of,
    payload,
    shape_of,
)

TARGETS = (*CONSUMERS, "jax")
JAX_TYPES = tuple(name for name in DTYPES["numpy"] if name not in ("int64", "uint64", "float64", "complex128"))
SHAPES = st.lists(st.integers(0, 4), max_size=3)


def make(framework: str, dtype: str, shape: list[int], over_numpy: bool) -> tuple[Any, bytes] | None:
    """A tensor and the bytes of its values; None where the framework cannot make it."""
    array = payload(dtype, int(np.prod(shape, dtype=int))).reshape(shape)
    if framework == "tensorflow":
        variable = over_numpy and dtype in ("float32", "int64", "bfloat16")  # not every type has variables
        return (tf.Variable(array) if variable else tf.constant(array)), array.tobytes()
    if framework == "jax":
        return jnp.array(array), array.tobytes()
    if not over_numpy:
        return _ort(array, dtype), array.tobytes()
    if dtype not in ORT_TYPES or array.dtype.isbuiltin == 2:
        return None
    return OrtValue.ortvalue_from_numpy(array), array.tobytes()


def outcome_of(tensor: Any, target: str, copy: bool | None) -> Any:
    """Convert twice (the second time by the shortcut of the pair, if it has one), and hold both against ``explain``."""
    explained, result = explain(tensor, target, copy=copy), None
    for _ in range(2):
        try:
            result = convert(tensor, target, copy=copy)
        except ConversionError as error:
            assert explained.outcome == "refuse" and type(error) is explained.error and str(error) == str(explained)
            return None
        assert explained.outcome != "refuse" and shape_of(result) == explained.shape
    assert {True: "view", False: "copy"}.get(copy) != explained.outcome  # type: ignore[call-overload]  # None has none
    return result


@pytest.mark.parametrize("framework", ["tensorflow", "onnxruntime", "jax"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    shape=SHAPES,
    over_numpy=st.booleans(),
    target=st.sampled_from(TARGETS),
    onward=st.sampled_from(TARGETS),
    copy=st.sampled_from([None, True, False]),
)
def test_explain_agrees_with_convert(
    framework: str, data: Any, shape: list[int], over_numpy: bool, target: str, onward: str, copy: bool | None
) -> None:
    dtype = data.draw(st.sampled_from(JAX_TYPES if framework == "jax" else DTYPES[framework]))
    made = make(framework, dtype, shape, over_numpy)
    if made is None:
        return
    tensor, expected = made
    first = outcome_of(tensor, target, copy)
    if first is None:
        return
    assert bytes_of(first) == expected
    view = explain(tensor, target, copy=copy).outcome == "view"
    if expected and not isinstance(tensor, tf.Variable):
        assert (address_of(first) == address_of(tensor)) is view
    second = outcome_of(first, onward, None)
    if second is not None:
        assert bytes_of(second) == expected
        if expected:
            assert (address_of(second) == address_of(first)) is (explain(first, onward).outcome == "view")
