"""A ResNet-50 from torch, exported to TensorFlow, against ``keras.applications.ResNet50``; and what its graph is made of.

python -m benchmarks.tensorflow_resnet50 [--rounds 30] [--size 224]
"""

from __future__ import annotations

import argparse
import collections
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import torch
from torch import nn

from exporters.tensorflow._convert import lower_model


class Bottleneck(nn.Module):
    """The residual block of ResNet-50; the stride stands in the first convolution, as Keras has it."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, stride, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """ResNet-50 with random weights and running statistics that are not the initial ones."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for index, count in enumerate((3, 4, 6, 3)):
        width = 64 * 2**index
        for block in range(count):
            layers.append(Bottleneck(channels, width, 2 if index and not block else 1))
            channels = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000), nn.Softmax(-1))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.normal_(module.running_mean, 0.0, 0.1)
    return model.eval()


def exported(model: nn.Module, size: int, *, optimize: bool = True) -> Any:
    """The concrete function of the exported model, batch size free."""
    shapes = {"input": {0: torch.export.Dim.DYNAMIC}}
    example = torch.randn(2, 3, size, size)
    program = torch.onnx.export(model, (example,), dynamo=True, dynamic_shapes=shapes, optimize=optimize, verbose=False)
    assert program is not None
    return lower_model(program.model)


def optimised_counts(function: Any) -> collections.Counter[str]:
    """How often each operation stands in the graph that TensorFlow's optimizer leaves."""
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
    from tensorflow.python.framework import convert_to_constants  # noqa: F401  # loads the ops that variables need
    from tensorflow.python.grappler import tf_optimizer
    from tensorflow.python.training import saver

    graph_def = function.graph.as_graph_def()
    meta = saver.export_meta_graph(graph_def=graph_def, graph=function.graph)
    for tensor in function.outputs:
        meta.collection_def["train_op"].node_list.value.append(tensor.op.name)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    left = tf_optimizer.OptimizeGraph(config, meta_graph_pb2.MetaGraphDef.FromString(meta.SerializeToString()))
    return collections.Counter(node.op for node in left.node)


def measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median wall-clock and CPU seconds of each call, taken in turns; the latter hold on a machine that others use too."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds + 3):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: tuple(map(statistics.median, zip(*values[3:]))) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--no-optimize", action="store_true", help="leave BatchNormalization unfused in the ONNX graph")
    options = parser.parse_args()
    import keras

    model = resnet50()
    start = time.perf_counter()
    module = exported(model, options.size, optimize=not options.no_optimize)
    print(f"export and lowering: {time.perf_counter() - start:.1f} s")
    ours = module.serving_signature()
    name = next(iter(ours.structured_input_signature[1]))
    native = keras.applications.ResNet50(weights=None, input_shape=(options.size, options.size, 3))
    spec = tf.TensorSpec([None, options.size, options.size, 3], tf.float32)
    keras_function = tf.function(lambda x: native(x, training=False)).get_concrete_function(spec)
    print("ours :", dict(optimised_counts(ours)))
    print("keras:", dict(optimised_counts(keras_function)))
    for batch in (1, 8):
        x = np.random.default_rng(0).normal(size=(batch, 3, options.size, options.size)).astype(np.float32)
        first, last = tf.constant(x), tf.constant(x.transpose(0, 2, 3, 1).copy())
        with torch.no_grad():
            expected = model(torch.from_numpy(x)).numpy()
        worst = np.abs(next(iter(ours(**{name: first}).values())).numpy() - expected).max()
        calls = {"ours": lambda: ours(**{name: first}), "keras": lambda: keras_function(last)}
        medians = measure(calls, options.rounds)
        wall, cpu = (medians["ours"][i] / medians["keras"][i] for i in range(2))
        print(
            f"batch {batch}: ours {medians['ours'][0] * 1e3:.1f} ms, keras {medians['keras'][0] * 1e3:.1f} ms, "
            f"ratio {wall:.3f} (CPU time {cpu:.3f}); largest difference from torch {worst:.1e}"
        )


if __name__ == "__main__":
    main()
