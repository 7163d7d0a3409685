"""Resident memory over many calls: every main pair of ``interop.convert``, a guard, and the runtimes.

For each row: a twentieth of the calls to warm up, then all of them in blocks; the figure is how much the lowest
resident memory of the last blocks lies above that of the first ones (a leak grows in every block, an allocator only until
it has what it needs). Slow rows make fewer calls. Exit code 1 where a row grew more than the limit.
``python -m benchmarks.soak [--calls N] [--limit KIB] [--only TEXT]``
"""

import argparse
import gc
import itertools
import resource
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
import tensorflow as tf
import torch
from onnx import TensorProto, helper

import interop
from benchmarks.runtime import Doubler
from interop.frameworks._memory import fresh

BLOCKS = 20
TARGETS = ("torch", "numpy", "tensorflow", "onnxruntime", "jax")


def resident():
    """Bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def growth(call, calls):
    """How many bytes ``calls`` calls leave behind."""
    block = max(1, calls // BLOCKS)
    sizes = []
    for _ in range(BLOCKS + 1):  # the first warms up
        for _ in range(block):
            call()
        gc.collect()
        sizes.append(resident())
    early, late = sizes[1 : BLOCKS // 4], sizes[-BLOCKS // 4 :]
    return min(late) - min(early)


def onnx_model(dtype):
    info = [helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in (("x", TensorProto.FLOAT), ("y", dtype))]
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=dtype)], "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Exporter:
    """Speaks only the protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, max_version=None):
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self):
        return (1, 0)


def conversions():
    """Name, call, and the part of the calls that it makes."""
    array = fresh(np.ones(64, np.float32))
    sources = {
        "torch": torch.ones(64),
        "numpy": array,
        "tensorflow": tf.ones(64),
        "onnxruntime": onnxruntime.OrtValue.from_dlpack(torch.utils.dlpack.to_dlpack(torch.ones(64))),
        "jax": jax.numpy.ones(64),
        "an unknown exporter": Exporter(array),
    }
    for source, x in sources.items():
        for to in TARGETS:
            if source != to:
                part = 0.05 if to == "jax" or source.startswith("an ") else 1
                yield f"convert {source} -> {to}", lambda x=x, to=to: interop.convert(x, to), part
    rows = torch.ones(8, 8)[:, ::2]
    yield "convert strided torch -> tensorflow (copy)", lambda: interop.convert(rows, "tensorflow"), 0.1
    tree = {"a": torch.ones(4), "b": [torch.ones(4)]}
    yield "convert nested torch -> numpy", lambda: interop.convert(tree, "numpy"), 0.1

    def guarded():
        with interop.guard():
            interop.convert(sources["torch"], "numpy", guard=True)

    yield "guarded convert torch -> numpy", guarded, 0.05


def runtimes():
    """Name, call, and the part of the calls that it makes."""
    x, array, out = torch.ones(64), np.ones(64, np.float32), torch.empty(64)
    sizes = itertools.cycle([torch.ones(size) for size in range(1, 65)])
    double: Any = interop.load(onnx_model(TensorProto.DOUBLE), threads=1)
    half: Any = interop.load(onnx_model(TensorProto.BFLOAT16), threads=1)
    same: Any = interop.load(onnx_model(TensorProto.FLOAT), threads=1)
    given = tf.ones(64)
    yield "onnxruntime torch -> torch", lambda: double(x), 1
    yield "onnxruntime torch -> torch, new shapes", lambda: double(next(sizes)), 1
    yield "onnxruntime numpy -> numpy", lambda: double(array), 1
    yield "onnxruntime tensorflow -> tensorflow", lambda: double(given), 0.1
    yield "onnxruntime into out=", lambda: same.run({"x": x}, out={"y": out}), 1
    yield "onnxruntime into new out=", lambda: same.run({"x": x}, out={"y": torch.empty(64)}), 0.1
    yield "onnxruntime numpy -> bfloat16 by binding", lambda: half(array), 0.1
    model = interop.load(Doubler())
    yield "tensorflow torch -> torch", lambda: model(x), 0.02
    module = interop.load(torch.nn.Identity())
    module(x)
    yield "torch numpy -> numpy", lambda: module(array), 0.1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--limit", type=int, default=1024, help="KiB that a row may grow")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    given = parser.parse_args()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # what the frameworks made while they were imported is not looked at again
    grown = []
    print(f"{'what':48}{'calls':>10}{'grew KiB':>10}{'seconds':>9}")
    for name, call, part in itertools.chain(conversions(), runtimes()):
        if given.only not in name:
            continue
        calls, start = max(BLOCKS, int(given.calls * part)), time.perf_counter()
        kib = growth(call, calls) / 1024
        print(f"{name:48}{calls:10,}{kib:10.0f}{time.perf_counter() - start:9.1f}", flush=True)
        if kib > given.limit:
            grown.append(name)
    sys.exit(f"grew more than {given.limit} KiB: {', '.join(grown)}" if grown else 0)


if __name__ == "__main__":
    main()
