"""The public report that each correction answers: a repository and the number of an issue or a pull request."""

from __future__ import annotations

__all__ = ["reports_of"]

_NAN_IN_EXTREMA = ("microsoft/onnxruntime#10514",)
_FLOOR = ("microsoft/onnxscript#989",)
_DIVISOR = ("pytorch/pytorch#105349",)
_ADAPTIVE = ("pytorch/pytorch#42653", "pytorch/pytorch#64806")
_PACKED = ("pytorch/pytorch#112044", "pytorch/pytorch#62240", "pytorch/pytorch#49936")
_PROJECTED = ("k2-fsa/icefall#621",)
_SEARCH = ("pytorch/pytorch#151648", "pytorch/pytorch#126549")
_BUCKETS = ("pytorch/pytorch#148098",)
_CORNER = ("pytorch/pytorch#89787",)
_RUNNING = ("open-mmlab/mmcv#1010",)

_REPORTS = {
    "_adaptive_avg_pool3d.default": _ADAPTIVE,
    "_cdist_forward.default": ("onnx/onnx#3327",),
    "adaptive_avg_pool1d.default": _ADAPTIVE,
    "adaptive_avg_pool2d.default": _ADAPTIVE,
    "adaptive_avg_pool3d.default": _ADAPTIVE,
    "adaptive_max_pool1d.default": ("pytorch/pytorch#61172",),
    "adaptive_max_pool2d.default": ("pytorch/pytorch#75383",),
    "amax.default": _NAN_IN_EXTREMA,
    "amin.default": _NAN_IN_EXTREMA,
    "argmax.default": _NAN_IN_EXTREMA,
    "argmin.default": _NAN_IN_EXTREMA,
    "atan2.default": ("pytorch/pytorch#162570",),
    "avg_pool2d.default": _DIVISOR,
    "avg_pool3d.default": _DIVISOR,
    "bucketize.Scalar": _BUCKETS,
    "bucketize.Tensor": _BUCKETS,
    "cummax.default": _RUNNING,
    "cummin.default": _RUNNING,
    "cumprod.default": ("pytorch/pytorch#102948", "onnx/onnx#6590"),
    "div.Scalar_mode": _FLOOR,
    "div.Tensor_mode": _FLOOR,
    "floor_divide.default": _FLOOR,
    "kthvalue.default": ("onnx/onnx#3586",),
    "lstm.input": _PROJECTED,
    "masked_select.default": ("pytorch/pytorch#26034",),
    "max.default": _NAN_IN_EXTREMA,
    "max.dim": _NAN_IN_EXTREMA,
    "min.default": _NAN_IN_EXTREMA,
    "min.dim": _NAN_IN_EXTREMA,
    "mode.default": ("pytorch/pytorch#79601",),
    "scaled_dot_product_attention.default": ("microsoft/onnxscript#2479", "pytorch/pytorch#103963"),
    "scatter.src": _CORNER,
    "scatter_add.default": _CORNER,
    "scatter_reduce.two": ("onnx/onnx#5100", "pytorch/pytorch#101535"),
    "searchsorted.Scalar": _SEARCH,
    "searchsorted.Tensor": _SEARCH,
    "sort.stable": ("pytorch/pytorch#95613",),
    "tensor_interop_onnx.packed.default": _PACKED,
    "tensor_interop_onnx.packed_rnn.default": _PACKED,
    "tensor_interop_onnx.projected_lstm.default": _PROJECTED,
    "tensor_interop_onnx.unpacked.default": _PACKED,
}


def reports_of(operator: str) -> tuple[str, ...]:
    """The reports of a correction, such as ``("pytorch/pytorch#162570",)``; empty where none is known.

    Args:
        operator: its name and overload, without ``aten.``.
    """
    return _REPORTS.get(operator, ())
