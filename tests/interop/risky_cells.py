"""A child process: converts what used to abort it and runs an operation on each result. Exit code 0 is the test."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf
import torch

from interop import ConversionError, convert
from tests.interop.tensor_matrix import COMPLEX, CONSUMERS, DTYPES, LAYOUTS, NATIVE, build, bytes_of, exists


def first_operation(x: Any) -> None:
    """Operations that abort on a misaligned TensorFlow import, and their like elsewhere."""
    if isinstance(x, torch.Tensor):
        torch.clone(x)
    elif isinstance(x, tf.Tensor):
        if x.dtype.name in (*NATIVE, *COMPLEX):
            tf.raw_ops.DeepCopy(x=x)
        if x.dtype in (tf.float32, tf.float64, tf.int32, tf.int64):
            tf.concat([x + x, x * x], 0) if x.shape.rank else x + x
            tf.reduce_sum(x)
    elif isinstance(x, np.ndarray):
        x.copy()


def main() -> None:
    count = 0
    for source in DTYPES:
        for dtype in DTYPES[source]:
            for layout in LAYOUTS[source]:
                if not exists(source, dtype, layout):
                    continue
                tensor, expected = build(source, dtype, layout)
                for target in CONSUMERS:
                    try:
                        result = convert(tensor, target)
                    except ConversionError:
                        continue
                    if source != target:
                        first_operation(result)
                    assert bytes_of(result) == expected, (source, target, dtype, layout)
                    count += 1
    for text in (tf.constant(["a", "b"]), tf.constant("a")):
        for target in ("torch", "onnxruntime"):
            try:
                convert(text, target)
            except ConversionError:
                count += 1
    for offset in (8, 1):  # torch loads one complex128 with an instruction that faults here
        memory = np.zeros(16 + offset, np.uint8)[offset:].view(np.complex128)
        first_operation(convert(memory, "torch"))
        first_operation(convert(torch.from_numpy(memory).conj(), "torch", copy=True))
        first_operation(convert(torch.from_numpy(memory).conj(), "tensorflow"))
    rows = torch.arange(60.0).reshape(4, 15)
    for row in rows:
        first_operation(convert(row, "tensorflow"))
    sys.stdout.write(f"survived {count} conversions\n")


if __name__ == "__main__":
    main()
