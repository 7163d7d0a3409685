"""Cost of ``interop.convert`` on a tiny tensor, next to the raw public call that a careful user would write.

Interleaved in one process: short blocks of calls to the raw route and to ``convert`` alternate, so that a busy machine
slows both; the median of the ratios is the figure. ``python -m benchmarks.convert [--blocks N]``
"""

import argparse
import statistics
import timeit

import jax
import numpy as np
import onnxruntime
import tensorflow as tf
import torch
from torch.utils.dlpack import from_dlpack as torch_from
from torch.utils.dlpack import to_dlpack as torch_to

from interop import convert
from interop.frameworks._memory import fresh

NAMES = {
    "convert": convert,
    "np": np,
    "torch_from": torch_from,
    "torch_to": torch_to,
    "tf_from": tf.experimental.dlpack.from_dlpack,
    "tf_to": tf.experimental.dlpack.to_dlpack,
    "ort_from": onnxruntime.OrtValue.from_dlpack,
    "jax_from": jax.dlpack.from_dlpack,
}

ROUTES = (
    ("torch", "numpy", "np.from_dlpack(x)"),
    ("torch", "numpy", "x.numpy()"),
    ("torch", "tensorflow", "tf_from(torch_to(x))"),
    ("torch", "onnxruntime", "ort_from(torch_to(x))"),
    ("numpy", "torch", "torch_from(x.__dlpack__())"),
    ("numpy", "tensorflow", "tf_from(x.__dlpack__())"),
    ("numpy", "onnxruntime", "ort_from(x.__dlpack__())"),
    ("tensorflow", "torch", "torch_from(tf_to(x))"),
    ("tensorflow", "numpy", "np.from_dlpack(x)"),
    ("tensorflow", "numpy", "np.asarray(x)"),
    ("tensorflow", "onnxruntime", "ort_from(tf_to(x))"),
    ("onnxruntime", "torch", "torch_from(x.__dlpack__())"),
    ("onnxruntime", "numpy", "np.from_dlpack(x)"),
    ("onnxruntime", "numpy", "x.numpy()"),
    ("onnxruntime", "tensorflow", "tf_from(x.__dlpack__())"),
    ("torch", "jax", "jax_from(x)"),
    ("numpy", "jax", "jax_from(x)"),
    ("tensorflow", "jax", "jax_from(x)"),
    ("onnxruntime", "jax", "jax_from(torch_from(x.__dlpack__()))"),  # an OrtValue knows no max_version
    ("jax", "torch", "torch_from(x.__dlpack__())"),
    ("jax", "numpy", "np.from_dlpack(x)"),
    ("jax", "numpy", "np.asarray(x)"),
    ("jax", "tensorflow", "tf_from(x.__dlpack__())"),
    ("jax", "onnxruntime", "ort_from(x.__dlpack__())"),
)


def tensors():
    """16 float32 in each framework, at addresses that TensorFlow can take."""
    return {
        "torch": torch.ones(16),
        "numpy": fresh(np.ones(16, np.float32)),
        "tensorflow": tf.ones(16),
        "onnxruntime": onnxruntime.OrtValue.from_dlpack(torch_to(torch.ones(16))),
        "jax": jax.numpy.ones(16),
    }


def routes_of(x, to, raw):
    """``convert`` and the raw route as functions without arguments."""
    names = NAMES | {"x": x}
    return tuple(eval(f"lambda: {text}", names) for text in (f"convert(x, {to!r})", raw))


def measure(x, to, raw, blocks, calls=200):
    """Median nanoseconds of the raw route and of ``convert``, and the median of their ratio block by block."""
    names = NAMES | {"x": x}
    timers = [timeit.Timer(statement, globals=names) for statement in (raw, f"convert(x, {to!r})")]
    rounds = [[timer.timeit(calls) * 1e9 / calls for timer in timers] for _ in range(blocks + 1)][1:]
    ratio = statistics.median(ours / plain for plain, ours in rounds)
    return [statistics.median(column) for column in zip(*rounds)] + [ratio]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=301)
    blocks = parser.parse_args().blocks
    sources = tensors()
    print(f"{'pair':28}{'raw ns':>8}{'convert ns':>12}{'ratio':>7}  raw route")
    for source, to, raw in ROUTES:
        plain, ours, ratio = measure(sources[source], to, raw, blocks)
        print(f"{source + ' -> ' + to:28}{plain:8.0f}{ours:12.0f}{ratio:7.2f}  {raw}")


if __name__ == "__main__":
    main()
