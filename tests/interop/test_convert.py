"""The matrix of producer x consumer x dtype x layout: values, addresses, refusals, and what ``explain`` says of each cell."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interop import ConversionError, CopyRequiredError, convert, explain, framework_of
from tests.interop.tensor_matrix import (
    COMPLEX,
    CONSUMERS,
    DTYPES,
    EXTENSION,
    FLOAT8,
    FOUR_BITS,
    LAYOUTS,
    NATIVE,
    address_of,
    build,
    bytes_of,
    dtype_of,
    exists,
    shape_of,
)

HELD = {
    "torch": {*NATIVE, *COMPLEX, "complex32", *EXTENSION},
    "numpy": {*NATIVE, *COMPLEX, "complex32", *EXTENSION, *FOUR_BITS},
    "tensorflow": {*NATIVE, *COMPLEX, "bfloat16", *FLOAT8, *FOUR_BITS},
    "onnxruntime": {*NATIVE, *EXTENSION, *FOUR_BITS},
}
"""The dtypes that each framework has."""

RAW_ZERO_COPY = {
    "torch": {"torch": DTYPES["torch"], "tensorflow": (*NATIVE, *COMPLEX, "bfloat16"), "numpy": (*NATIVE, *COMPLEX),
              "onnxruntime": (*NATIVE, "bfloat16", *FLOAT8)},
    "tensorflow": {"torch": (*NATIVE, *COMPLEX, "bfloat16"), "tensorflow": (*NATIVE, *COMPLEX, "bfloat16"),
                   "numpy": (*NATIVE, *COMPLEX), "onnxruntime": (*NATIVE, "bfloat16")},
    "numpy": {"torch": (*NATIVE, *COMPLEX), "tensorflow": (*NATIVE, *COMPLEX), "numpy": (*NATIVE, *COMPLEX),
              "onnxruntime": NATIVE},
    "onnxruntime": {"torch": (*NATIVE, *EXTENSION), "tensorflow": (*NATIVE, "bfloat16"), "numpy": NATIVE,
                    "onnxruntime": (*NATIVE, "bfloat16", *FLOAT8, *FOUR_BITS)},
}  # fmt: skip
"""Producer -> consumer -> the dtypes whose bare DLPack calls were measured zero-copy (Z) on plain contiguous memory."""

RAW_ZERO_COPY_LAYOUTS = {
    ("torch", "torch"): {
        "contig",
        "transposed",
        "strided",
        "bcast0",
        "size0",
        "0d",
        "size1odd",
        "off_elem",
        "off_byte",
    },
    ("torch", "tensorflow"): {"contig", "size0", "0d", "size1odd"},
    ("torch", "numpy"): {
        "contig",
        "transposed",
        "strided",
        "bcast0",
        "size0",
        "0d",
        "size1odd",
        "off_elem",
        "off_byte",
    },
    ("torch", "onnxruntime"): {"contig", "size0", "0d", "size1odd", "off_elem", "off_byte"},
    ("numpy", "torch"): {*LAYOUTS["numpy"]} - {"negstride"},
    ("numpy", "tensorflow"): {"contig", "size0", "0d", "size1odd"},
    ("numpy", "numpy"): {*LAYOUTS["numpy"]},
    ("numpy", "onnxruntime"): {"contig", "size0", "0d", "size1odd", "off_elem", "off_byte"},
}
"""(Producer, consumer) -> the layouts that were Z; TensorFlow and ONNX Runtime tensors were Z in all three of theirs."""

DELIBERATE_COPIES = {
    ("numpy", "torch", "readonly"): "torch would hand out a writable alias of read-only memory",
    ("tensorflow", "torch", "0d"): "a write would change TensorFlow's cached constant",
    ("tensorflow", "onnxruntime", "0d"): "a write would change TensorFlow's cached constant",
}
"""Z in the measurements, and copied all the same."""

COMPLEX128_COPIES = {("numpy", "torch", "complex128", "off_byte")}
"""Z in the measurements of one shape; with other shapes torch's kernels end the process on such an address."""


def expected_outcome(source: str, target: str, dtype: str, layout: str) -> str:
    """What the policy says of a cell, in terms of the cell alone."""
    if source == target:
        return "view"
    if dtype not in HELD[target]:
        return "refuse"
    if layout in ("conj", "negbit") or (source, target, layout) in DELIBERATE_COPIES:
        return "copy"
    if (source, target, dtype, layout) in COMPLEX128_COPIES:
        return "copy"
    if dtype in FOUR_BITS and "onnxruntime" in (source, target):
        return "copy"
    if target == "tensorflow" and dtype in (*FLOAT8, *FOUR_BITS):
        return "copy"
    if target in ("tensorflow", "onnxruntime") and layout in (
        "transposed",
        "strided",
        "negstride",
        "bcast0",
        "readonly",
    ):
        return "copy"
    if target == "tensorflow" and layout in ("off_elem", "off_byte"):
        return "copy"
    return "copy" if (target, layout) == ("torch", "negstride") else "view"


CELLS = [
    (source, target, dtype, layout)
    for source, target in itertools.product(DTYPES, CONSUMERS)
    for dtype, layout in itertools.product(DTYPES[source], LAYOUTS[source])
    if exists(source, dtype, layout)
]


def was_zero_copy(source: str, target: str, dtype: str, layout: str) -> bool:
    if (source, target, layout) in DELIBERATE_COPIES or (source, target, dtype, layout) in COMPLEX128_COPIES:
        return False
    layouts = RAW_ZERO_COPY_LAYOUTS.get((source, target), {"contig", "size0", "0d"})
    return dtype in RAW_ZERO_COPY[source][target] and layout in layouts


@pytest.mark.parametrize(("source", "target", "dtype", "layout"), CELLS)
def test_convert_matrix(source: str, target: str, dtype: str, layout: str) -> None:
    tensor, expected = build(source, dtype, layout)
    outcome = expected_outcome(source, target, dtype, layout)
    if was_zero_copy(source, target, dtype, layout):
        assert outcome == "view"
    explained = explain(tensor, target)
    assert (explained.source, explained.target, explained.outcome) == (source, target, outcome), explained
    assert (explained.dtype, explained.shape) == (dtype, shape_of(tensor))
    for _ in range(2):  # the second call may take another route than the first
        if outcome == "refuse":
            with pytest.raises(ConversionError, match=dtype):
                convert(tensor, target)
            continue
        result = convert(tensor, target)
        check_result(result, target, dtype, shape_of(tensor), expected)
        if expected:
            assert (address_of(result) == address_of(tensor)) is (outcome == "view")


def check_result(result: Any, target: str, dtype: str, shape: tuple[int, ...], expected: bytes) -> None:
    assert framework_of(result) == target
    assert (dtype_of(result), shape_of(result)) == (dtype, shape)
    assert bytes_of(result) == expected
    if target == "tensorflow" and expected:
        assert address_of(result) % 64 == 0


@pytest.mark.parametrize(("source", "target", "dtype", "layout"), CELLS)
def test_convert_copy_argument(source: str, target: str, dtype: str, layout: str) -> None:
    tensor, expected = build(source, dtype, layout)
    outcome = expected_outcome(source, target, dtype, layout)
    if outcome == "refuse":
        for copy in (True, False):
            assert explain(tensor, target, copy=copy).outcome == "refuse"
            with pytest.raises(ConversionError):
                convert(tensor, target, copy=copy)
        return
    if outcome == "copy":
        assert explain(tensor, target, copy=False).error is CopyRequiredError
        with pytest.raises(CopyRequiredError, match="only a copy can cross"):
            convert(tensor, target, copy=False)
    else:
        view = convert(tensor, target, copy=False)
        assert not expected or address_of(view) == address_of(tensor)
    assert explain(tensor, target, copy=True).outcome == "copy"
    copied = convert(tensor, target, copy=True)
    check_result(copied, target, dtype, shape_of(tensor), expected)
    assert not overlap(tensor, copied)


def overlap(a: Any, b: Any) -> bool:
    """Whether two tensors' memory may meet (their extent in memory, gaps included)."""
    (a_low, a_high), (b_low, b_high) = extent(a), extent(b)
    return a_low < b_high and b_low < a_high


def extent(x: Any) -> tuple[int, int]:
    if framework_of(x) == "numpy":
        return np.lib.array_utils.byte_bounds(x) if x.size else (0, 0)
    if framework_of(x) == "torch":
        storage = x.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes() if x.numel() else 0
    count = len(bytes_of(x))
    return (address_of(x), address_of(x) + count) if count else (0, 0)


def test_risky_cells_survive_their_first_operation() -> None:
    """Everything that killed a process in the measurements, in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.interop.risky_cells"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.splitlines()[-1].startswith("survived"), run.stdout
