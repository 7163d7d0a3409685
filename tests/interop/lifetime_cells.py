"""A child process: results outlive their sources, and conversions keep nothing. Prints what failed; exit code 0 is the test.

A result that reads freed memory finds the decoys' bytes there, or kills the process.
"""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnxruntime
import tensorflow as tf
import torch
from onnx import TensorProto, helper

from interop import convert
from tests.interop.tensor_matrix import bytes_of

COUNT = 1 << 18  # 1 MiB
BASE = np.random.default_rng(0).random(COUNT, np.float32)
OrtValue = onnxruntime.OrtValue


def session_output(values: Any) -> Any:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [COUNT]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    binding = session.io_binding()
    binding.bind_cpu_input("x", values)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


PRODUCERS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda values: torch.from_numpy(values.copy()),
    "torch clone": lambda values: torch.from_numpy(values).clone(),
    "parameter": lambda values: torch.nn.Parameter(torch.from_numpy(values).clone()),
    "numpy": lambda values: values.copy(),
    "numpy strided": lambda values: np.repeat(values, 2)[::2],
    "tensorflow": tf.constant,
    "variable": tf.Variable,
    "jax": lambda values: jnp.array(values, copy=True),
    "ortvalue over a temporary": lambda values: OrtValue.ortvalue_from_numpy(values.copy()),
    "ortvalue with type over a temporary": lambda values: OrtValue.ortvalue_from_numpy_with_onnx_type(values.copy(), 1),
    "ortvalue over a capsule": lambda values: OrtValue.from_dlpack(torch.from_numpy(values).clone()),
    "session output": session_output,
}
CONSUMERS = ("torch", "tensorflow", "numpy", "onnxruntime", "jax")


def routes() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for first in CONSUMERS:
        yield first, lambda x, first=first: convert(x, first)
        yield f"{first}, copy=True", lambda x, first=first: convert(x, first, copy=True)
        for second in CONSUMERS:
            yield f"{first} -> {second}", lambda x, first=first, second=second: convert(convert(x, first), second)


def dangling() -> Iterator[str]:
    """All results of a producer are made first, each with values of its own; then decoys take what was freed."""
    for name, make in PRODUCERS.items():
        results = [(route, cross(make(BASE + i))) for i, (route, cross) in enumerate(routes())]
        gc.collect()
        decoys = [np.full(COUNT, 7, np.float32) for _ in range(40)] + [torch.full((COUNT,), 8.0) for _ in range(40)]
        for i, (route, result) in enumerate(results):
            if bytes_of(result) != (BASE + i).tobytes():
                yield f"{name} -> {route}"
        del decoys


def resident() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 # no directory entry, a kernel table
        return int(file.read().split()[1]) * resource.getpagesize()


def leaking() -> Iterator[str]:
    for name, make in PRODUCERS.items():
        if name == "session output":
            continue
        for target in CONSUMERS:
            for _ in range(3):
                convert(make(BASE), target)
            before = resident()
            for _ in range(40):
                convert(make(BASE), target)
            if resident() - before > 16 << 20:
                yield f"{name} -> {target} grew by {(resident() - before) >> 20} MiB"


def main() -> None:
    failed = [*dangling(), *leaking()]
    sys.stdout.write("\n".join(failed) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
