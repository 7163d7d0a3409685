"""Models exported to TensorFlow, against the same networks written in Keras, ONNX Runtime and torch.

python -m benchmarks.tensorflow [--models resnet50 bert ...] [--rounds 20] [--quick] [--graphs]

All four run in turns in one process, in another order each round, so that a busy machine slows all of them and none has a
fixed neighbour (torch's threads spin for a while after its call, which slows the side that comes next). Each turn begins with a
call that is not timed; the figures are medians and ratios of medians. Conversion, from the ONNX graph in memory to the saved
SavedModel, is measured in a process of its own: its seconds, and its peak of memory in multiples of the model's weights, which
the ONNX graph holds once already.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import torch
from rich.console import Console
from rich.table import Table

import interop
from benchmarks import _memory
from benchmarks._networks import NETWORKS, make_torch
from exporters import export_model
from exporters.tensorflow import ATTENTION_OPSET

WARM_UP = 3
SIDES = ("exported", "keras", "onnxruntime", "torch")


def example(name: str, model: torch.nn.Module) -> Any:
    """The inputs that a network is exported with."""
    arrays = NETWORKS[name].inputs(2)
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    return tensors if hasattr(model, "config") else tuple(tensors.values())


def exported(model: torch.nn.Module, name: str, target: str, options: Any = None) -> Any:
    return export_model(model, target, inputs=example(name, model), options=options, verify=False)


def keras_function(name: str, batch: int) -> tuple[Any, list[Any]]:
    """The concrete function of the Keras model, batch size free, and its inputs."""
    network = NETWORKS[name]
    native = network.keras()
    inputs = [tf.constant(network.for_keras(value)) for value in network.inputs(batch).values()]
    specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in inputs]
    function = tf.function(lambda *xs: native(xs[0] if len(xs) == 1 else list(xs), training=False))
    return function.get_concrete_function(*specs), inputs


def calls_of(
    name: str, model: torch.nn.Module, batch: int, functions: Mapping[str, Any]
) -> dict[str, Callable[[], Any]]:
    """What is timed: each side with its inputs ready."""
    network = NETWORKS[name]
    arrays = network.inputs(batch)
    ours = dict(zip(functions["exported"].structured_input_signature[1], map(tf.constant, arrays.values())))
    native = [tf.constant(network.for_keras(value)) for value in arrays.values()]
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    session = functions["onnxruntime"]

    def eager() -> Any:
        with torch.inference_mode():
            return model(**tensors) if hasattr(model, "config") else model(*tensors.values())

    return {
        "exported": lambda: functions["exported"](**ours),
        "keras": lambda: functions["keras"](*native),
        "onnxruntime": lambda: session(*arrays.values()),
        "torch": eager,
    }


def measure(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median wall-clock and CPU seconds of each call, taken in turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    order, shuffle = list(calls.items()), random.Random(0).shuffle
    for _ in range(rounds + WARM_UP):
        shuffle(order)
        for name, call in order:
            call()
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: tuple(map(statistics.median, zip(*values[WARM_UP:]))) for name, values in times.items()}


def optimised_counts(function: Any) -> collections.Counter[str]:
    """How often each operation stands in the graph that TensorFlow's optimizer leaves, loop bodies and functions counted too."""
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
    from tensorflow.python.grappler import tf_optimizer
    from tensorflow.python.training import saver

    graph_def = function.graph.as_graph_def()
    meta = saver.export_meta_graph(graph_def=graph_def, graph=function.graph)
    for tensor in function.outputs:
        meta.collection_def["train_op"].node_list.value.append(tensor.op.name)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    left = tf_optimizer.OptimizeGraph(config, meta_graph_pb2.MetaGraphDef.FromString(meta.SerializeToString()))
    bodies = [node for function in left.library.function for node in function.node_def]
    return collections.Counter(node.op for node in [*left.node, *bodies])


def convert(name: str) -> dict[str, float]:
    """Seconds and peak memory from the ONNX graph in memory to the saved SavedModel; run in a process of its own."""
    graph = exported(make_torch(name), name, "onnx", {"opset": ATTENTION_OPSET}).artifact
    weights = sum(value.const_value.nbytes for value in graph.model.graph.initializers.values())
    with tempfile.TemporaryDirectory() as folder:
        before = _memory.held()
        start = time.perf_counter()
        from exporters.tensorflow._convert import lower_model
        from exporters.tensorflow._savedmodel import write_savedmodel

        write_savedmodel(lower_model(graph.model, graph.signature, graph.parameters), Path(folder) / "model")
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "weights": weights, "added": _memory.peak() - before}


def converted_apart(name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.tensorflow", "--convert", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def bench(
    name: str, batches: tuple[int, ...], rounds: int, *, graphs: bool
) -> dict[int, dict[str, tuple[float, float]]]:
    """The medians of one network by batch size."""
    model = make_torch(name)
    functions = {"exported": exported(model, name, "tensorflow").artifact.module.serving_signature()}
    functions["keras"], _ = keras_function(name, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        exported(model, name, "onnx").save(path)
        functions["onnxruntime"] = interop.load(path)
    if graphs:
        for side in SIDES[:2]:
            print(f"{name}, {side}:", dict(optimised_counts(functions[side]).most_common()))
    return {batch: measure(calls_of(name, model, batch, functions), rounds) for batch in batches}


def new_table() -> Table:
    table = Table(title="Exported to TensorFlow: milliseconds, medians", box=None, pad_edge=False)
    columns = [
        "network",
        "batch",
        *SIDES,
        "/ keras",
        "(CPU)",
        "/ onnxruntime",
        "/ torch",
        "convert s",
        "memory / weights",
    ]
    for column in columns:
        table.add_column(column, justify="left" if column == "network" else "right")
    return table


def row(name: str, batch: int, medians: Mapping[str, tuple[float, float]], cost: Mapping[str, float]) -> list[str]:
    wall = {side: medians[side][0] for side in SIDES}
    ratios = [f"{wall['exported'] / wall[side]:.3f}" for side in SIDES[1:]]
    cpu = medians["exported"][1] / medians["keras"][1]
    memory = 1 + cost["added"] / cost["weights"]
    times = [f"{wall[side] * 1e3:.2f}" for side in SIDES]
    return [name, str(batch), *times, ratios[0], f"{cpu:.3f}", *ratios[1:], f"{cost['seconds']:.1f}", f"{memory:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each side, within one operator")
    parser.add_argument("--quick", action="store_true", help="5 rounds, batch 1")
    parser.add_argument("--graphs", action="store_true", help="count the operations that TensorFlow's optimizer leaves")
    parser.add_argument("--convert", choices=NETWORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.convert:
        print(json.dumps(convert(options.convert)))
        return
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    torch.set_num_threads(options.threads)
    batches, rounds = ((1,), 5) if options.quick else (tuple(options.batches), options.rounds)
    table = new_table()
    for name in options.models:
        cost = converted_apart(name)
        for batch, medians in bench(name, batches, rounds, graphs=options.graphs).items():
            table.add_row(*row(name, batch, medians, cost))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
