"""Attention by shape alone gives what torch's own gives, or refuses what it refuses; and nothing is left of it afterwards."""

from __future__ import annotations

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from exporters.onnx._attention import attention_by_shape

CASES = {
    "plain": ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6), None, False),
    "three dims": ((4, 5, 8), (4, 7, 8), (4, 7, 6), None, False),
    "two dims": ((5, 8), (7, 8), (7, 6), None, False),
    "mask": ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8), (2, 1, 5, 7), False),
    "mask of rows": ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8), (1, 7), False),
    "one batch of keys": ((2, 4, 5, 8), (1, 4, 7, 8), (1, 4, 7, 6), None, False),
    "one batch of queries": ((1, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6), None, False),
    "one head of keys": ((2, 4, 5, 8), (2, 1, 7, 8), (2, 1, 7, 6), None, False),
    "groups": ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6), None, True),
    "groups with a mask": ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6), (2, 1, 5, 7), True),
    "no queries": ((2, 4, 0, 8), (2, 4, 7, 8), (2, 4, 7, 6), None, False),
}
MISFITS = {
    "mask of other rows": ((2, 4, 1, 8), (2, 4, 1, 8), (2, 4, 1, 8), (2, 1, 1, 7), False),
    "mask of more batches": ((1, 4, 5, 8), (1, 4, 7, 8), (1, 4, 7, 8), (2, 1, 5, 7), False),
    "features": ((2, 4, 5, 8), (2, 4, 7, 9), (2, 4, 7, 8), None, False),
    "tokens": ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 6, 8), None, False),
    "batches": ((2, 4, 5, 8), (3, 4, 7, 8), (3, 4, 7, 8), None, False),
}


def _call(query, key, value, mask, groups):
    query, key, value = torch.rand(query), torch.rand(key), torch.rand(value)
    mask = None if mask is None else torch.zeros(mask)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=groups)


def _fake(case):
    with FakeTensorMode(), enable_python_dispatcher(), attention_by_shape():
        return _call(*case)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_shape_and_layout_are_those_of_torch(case):
    with sdpa_kernel(SDPBackend.MATH):
        expected = _call(*case)
    found = _fake(case)
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())


@pytest.mark.parametrize("case", MISFITS.values(), ids=MISFITS)
def test_sizes_that_do_not_fit_are_refused(case):
    with pytest.raises(RuntimeError), sdpa_kernel(SDPBackend.MATH):
        _call(*case)
    with pytest.raises(RuntimeError):
        _fake(case)


def test_real_tensors_are_computed():
    torch.manual_seed(0)
    expected = _call(*CASES["mask"])
    torch.manual_seed(0)
    with enable_python_dispatcher(), attention_by_shape():
        assert torch.equal(_call(*CASES["mask"]), expected)


class Operators(TorchDispatchMode):
    """Notes the operators that run."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.name())
        return func(*args, **(kwargs or {}))


def test_nothing_is_computed_for_fake_tensors():
    with FakeTensorMode(), enable_python_dispatcher():
        with attention_by_shape(), Operators() as within:
            _call(*CASES["plain"])
        with Operators() as after:
            _call(*CASES["plain"])
    assert within.seen == {"aten::rand", "aten::new_empty"}
    assert "aten::bmm" in after.seen or "aten::_scaled_dot_product_flash_attention_for_cpu" in after.seen


def test_a_trace_through_it_still_computes_attention():
    def attend(x):
        return scaled_dot_product_attention(x, x, x)

    x = torch.rand(2, 3, 5, 4)
    with attention_by_shape():
        traced = make_fx(attend, tracing_mode="symbolic")(x)
    torch.testing.assert_close(traced(x), attend(x))
