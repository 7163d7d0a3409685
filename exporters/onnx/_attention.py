"""What ``scaled_dot_product_attention`` gives, by shape and layout alone, while a program is captured and translated.

torch runs its attention on fake tensors each time that it follows a program, kernel by kernel: in the capture, in the decomposition
and when types are promoted. And it may choose another kernel the next time, with its result laid out in another
way, which views that follow depend on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

__all__ = ["attention_by_shape"]

_OPERATOR: Any = torch.ops.aten.scaled_dot_product_attention.default
_KEY = torch._C.DispatchKey.CompositeImplicitAutograd
Tensor = torch.Tensor


@contextlib.contextmanager
def attention_by_shape() -> Iterator[None]:
    """While this is open, the attention of fake tensors is a new contiguous one, as the kernel of plain arithmetic gives."""
    with patch.dict(_OPERATOR.py_kernels, {_KEY: _attention}):
        _OPERATOR._dispatch_cache.clear()
        try:
            yield
        finally:
            _OPERATOR._dispatch_cache.clear()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The sizes have to fit, as for the operator itself; the mask cannot make the scores larger."""
    if get_proxy_mode() is not None or not all(isinstance(tensor, FakeTensor) for tensor in (query, key, value)):
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return _OPERATOR._op_dk(_KEY, query, key, value, attn_mask, dropout_p, is_causal, **options)
    shapes = [tensor.shape[: -3 if enable_gqa else -2] for tensor in (query, key, value)]
    batch = (*torch.broadcast_shapes(*shapes), *(query.shape[-3:-2] if enable_gqa else ()))
    torch._check(query.shape[-1] == key.shape[-1])
    torch._check(key.shape[-2] == value.shape[-2])
    if attn_mask is not None:
        attn_mask.expand((*batch, query.shape[-2], key.shape[-2]))
    return query.new_empty((*batch, query.shape[-2], value.shape[-1]))
