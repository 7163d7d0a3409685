"""``explain`` and ``convert`` agree on whatever Hypothesis builds: any dtype, layout, pair and wish about copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interop import ConversionError, convert, explain
from tests.interop.tensor_matrix import CONSUMERS, DTYPES, address_of, bytes_of, payload, shape_of, torch_over

STEPS = (1, 1, 2, 3)
LAYOUTS = st.fixed_dictionaries(
    {
        "shape": st.lists(st.integers(0, 4), max_size=3),
        "steps": st.lists(st.sampled_from(STEPS), min_size=3, max_size=3),
        "flips": st.lists(st.booleans(), min_size=3, max_size=3),
        "order": st.permutations([0, 1, 2]),
        "offset": st.sampled_from([0, 0, 1, 4, 16, 63, 64]),
        "broadcast": st.sampled_from([None, None, None, 2]),
        "readonly": st.booleans(),
    }
)


def array_with(dtype: str, layout: dict[str, Any], flip: bool) -> np.ndarray[Any, Any]:
    """An array of a shape, seen through steps, flips, a transpose, an offset in bytes and a broadcast."""
    shape = layout["shape"]
    wide = [size * step for size, step in zip(shape, layout["steps"])]
    item = payload(dtype, 1).dtype
    count = int(np.prod(wide, dtype=int))
    memory = payload("uint8", count * item.itemsize + layout["offset"])
    memory[layout["offset"] :] = payload(dtype, count).view(np.uint8)
    array = memory[layout["offset"] :].view(item).reshape(wide)
    array = array[(*(slice(None, None, step) for _, step in zip(shape, layout["steps"])), ...)]
    if flip:
        array = array[(*(slice(None, None, -1 if turned else 1) for _, turned in zip(shape, layout["flips"])), ...)]
    array = array.transpose([axis for axis in layout["order"] if axis < len(shape)])
    if layout["broadcast"]:
        array = np.broadcast_to(array.view(f"V{item.itemsize}"), (layout["broadcast"], *array.shape)).view(item)
        array.flags.writeable = True
    return array


def check_agreement(tensor: Any, expected: bytes, target: str, copy: bool | None) -> None:
    explained = explain(tensor, target, copy=copy)
    for _ in range(2):
        try:
            result = convert(tensor, target, copy=copy)
        except ConversionError as error:
            assert explained.outcome == "refuse" and type(error) is explained.error
            assert str(error) == str(explained)
            continue
        assert explained.outcome in ("view", "copy")
        assert shape_of(result) == explained.shape
        assert bytes_of(result) == expected
        if expected:
            assert (address_of(result) == address_of(tensor)) is (explained.outcome == "view")
    if copy is True:
        assert explained.outcome != "view"
    if copy is False:
        assert explained.outcome != "copy"


CHOICES = {"target": st.sampled_from(CONSUMERS), "copy": st.sampled_from([None, True, False]), "layout": LAYOUTS}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dtype=st.sampled_from(DTYPES["numpy"]), **CHOICES)
def test_explain_agrees_with_convert_from_numpy(dtype: str, layout: Any, target: str, copy: bool | None) -> None:
    array = array_with(dtype, layout, flip=True)
    if layout["readonly"]:
        array.flags.writeable = False
    check_agreement(array, np.ascontiguousarray(array).tobytes(), target, copy)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dtype=st.sampled_from(DTYPES["torch"]), grad=st.booleans(), **CHOICES)
def test_explain_agrees_with_convert_from_torch(
    dtype: str, layout: Any, grad: bool, target: str, copy: bool | None
) -> None:
    array = array_with(dtype, layout, flip=False)
    tensor = torch_over(array, dtype)
    if grad and tensor.dtype in (torch.float32, torch.float64, torch.bfloat16):
        tensor = tensor.requires_grad_()
    check_agreement(tensor, np.ascontiguousarray(array).tobytes(), target, copy)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dtype=st.sampled_from(["float32", "float64"]), pending=st.sampled_from(["conj", "neg"]), **CHOICES)
def test_explain_agrees_with_convert_of_lazy_bits(
    dtype: str, layout: Any, pending: str, target: str, copy: bool | None
) -> None:
    complex_type = {"float32": "complex64", "float64": "complex128"}[dtype]
    array = array_with(complex_type, layout, flip=False)
    array[...] = np.nan_to_num(array, nan=1.0, posinf=2.0, neginf=-2.0)
    tensor = torch.from_numpy(array).conj()
    expected = np.conj(array)
    if pending == "neg":
        tensor, expected = tensor.imag, expected.imag
    check_agreement(tensor, np.ascontiguousarray(expected).tobytes(), target, copy)
