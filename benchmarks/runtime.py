"""Cost of ``interop``'s conversions and runtimes next to the best raw route that a careful user would write.

Interleaved in one process: short blocks of calls to the raw route and to ours alternate, so that a busy machine slows
both; the figure is the median of the ratios block by block. Both sides of a row use the same session, function or
module. Rows with a limit are promises; the others are for scale. ``python -m benchmarks.runtime [--blocks N]``
"""

import argparse
import itertools
import statistics
import sys
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import tensorflow as tf
import torch
from onnx import TensorProto, helper
from torch.utils.dlpack import from_dlpack as torch_from
from torch.utils.dlpack import to_dlpack as torch_to

import interop
from benchmarks.convert import ROUTES, routes_of, tensors

SMALL, LARGE = 16, 1 << 24  # float32: 64 bytes, 64 MB
DLPACK = tf.experimental.dlpack


@dataclass(frozen=True)
class Row:
    """Two callables that do the same; ``limit`` is the ratio that is promised."""

    name: str
    against: str
    ours: Callable[[], Any]
    raw: Callable[[], Any]
    limit: float | None = None
    calls: int = 200


def onnx_model(op: str, inputs: int):
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"] * inputs, ["y"])], "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def conversions():
    sources = tensors()
    for source, to, raw in ROUTES:
        ours, plain = routes_of(sources[source], to, raw)
        yield Row(f"convert {source} -> {to}", raw, ours, plain, 1.5 if "dlpack" in raw or "from" in raw else None)


def tiny_onnx():
    runtime: Any = interop.load(onnx_model("Add", 2), threads=1)
    session, names = runtime.session, ["y"]
    x, y, array = torch.ones(SMALL), torch.empty(SMALL), np.ones(SMALL, np.float32)
    feed, inputs, out = {"x": array}, {"x": x}, {"y": y}
    turn, turn_again = (itertools.cycle([torch.ones(SMALL) for _ in range(64)]) for _ in range(2))
    kept = session.io_binding()
    kept.bind_ortvalue_output("y", onnxruntime.OrtValue.from_dlpack(torch_to(y)))

    def arrays():
        return session.run(None, feed)

    def by_array(x=x):
        return torch.from_numpy(session.run(names, {"x": x.numpy()})[0])

    def by_binding(x=x):
        kept.bind_ortvalue_input("x", onnxruntime.OrtValue.from_dlpack(torch_to(x)))
        session.run_with_iobinding(kept)
        return y

    name, plain, through = "onnxruntime tiny, ", "session.run, arrays in and out", "session.run, x.numpy(), from_numpy"
    yield Row(name + "run, torch", plain, lambda: runtime.run(inputs), arrays, 1.0)
    yield Row(name + "call, torch", plain, lambda: runtime(x), arrays)
    yield Row(name + "call, torch", through, lambda: runtime(x), by_array, 1.0)
    yield Row(name + "call, 64 in turn", plain, lambda: runtime(next(turn)), arrays)
    yield Row(name + "call, 64 in turn", through, lambda: runtime(next(turn)), lambda: by_array(next(turn_again)), 1.0)
    yield Row(name + "call, numpy", plain, lambda: runtime(array), arrays)
    fixed = "kept IOBinding, fixed output"
    yield Row(name + "run(out=), torch", fixed, lambda: runtime.run(inputs, out=out), by_binding, 1.3)
    ours, raw = lambda: runtime.run({"x": next(turn)}, out=out), lambda: by_binding(next(turn_again))
    yield Row(name + "run(out=), 64 in turn", fixed, ours, raw, 1.3)


def large_onnx():
    runtime: Any = interop.load(onnx_model("Relu", 1), threads=1)
    session, names = runtime.session, ["y"]
    x, y = torch.randn(LARGE), torch.empty(LARGE)
    inputs, out = {"x": x}, {"y": y}
    binding = session.io_binding()

    def dropped():
        return torch.from_numpy(session.run(names, {"x": x.numpy()})[0])

    def into_fresh():
        result = np.empty(LARGE, np.float32)
        binding.bind_cpu_input("x", x.numpy())
        binding.bind_output("y", "cpu", 0, np.float32, [LARGE], result.ctypes.data)
        session.run_with_iobinding(binding)
        return torch.from_numpy(result)

    def fresh():
        return runtime.run(inputs)

    def given():
        return runtime.run(inputs, out=out)

    name = "onnxruntime 64 MB, "
    yield Row(name + "run(out=)", "into a fresh array", given, into_fresh, 0.6, 1)
    yield Row(name + "run", "into a fresh array", fresh, into_fresh, None, 1)
    yield Row(name + "run(out=)", "session.run, copied to y", given, lambda: y.copy_(dropped()), 0.6, 1)
    yield Row(name + "run", "session.run, result dropped", fresh, dropped, None, 1)


class Doubler(tf.Module):
    """The smallest module with a signature."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def double(self, x):
        return {"y": x + x}

    def serving_signature(self):
        return self.double.get_concrete_function()


class Double(torch.nn.Module):
    """The same in torch."""

    def forward(self, x):
        return x + x

    def example_inputs(self):
        return torch.ones(SMALL)


def others():
    x, given, array = torch.ones(SMALL), tf.ones(SMALL), np.ones(SMALL, np.float32)
    double = Doubler()
    runtime, function = interop.load(double), double.serving_signature()

    def by_capsule():
        return torch_from(DLPACK.to_dlpack(function(x=DLPACK.from_dlpack(torch_to(x)))["y"]))

    yield Row("tensorflow tiny, call, torch", "function, capsules", lambda: runtime(x), by_capsule, None, 50)
    yield Row("tensorflow tiny, call, own", "function", lambda: runtime(given), lambda: function(x=given), None, 50)

    module = Double()
    program = torch.export.export(module, (x,))
    wrapped, loaded, exported = interop.load(module), interop.load(program), program.module()
    wrapped(x)

    def plainly(call):
        with torch.no_grad():
            return call(x)

    yield Row("torch tiny, call", "module, no_grad", lambda: wrapped(x), lambda: plainly(module))
    yield Row("torch program tiny, call", "module(), no_grad", lambda: loaded(x), lambda: plainly(exported), None, 50)

    def through():
        with torch.no_grad():
            return module(torch.from_numpy(array)).numpy()

    yield Row("torch tiny, call, numpy", "from_numpy, module, numpy", lambda: wrapped(array), through)


def measure(row: Row, blocks: int):
    """Median microseconds of both sides, and the median of their ratio block by block."""
    timers = [timeit.Timer(call) for call in (row.ours, row.raw)]
    rounds = []
    for index in range(blocks + 2):
        pair = [timer.timeit(row.calls) * 1e6 / row.calls for timer in timers]
        if index > 1:
            rounds.append(pair)
    ours, raw = (statistics.median(column) for column in zip(*rounds))
    return ours, raw, statistics.median(mine / other for mine, other in rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=101)
    blocks = parser.parse_args().blocks
    torch.set_num_threads(1)
    missed = 0
    print(f"{'what':46}{'ours us':>10}{'raw us':>10}{'ratio':>7}{'limit':>7}  met  raw route")
    for row in itertools.chain(conversions(), tiny_onnx(), large_onnx(), others()):
        ours, raw, ratio = measure(row, blocks if row.calls > 1 else min(blocks, 25))
        met = "" if row.limit is None else "yes" if ratio <= row.limit else "NO"
        missed += met == "NO"
        limit = "" if row.limit is None else f"{row.limit:.1f}"
        print(f"{row.name:46}{ours:10.2f}{raw:10.2f}{ratio:7.2f}{limit:>7}  {met:4} {row.against}", flush=True)
    sys.exit(f"{missed} above their limit" if missed else 0)


if __name__ == "__main__":
    main()
