"""Inputs for the core ATen operators: ordinary numbers, and those that a wrong lowering gives away."""

from __future__ import annotations

from typing import Any

import torch  # inputs for torch's operators

__all__ = ["CASES", "NOTES", "RANDOM", "core_operators"]

INF, NAN = float("inf"), float("nan")

F = torch.tensor([[-2.5, -0.0, 0.0, 0.5], [3.0, INF, -INF, NAN], [1.0, 1.0, -1.0, 1e-6]])
G = torch.tensor([[1.5, -2.0, 2.0, -0.0], [INF, 3.0, 2.0, 1.0], [NAN, 1.0, 0.1, 3.0]])
X = torch.linspace(-1.9, 2.3, 12).reshape(3, 4)
N = torch.tensor([[-7, 3, 0, 5], [2, 2, -1, 4], [9, -3, 1, 0]])
J = torch.tensor([[3, -2, 5, 3], [1, 7, 2, -4], [-2, 5, 3, 6]])
B = torch.tensor([[True, False, True, True], [False, False, True, False], [True, True, False, True]])
INDEX = torch.tensor([[0, 1, 0, 2], [2, 2, 2, 2], [0, 0, 1, 1]])
IMAGE = torch.linspace(-3, 3, 2 * 3 * 7 * 6).sin().reshape(2, 3, 7, 6)
VOLUME = torch.linspace(-3, 3, 2 * 2 * 4 * 5 * 6).cos().reshape(2, 2, 4, 5, 6)
ROWS = torch.linspace(-2, 2, 24).sin().reshape(2, 3, 4)
WEIGHT = torch.linspace(-1, 1, 4 * 3 * 3 * 3).reshape(4, 3, 3, 3)
C3, C4 = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([0.1, -0.2, 0.3, 0.4])
POSITIVE = torch.tensor([0.3, 1.2, 0.8])

_UNARY = """abs acos acosh asin asinh atan atanh bitwise_not ceil clone cos cosh erf exp expm1 floor isinf isnan log log10 log1p
log2 logical_not neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc alias elu leaky_relu hardtanh
nonzero mean prod amax amin any argmax argmin"""
_COMPARE = "eq ge gt le lt ne"

Call = tuple[tuple[Any, ...], dict[str, Any]]


def _call(*args: Any, **kwargs: Any) -> Call:
    return args, kwargs


def _unary() -> dict[str, list[Call]]:
    cases = {f"{name}.default": [_call(F)] for name in _UNARY.split()}
    cases["bitwise_not.default"] = [_call(N), _call(B)]
    cases["sign.default"].append(_call(N))
    cases["any.default"].append(_call(B))
    cases["gelu.default"] = [_call(torch.where(F == INF, 9.0, F)), _call(F, approximate="tanh")]
    return cases


def _binary() -> dict[str, list[Call]]:
    cases: dict[str, list[Call]] = {}
    for name in _COMPARE.split():
        cases[f"{name}.Tensor"] = [_call(F, G), _call(N, J)]
        cases[f"{name}.Scalar"] = [_call(F, 1.0), _call(N, 2)]
    for name in ("add", "sub"):
        cases[f"{name}.Tensor"] = [_call(F, G, alpha=2), _call(N, J), _call(N, F)]
        cases[f"{name}.Scalar"] = [_call(F, 1.5), _call(N, 2)]
    for name in ("mul", "fmod", "remainder", "div"):
        cases[f"{name}.Tensor"] = [_call(F, G), _call(N, J)]
        cases[f"{name}.Scalar"] = [_call(F, 0.1), _call(N, 3)]
    for mode in ("floor", "trunc"):
        cases.setdefault("div.Tensor_mode", []).extend(_call(a, b, rounding_mode=mode) for a, b in ((F, G), (N, J)))
        cases.setdefault("div.Scalar_mode", []).extend(_call(a, 0.1, rounding_mode=mode) for a in (F, N))
    for name in ("and", "or", "xor"):
        cases[f"bitwise_{name}.Tensor"] = [_call(N, J), _call(B, ~B)]
        cases[f"bitwise_{name}.Scalar"] = [_call(N, 3)]
        cases[f"logical_{name}.default"] = [_call(F, G), _call(B, N)]
    for name in ("atan2", "maximum", "minimum"):
        cases[f"{name}.default"] = [_call(F, G)]
    cases["pow.Tensor_Tensor"] = [_call(F, G), _call(N.abs(), J.abs())]
    cases["pow.Tensor_Scalar"] = [_call(F, power) for power in (2, 0.5, -0.5, -1.0, 1.5, 0.0, 3)] + [
        _call(N, 2),
        _call(N, 0.5),
    ]
    cases["atan2.out"] = [((F, G), {"out": torch.zeros(3, 4)})]
    cases["pow.Scalar"] = [_call(2.0, F)]
    return cases


def _reductions() -> dict[str, list[Call]]:
    return {
        "any.dim": [_call(F, 1), _call(B, 0, True)],
        "any.dims": [_call(B, [0, 1])],
        "amax.default": [_call(F, [1]), _call(N, [0], True), _call(X, [-1])],
        "amin.default": [_call(F, [1]), _call(N, [0], True), _call(X, [-1])],
        "argmax.default": [_call(F), _call(F, 1), _call(N, 0, True)],
        "argmin.default": [_call(F), _call(F, 1), _call(N, 0, True)],
        "max.dim": [_call(F, 1), _call(N, 0)],
        "min.dim": [_call(F, 1), _call(N, 0)],
        "mean.dim": [_call(X, [0]), _call(F, [1], True)],
        "prod.dim_int": [_call(F, 1), _call(N, 0)],
        "sum.dim_IntList": [_call(F, [1]), _call(N, [0])],
        "var.dim": [_call(X, [1])],
        "var.correction": [_call(X, [1], correction=0)],
        "cumsum.default": [_call(F, 1), _call(N, 0)],
        "sort.default": [_call(F, 1), _call(N, 0, True)],
        "topk.default": [_call(X, 2), _call(X, 3, 0, False)],
        "_softmax.default": [_call(F, 1, False), _call(X, 0, False)],
        "_log_softmax.default": [_call(F, 1, False), _call(X, 0, False)],
        "_fft_r2c.default": [_call(X, [1], 0, True), _call(X, [0, 1], 1, False)],
        "_fft_c2r.default": [_call(torch.view_as_complex(ROWS[:, :, :2].contiguous()), [1], 2, 4)],
        "_cdist_forward.default": [_call(ROWS, ROWS + 1, p, None) for p in (2.0, 1.0, 0.0, INF, 3.0)],
        "_pdist_forward.default": [_call(X, 2.0), _call(X, 1.0)],
    }


def _shapes() -> dict[str, list[Call]]:
    return {
        "_to_copy.default": [_call(X, dtype=torch.int64), _call(N, dtype=torch.float32)],
        "arange.start_step": [_call(1, 9, 2)],
        "as_strided.default": [_call(X, [2, 3], [4, 1])],
        "cat.default": [_call([X, F], 1)],
        "constant_pad_nd.default": [_call(X, [1, 2, 0, 1], 3.5), _call(X, [-1, 1])],
        "copy.default": [_call(X, F)],
        "diagonal.default": [_call(X, 1)],
        "expand.default": [_call(C3.reshape(3, 1), [2, 3, 4])],
        "fill.Scalar": [_call(X, 2.0)],
        "flip.default": [_call(X, [0, 1])],
        "full.default": [_call([2, 3], 1.5)],
        "full_like.default": [_call(X, 2)],
        "resize_.default": [_call(X, [2, 3])],
        "sym_is_contiguous.default": [_call(X)],
        "sym_numel.default": [_call(X)],
        "sym_size.int": [_call(X, 1)],
        "sym_storage_offset.default": [_call(X)],
        "sym_stride.int": [_call(X, 0)],
        "_local_scalar_dense.default": [_call(torch.tensor(3)), _call(torch.tensor(2.5))],
        "permute.default": [_call(ROWS, [2, 0, 1])],
        "repeat.default": [_call(X, [2, 1, 3])],
        "scalar_tensor.default": [_call(2.5)],
        "select.int": [_call(X, 1, -1)],
        "select_scatter.default": [_call(X, C3, 1, 2)],
        "slice.Tensor": [_call(X, 1, 1, 4, 2), _call(X, 0, -2)],
        "slice_scatter.default": [_call(X, X[:, 1:3], 1, 1, 3)],
        "split_with_sizes.default": [_call(X, [1, 3], 1)],
        "squeeze.dim": [_call(X[:, None], 1)],
        "squeeze.dims": [_call(X[:, None, :, None], [1, 3])],
        "unsqueeze.default": [_call(X, -1)],
        "view.default": [_call(X, [2, -1])],
        "where.self": [_call(B, F, G)],
        "clamp.default": [_call(F, -1.0, 1.0), _call(F, -1.0), _call(F, None, 1.0), _call(N, 0, 3)],
        "clamp.Tensor": [_call(X, X - 0.5, X + 0.1), _call(F, X)],
        "col2im.default": [
            _call(IMAGE[:, :, 0, :].reshape(2, 18, 1).repeat(1, 2, 6), [4, 5], [3, 3], [1, 1], [0, 0], [1, 1])
        ],
    }


def _indexing() -> dict[str, list[Call]]:
    return {
        "embedding.default": [_call(X, INDEX)],
        "_embedding_bag.default": [_call(X, torch.tensor([0, 2, 1, 1]), torch.tensor([0, 2]))],
        "gather.default": [_call(F, 0, INDEX)],
        "index.Tensor": [_call(X, [torch.tensor([2, 0, -1])]), _call(X, [None, torch.tensor([1, 3])]), _call(X, [B])],
        "index_put.default": [
            _call(X, [torch.tensor([0, 0, 2])], F, True),
            _call(X, [torch.tensor([0, -1])], F[:2]),
            _call(X, [B], torch.tensor(0.5)),
        ],
        "index_select.default": [_call(X, 1, torch.tensor([3, 0, 3]))],
        "masked_scatter.default": [_call(X, B, F)],
        "scatter.value": [_call(X, 1, INDEX, 2.0)],
        "scatter.src": [_call(X, 0, torch.tensor([[0, 1, 2, 0]]), F)],
        "scatter_add.default": [_call(X, 0, INDEX, X)],
        "scatter_reduce.two": [
            _call(X, 0, INDEX, X * 2, reduce, include_self=own)
            for reduce in ("sum", "prod", "mean", "amax", "amin")
            for own in (True, False)
        ],
    }


def _layers() -> dict[str, list[Call]]:
    return {
        "_adaptive_avg_pool2d.default": [_call(IMAGE, [2, 3]), _call(IMAGE, [1, 1])],
        "_adaptive_avg_pool3d.default": [_call(VOLUME, [2, 3, 2])],
        "adaptive_avg_pool1d.default": [_call(ROWS, [3])],
        "avg_pool1d.default": [_call(ROWS, [2], [1], [1], True, True)],
        "avg_pool2d.default": [
            _call(IMAGE, [3, 3], [2, 2], [1, 1], True),
            _call(IMAGE, [2, 2], [2, 2], [0, 0], False, True, 3),
        ],
        "avg_pool3d.default": [
            _call(VOLUME, [2, 2, 2]),
            _call(VOLUME, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, 3),
        ],
        "max_pool2d_with_indices.default": [_call(IMAGE, [3, 3], [2, 2], [1, 1])],
        "max_pool3d_with_indices.default": [_call(VOLUME, [2, 2, 2])],
        "addmm.default": [_call(C4, X, torch.ones(4, 4), beta=0.5, alpha=2.0)],
        "bmm.default": [_call(ROWS, ROWS.transpose(1, 2))],
        "mm.default": [_call(X, X.T.contiguous())],
        "convolution.default": [
            _call(IMAGE, WEIGHT, C4, [2, 1], [1, 1], [1, 1], False, [0, 0], 1),
            _call(IMAGE, WEIGHT.transpose(0, 1).contiguous(), None, [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
        ],
        "grid_sampler_2d.default": [_call(IMAGE, IMAGE[:, :2].permute(0, 2, 3, 1).contiguous(), 0, 0, False)],
        "_native_batch_norm_legit_no_training.default": [_call(IMAGE, C3, C3, C3, POSITIVE, 0.1, 1e-5)],
        "_native_batch_norm_legit.default": [_call(IMAGE, C3, C3, C3, POSITIVE, False, 0.1, 1e-5)],
        "_native_batch_norm_legit.no_stats": [_call(IMAGE, C3, C3, True, 0.1, 1e-5)],
        "native_group_norm.default": [_call(IMAGE, C3, C3, 2, 3, 42, 3, 1e-5)],
        "native_layer_norm.default": [_call(ROWS, [4], C4, C4, 1e-5)],
        "reflection_pad1d.default": [_call(ROWS, [1, 2])],
        "reflection_pad2d.default": [_call(IMAGE, [1, 2, 2, 1])],
        "reflection_pad3d.default": [_call(VOLUME, [1, 1, 2, 1, 1, 0])],
        "replication_pad2d.default": [_call(IMAGE, [1, 2, 2, 1])],
        "replication_pad3d.default": [_call(VOLUME, [1, 1, 2, 1, 1, 0])],
        "upsample_bilinear2d.vec": [_call(IMAGE, [9, 11], False, None), _call(IMAGE, [9, 11], True, None)],
        "upsample_nearest2d.vec": [_call(IMAGE, [9, 11], None)],
    }


def _backward() -> dict[str, list[Call]]:
    """A model may hold a gradient: a physics-informed network gives the derivative of its output."""
    rows, groups = (
        (ROWS.mean(-1, keepdim=True), ROWS.std(-1, keepdim=True) ** -1),
        (C4[:2].repeat(2, 1), C4[:2].repeat(2, 1)),
    )
    pooled, places = torch.ops.aten.max_pool2d_with_indices(IMAGE, [3, 3], [2, 2], [1, 1])
    strided = torch.nn.functional.conv2d(IMAGE, WEIGHT, C4, (2, 1), 1)
    return {
        "_adaptive_avg_pool2d_backward.default": [_call(IMAGE[:, :, :2, :3].contiguous(), IMAGE)],
        "avg_pool2d_backward.default": [
            _call(IMAGE[:, :, :3, :3].contiguous(), IMAGE[:, :, :6], [2, 2], [2, 2], [0, 0], False, True, None)
        ],
        "convolution_backward.default": [
            _call(strided, IMAGE, WEIGHT, [4], [2, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])
        ],
        "embedding_dense_backward.default": [_call(ROWS, INDEX[:2, :3], 4, -1, False)],
        "max_pool2d_with_indices_backward.default": [
            _call(pooled, IMAGE, [3, 3], [2, 2], [1, 1], [1, 1], False, places)
        ],
        "native_group_norm_backward.default": [
            _call(
                IMAGE[:, :2].contiguous() / 4,
                IMAGE[:, 1:].contiguous(),
                *groups,
                C4[:2],
                2,
                2,
                42,
                2,
                [True, True, True],
            )
        ],
        "native_layer_norm_backward.default": [_call(ROWS, ROWS.cos(), [4], *rows, C4, C4, [True, True, True])],
    }


CASES: dict[str, list[Call]] = _unary() | _binary() | _reductions() | _shapes() | _indexing() | _layers() | _backward()

RANDOM = {
    "rand.default": [_call([2, 3])],
    "randn.default": [_call([2, 3])],
    "randperm.default": [_call(5)],
    "native_dropout.default": [_call(X, 0.5, True)],
    "empty.memory_format": [_call([2, 3])],
    "empty_strided.default": [_call([2, 3], [3, 1])],
}
"""Results that are not determined: only shape and dtype are compared."""

NOTES = {
    "rand.default": "random numbers",
    "randn.default": "random numbers",
    "randperm.default": "a random order",
    "native_dropout.default": "drops at random",
    "empty.memory_format": "memory that nothing was written to",
    "empty_strided.default": "memory that nothing was written to",
    "gelu.default": "without +inf, for which torch's vectorised kernel answers NaN and ONNX inf",
    "_fft_r2c.default": "compared as pairs of real numbers; at the boundary of a model complex numbers are refused",
    "_fft_c2r.default": "given as pairs of real numbers; at the boundary of a model complex numbers are refused",
}
"""What a reader of the page has to know."""


def core_operators() -> list[str]:
    """``name.overload`` of every operator that torch tags as core."""
    names = {full.removeprefix("aten::") for full in torch._C._dispatch_get_all_op_names() if full.startswith("aten::")}
    found = []
    for name in sorted(names):
        base, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, base), overload or "default")
        if torch.Tag.core in operator.tags:
            found.append(f"{base}.{overload or 'default'}")
    return found
