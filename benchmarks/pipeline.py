"""A tf.data pipeline that feeds torch: by ``interop.convert`` and by NumPy, interleaved in one process.

Each block draws batches from the same pipeline and hands them to torch by one route; the blocks alternate, so that a busy machine
slows both. Two figures a batch size: what handing over costs, and the batches a second of drawing, handing over and reading
each element once (a sum, the least that a training step does). The prepared batches are cached: where preparing them is the
bottleneck, no route is quicker than another. ``python -m benchmarks.pipeline [--blocks N]``
"""

import argparse
import statistics
import time

import numpy as np
import tensorflow as tf
import torch

import interop

SIZES = {
    "32 x 64 floats (8 KB)": (32, 64),
    "32 x 3x32x32 (393 KB)": (32, 3, 32, 32),
    "32 x 3x224x224 (19 MB)": (32, 3, 224, 224),
}


def by_convert(batch):
    return interop.convert(batch, "torch")


def by_numpy(batch):
    return torch.from_numpy(batch.numpy())


def batches(shape):
    """Scaled and flipped, then kept as batches and given out without end."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(64, *shape[1:]), dtype=np.uint8)

    def prepare(image):
        return tf.reverse(tf.cast(image, tf.float32) / 255.0, [-1])

    dataset = tf.data.Dataset.from_tensor_slices(images).repeat().map(prepare)
    return iter(dataset.batch(shape[0]).take(4).cache().repeat())


def block(source, route, seconds):
    """Seconds a hand-over, and batches a second of everything."""
    handing, count, start = 0.0, 0, time.perf_counter()
    while time.perf_counter() - start < seconds or count < 3:
        batch = next(source)
        before = time.perf_counter()
        tensor = route(batch)
        handing += time.perf_counter() - before
        tensor.sum()
        count += 1
    return handing / count, count / (time.perf_counter() - start)


def measure(shape, blocks, seconds):
    source = batches(shape)
    routes = {"convert": by_convert, "numpy": by_numpy}
    found = {name: [] for name in routes}
    for route in routes.values():
        block(source, route, seconds)
    for _ in range(blocks):
        for name, route in routes.items():
            found[name].append(block(source, route, seconds))
    return {name: [statistics.median(column) for column in zip(*rows)] for name, rows in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the threads of a sum wait for each other where the machine is busy
    print(
        f"{'batch':<24} {'convert us':>11} {'numpy us':>11} {'ratio':>6}   {'convert/s':>10} {'numpy/s':>10} {'ratio':>6}"
    )
    for name, shape in SIZES.items():
        found = measure(shape, options.blocks, options.seconds)
        (cost, speed), (other_cost, other_speed) = found["convert"], found["numpy"]
        print(
            f"{name:<24} {cost * 1e6:>11.1f} {other_cost * 1e6:>11.1f} {cost / other_cost:>6.2f}   "
            f"{speed:>10.0f} {other_speed:>10.0f} {speed / other_speed:>6.2f}"
        )


if __name__ == "__main__":
    main()
