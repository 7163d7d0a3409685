"""Which frameworks share memory with which, found out by doing it in a child process.

A child, because importing every framework is slow and may crash, and because the caller's process should stay as it
is. It prints one JSON line a step, so that the step which killed it is known.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from interop.dtypes import dtype_of
from interop.errors import ConversionError
from interop.frameworks import convert, explain

__all__ = ["PROBED", "Sharing", "probe_sharing"]

PROBED: dict[str, str] = {
    "numpy": "numpy",
    "torch": "torch",
    "tensorflow": "tensorflow",
    "onnxruntime": "onnxruntime",
    "jax": "jax",
}
"""Framework -> import name."""

DTYPES: tuple[str, ...] = ("float32", "int64", "bool", "bfloat16", "float8_e4m3fn", "complex64")
"""One of each family: what decides whether memory can be shared is the kind of dtype."""

ELEMENTS = 16
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Sharing:
    """What happens to a small, contiguous, aligned CPU tensor that goes from one framework to another.

    Attributes:
        source: the framework that owns the tensor.
        target: the framework that wants it.
        shared: dtypes that arrive at the same address.
        copied: dtypes that arrive as a copy.
        refused: dtypes that cannot cross.
        reasons: ``{dtype: why it is not shared}``, as ``interop.explain`` says.
        broken: dtypes that ``interop.convert`` shared or copied against what ``interop.explain`` said.
    """

    source: str
    target: str
    shared: tuple[str, ...]
    copied: tuple[str, ...]
    refused: tuple[str, ...]
    reasons: dict[str, str] = field(default_factory=dict)
    broken: tuple[str, ...] = ()


Failures = tuple[tuple[str, str], ...]


def probe_sharing() -> tuple[tuple[Sharing, ...], Failures]:
    """Try every pair of installed frameworks, in a child process.

    Returns:
        What each pair shares, and ``(framework, what went wrong)`` for each that cannot be imported or that killed the
        child.
    """
    names = [name for name, module in PROBED.items() if importlib.util.find_spec(module) is not None]
    try:
        child = subprocess.run(
            [sys.executable, "-c", "from interop.probe import report; report()", *names],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (), ((", ".join(names), f"they did not import and convert within {TIMEOUT_S:g} s"),)
    return _read(child.stdout, child.returncode, child.stderr)


def _read(output: str, status: int, errors: str) -> tuple[tuple[Sharing, ...], Failures]:
    steps = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    sharing = tuple(_sharing(step) for step in steps if "shared" in step)
    failures = [(step["framework"], step["error"]) for step in steps if "error" in step]
    if status != 0:
        begun = [step["begin"] for step in steps if "begin" in step]
        last = errors.strip().splitlines()[-1:] or [""]
        how = signal.Signals(-status).name if status < 0 else f"exit {status}"
        failures.append((begun[-1] if begun else "interop", f"the process ended with {how}: {last[0]}"))
    return sharing, tuple(failures)


def _sharing(step: dict[str, Any]) -> Sharing:
    return Sharing(
        source=step["source"],
        target=step["target"],
        shared=tuple(step["shared"]),
        copied=tuple(step["copied"]),
        refused=tuple(step["refused"]),
        reasons=step["reasons"],
        broken=tuple(step["broken"]),
    )


def report() -> None:
    """The child: import the frameworks in ``sys.argv[1:]``, try the pairs, write one JSON line a step."""
    for step in _steps(sys.argv[1:]):
        sys.stdout.write(json.dumps(step) + "\n")
        sys.stdout.flush()


def _steps(names: list[str]) -> Iterator[dict[str, Any]]:
    present = []
    for name in names:
        yield {"begin": name}
        try:
            importlib.import_module(PROBED[name])
        except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
            yield {"framework": name, "error": f"import {PROBED[name]} raised {type(error).__name__}: {error}"}
        else:
            present.append(name)
    for source in present:
        for target in present:
            if source != target:
                yield {"begin": f"{source} -> {target}"}
                yield {"source": source, "target": target, **_outcomes(source, target)}


def _outcomes(source: str, target: str) -> dict[str, Any]:
    outcomes: dict[str, Any] = {"shared": [], "copied": [], "refused": [], "broken": [], "reasons": {}}
    for dtype in DTYPES:
        tensor = _make(source, dtype)
        if tensor is None:
            continue
        expected, found = explain(tensor, target), _cross(tensor, source, target)
        outcomes[_LISTS[found]].append(dtype)
        if found != "view":
            outcomes["reasons"][dtype] = expected.reason
        if found != expected.outcome:
            outcomes["broken"].append(dtype)
    return outcomes


_LISTS = {"view": "shared", "copy": "copied", "refuse": "refused"}


def _cross(tensor: Any, source: str, target: str) -> str:
    """What really happens, by the addresses before and after."""
    try:
        arrived = convert(tensor, target)
    except ConversionError:
        return "refuse"
    return "view" if _address(source, tensor) == _address(target, arrived) else "copy"


def _make(framework: str, dtype: str) -> Any:
    """A tensor in the framework's own memory, or None where it has no such dtype."""
    entry, module = dtype_of(dtype), sys.modules[PROBED[framework]]
    if framework == "numpy":
        return _aligned(entry.numpy)
    if framework == "torch":
        return module.zeros(ELEMENTS, dtype=getattr(module, str(entry.torch)))
    if framework == "tensorflow":
        return module.constant(_aligned(entry.numpy))
    if framework == "jax":
        array = module.numpy.zeros(ELEMENTS, entry.numpy)
        return array if str(array.dtype) == dtype else None  # 64-bit types are narrowed by default
    if entry.kind == "complex":  # ONNX Runtime has none
        return None
    return module.OrtValue.ortvalue_from_shape_and_type([ELEMENTS], entry.onnx, "cpu")


def _aligned(dtype: Any) -> Any:
    """Zeros at a multiple of 64 bytes, which is what TensorFlow can take without a copy."""
    size = ELEMENTS * dtype.itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype)


def _address(framework: str, tensor: Any) -> int:
    """Where the tensor's first byte is."""
    if framework == "numpy":
        return int(tensor.ctypes.data)
    if framework == "jax":
        return int(tensor.unsafe_buffer_pointer())
    if framework == "tensorflow":
        return int(np.asarray(tensor).ctypes.data)  # a view, not a copy
    return int(tensor.data_ptr())
