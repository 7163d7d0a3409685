"""One case an entry of ``exporters.onnx.corrections``, with the inputs on which torch.onnx is wrong."""

from __future__ import annotations

import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
FAR = torch.tensor([-100.0, -88.0, -3.0, -0.0, 0.0, 1e-8, -1e-6, 3.0, 100.0, -INF, INF, NAN])
_EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.1, INF, -INF, NAN])
A, B = (each.flatten() for each in torch.meshgrid(_EDGES, _EDGES, indexing="ij"))
SOME_NAN = torch.tensor([[-100.0, 2, 0, 3], [1, -2, 5, -2], [4, 4, NAN, -INF]])
TIES = torch.tensor([[3.0, 1, 3, 2], [0, 0, 5, 7], [2, 2, 1, 1]])
ROWS = torch.linspace(-2, 2, 24).sin().reshape(2, 3, 4)
IMAGE = torch.linspace(-9, 9, 2 * 3 * 7 * 5).sin().reshape(2, 3, 7, 5)
VOLUME = torch.linspace(-9, 9, 2 * 4 * 4 * 6).sin().reshape(1, 2, 4, 4, 6)
HEADS = torch.linspace(-9, 9, 48).sin().reshape(2, 2, 3, 4)
BOUNDS, VALUES = torch.tensor([1.0, 3, 3, 5, 7]), torch.tensor([[0.0, 3, 9], [NAN, 5, 7]])
WHERE = torch.tensor([[0, 1, 0, 0], [2, 2, 2, 2], [0, 0, 1, 1]])
DOUBLES = {1: ROWS.double(), 2: IMAGE.double(), 3: VOLUME.double()}
SHORTS = torch.tensor([[[300, -7, 9], [5, 250, -3], [1, 2, 32000]]], dtype=torch.int16)
TRUTH = torch.tensor([[True, False, True], [False, False, True]])
PER_CHANNEL = torch.tensor([0.3, 1.2, 0.8])
EMPTY_ROW = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])


WRONG = {
    "log_sigmoid.default": (aten.log_sigmoid, FAR),
    "log1p.default": (aten.log1p, FAR),
    "expm1.default": (aten.expm1, FAR),
    "atan2.default": (aten.atan2, A, B),
    "sign.default": (aten.sign, FAR),
    "sgn.default": (aten.sgn, FAR),
    "signbit.default": (aten.signbit, FAR),
    "heaviside.default": (aten.heaviside, A, B),
    "xlogy.Tensor": (aten.xlogy.Tensor, A, B),
    "remainder.Tensor": (aten.remainder.Tensor, A, B),
    "remainder.Scalar": (lambda x: aten.remainder.Scalar(x, INF), FAR),
    "remainder.Scalar_Tensor": (lambda x: aten.remainder.Scalar_Tensor(1.0, x), A),
    "clamp.default": (lambda x: aten.clamp(x, -1.0), FAR),
    "clamp_min.default": (lambda x: aten.clamp_min(x, -1.0), FAR),
    "clamp_max.default": (lambda x: aten.clamp_max(x, 1.0), FAR),
    "amax.default": (lambda x: aten.amax(x, [1]), SOME_NAN),
    "amin.default": (lambda x: aten.amin(x, [0], True), SOME_NAN),
    "max.default": (aten.max.default, SOME_NAN),
    "min.default": (aten.min.default, SOME_NAN),
    "argmax.default": (lambda x: (aten.argmax(x), aten.argmax(x, 1), aten.argmax(x, 0, True)), SOME_NAN),
    "argmin.default": (lambda x: (aten.argmin(x), aten.argmin(x, 1), aten.argmin(x, 0, True)), SOME_NAN),
    "max.dim": (lambda x: aten.max.dim(x, 1), SOME_NAN),
    "min.dim": (lambda x: aten.min.dim(x, 1, True), SOME_NAN),
    "logcumsumexp.default": (lambda x: aten.logcumsumexp(x, 1), SOME_NAN),
    "scatter_reduce.two": (
        lambda x, where: [aten.scatter_reduce(x, 0, where, x * 2, "mean", include_self=own) for own in (True, False)],
        TIES,
        WHERE,
    ),
    "pow.Tensor_Scalar": (lambda x: [aten.pow.Tensor_Scalar(x, power) for power in (0.5, -0.5)], FAR),
    "_native_batch_norm_legit_no_training.default": (
        lambda x, c: aten._native_batch_norm_legit_no_training(x, c, None, c, c, 0.1, 1e-5),
        IMAGE,
        PER_CHANNEL,
    ),
    "_native_batch_norm_legit.default": (
        lambda x, c: aten._native_batch_norm_legit.default(x, c, c, c, c, False, 0.1, 1e-5),
        IMAGE,
        PER_CHANNEL,
    ),
    "floor_divide.default": (aten.floor_divide, A, B),
    "div.Scalar_mode": (lambda x: aten.div.Scalar_mode(x, 0.1, rounding_mode="floor"), A),
    "div.Tensor_mode": (lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="floor"), A, B),
    "avg_pool2d.default": (
        lambda x: [
            aten.avg_pool2d(x, [3, 3], [2, 2], [1, 1], False, True, 4),
            aten.avg_pool2d(x, [2, 2], [3, 3], [1, 1], True, True, 5),
        ],
        IMAGE,
    ),
    "avg_pool3d.default": (lambda x: aten.avg_pool3d(x, [2, 2, 2], [2, 2, 2], [0], False, True, 3), VOLUME),
    "scaled_dot_product_attention.default": (
        lambda q, keep: [
            aten.scaled_dot_product_attention(q, q, q, keep),
            aten.scaled_dot_product_attention(q, q, q, torch.where(keep, 0.0, -INF)),
        ],
        HEADS,
        EMPTY_ROW,
    ),
}
"""torch.onnx exports these and the values are wrong."""

REFUSED = {
    "erfinv.default": (aten.erfinv, torch.tensor([-1.0, 1, 0, 0.5, -0.9999999, 0.99, 1e-6, 2, NAN])),
    "copysign.Tensor": (aten.copysign.Tensor, A, B),
    "copysign.Scalar": (lambda x: aten.copysign.Scalar(x, -0.0), FAR),
    "hypot.default": (aten.hypot, torch.cat([A, torch.tensor([3e30])]), torch.cat([B, torch.tensor([4e30])])),
    "fmax.default": (aten.fmax, A, B),
    "fmin.default": (aten.fmin, A, B),
    "sort.stable": (lambda x: aten.sort.stable(x, stable=True, dim=1, descending=True), TIES),
    "kthvalue.default": (lambda x: aten.kthvalue(x, 2, 1), torch.tensor([[3.0, 1, 5, 2], [0, -1, 5, 7]])),
    "median.dim": (lambda x: aten.median.dim(x, 1), torch.tensor([[3.0, 1, 5, 2], [0, NAN, 5, 7]])),
    "median.default": (aten.median.default, TIES),
    "nanmedian.dim": (lambda x: aten.nanmedian.dim(x, 0, True)[0], SOME_NAN),
    "nanmedian.default": (aten.nanmedian.default, SOME_NAN),
    "mode.default": (lambda x: aten.mode(x, 1), TIES),
    "cumprod.default": (lambda x: (aten.cumprod(x, 1), aten.cumprod(x.nan_to_num(0).int(), 0)), SOME_NAN),
    "cummax.default": (lambda x: (*aten.cummax(x, 1), *aten.cummax(x.nan_to_num(0).int(), 0)), SOME_NAN),
    "cummin.default": (lambda x: (*aten.cummin(x, 1), *aten.cummin(x.nan_to_num(0).int(), 0)), SOME_NAN),
    "masked_select.default": (lambda x: aten.masked_select(x, x[0] > 2), TIES),
    "searchsorted.Tensor": (
        lambda s, v: [aten.searchsorted.Tensor(s, v), aten.searchsorted.Tensor(torch.stack([s, s + 1]), v, right=True)],
        BOUNDS,
        VALUES,
    ),
    "searchsorted.Scalar": (lambda s: aten.searchsorted.Scalar(s, 3.0, side="right"), BOUNDS),
    "bucketize.Scalar": (lambda s: aten.bucketize.Scalar(3.0, s), BOUNDS),
    "_cdist_forward.default": (lambda x: [torch.cdist(x, x + 1, p) for p in (2.0, 1.0, 0.0, INF, 3.0)], ROWS),
    "_pdist_forward.default": (lambda x: [aten._pdist_forward(x, p) for p in (2.0, 1.0, 0.0, INF, 3.0)], TIES),
    "index_reduce.default": (
        lambda x, at: [
            aten.index_reduce(x, 0, at, x * 2, reduce, include_self=own)
            for reduce in ("prod", "mean", "amax", "amin")
            for own in (True, False)
        ],
        TIES,
        torch.tensor([0, 0, 2]),
    ),
    "_adaptive_avg_pool3d.default": (lambda x: aten._adaptive_avg_pool3d(x, [3, 1, 4]), VOLUME),
    "adaptive_avg_pool3d.default": (lambda x: aten.adaptive_avg_pool3d(x, [3, 1, 4]), VOLUME),
    "scatter.src": (lambda x, y: aten.scatter.src(x, 0, torch.tensor([[0, 1, 2]]), y), TIES, SOME_NAN),
    "scatter_add.default": (lambda x, y: aten.scatter_add(x, 0, torch.tensor([[0, 1, 2]]), y), TIES, SOME_NAN),
    "where.self": (lambda x: aten.where.self(x, ~x, x[0]), TRUTH),
    "add.Tensor": (lambda x: [x + x[0], aten.add.Tensor(x, x, alpha=0)], TRUTH),
    "matmul.default": (lambda x: x @ x, SHORTS),
    "bmm.default": (aten.bmm.default, SHORTS, SHORTS),
    "mm.default": (aten.mm.default, SHORTS[0], SHORTS[0]),
    **{
        f"upsample_{name}.vec": (lambda x, call=call: call(x), DOUBLES[dims])
        for name, dims, call in (
            ("nearest1d", 1, lambda x: aten.upsample_nearest1d.vec(x, [9], None)),
            ("nearest2d", 2, lambda x: aten.upsample_nearest2d.vec(x, [9, 11], None)),
            ("nearest3d", 3, lambda x: aten.upsample_nearest3d.vec(x, [3, 5, 8], None)),
            ("bilinear2d", 2, lambda x: aten.upsample_bilinear2d.vec(x, [9, 11], False, None)),
            ("trilinear3d", 3, lambda x: aten.upsample_trilinear3d.vec(x, [3, 5, 8], True, None)),
            ("bicubic2d", 2, lambda x: aten.upsample_bicubic2d.vec(x, [9, 11], False, None)),
        )
    },
    "randperm.default": (lambda x: aten.sort(torch.randperm(7) + x)[0], torch.tensor(0)),
    "adaptive_max_pool1d.default": (lambda x: aten.adaptive_max_pool1d(x, [3]), ROWS),
    "adaptive_max_pool2d.default": (lambda x: aten.adaptive_max_pool2d(x, [2, 3]), IMAGE),
    "adaptive_max_pool3d.default": (lambda x: aten.adaptive_max_pool3d(x, [3, 1, 4]), VOLUME),
    "attention of three dims": (lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q), ROWS),
}
"""torch.onnx has no translation of these."""

SIGNED_ZEROS = ("log1p.default", "expm1.default", "atan2.default", "copysign.Tensor", "copysign.Scalar")
"""Where the sign of a zero counts too. (ONNX Runtime's Where does not keep it, so not everywhere.)"""

BY_DYNAMIC_SIZE = (
    "adaptive_avg_pool1d.default",
    "adaptive_avg_pool2d.default",
    "rnn_relu.input",
    "rnn_tanh.input",
    "bucketize.Tensor",
)
"""Entries that only a dynamic size needs."""

ELSEWHERE = {
    "_native_batch_norm_legit_functional.default": "what torch makes of the case of _native_batch_norm_legit",
    "lstm.input": "test_packed.py",
    "tensor_interop_onnx.packed.default": "test_packed.py",
    "tensor_interop_onnx.packed_rnn.default": "test_packed.py",
    "tensor_interop_onnx.projected_lstm.default": "test_packed.py",
    "tensor_interop_onnx.unpacked.default": "test_packed.py",
}
"""Entries without a case of their own here."""
