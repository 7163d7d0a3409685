"""What ``export_model(model, "onnx")`` costs beside the bare ``torch.onnx.export`` that it is built on.

    python -m benchmarks.export [--models resnet50 bert ...] [--rounds 5]

Both run in turns in one process, without verification, from the model in memory to the graph in memory; the figures are
medians. Both have the same dynamic dims: the batch, and for Transformers the sequence, which ``export_model`` takes by itself. The
peak of memory is measured in a process of its own for each side, as what it adds to the model itself, in multiples of the model's
weights.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import _memory
from benchmarks._networks import NETWORKS, make_torch
from exporters import export_model

TIME_LIMIT = 1.15
"""Allowed ratio of the times."""
MEMORY_LIMIT = 1.0
"""Allowed peak above the bare call's, in multiples of the weights."""


def sides_of(name: str, model: torch.nn.Module) -> dict[str, Callable[[], Any]]:
    """The two calls."""
    tensors = {key: torch.from_numpy(value) for key, value in NETWORKS[name].inputs(2).items()}
    by_name = hasattr(model, "config")
    example: Any = tensors if by_name else tuple(tensors.values())
    free = (0, 1) if by_name else (0,)
    shapes: Any = {key: dict.fromkeys(free, torch.export.Dim.DYNAMIC) for key in tensors}

    def bare() -> Any:
        given = {"kwargs": tensors} if by_name else {"args": example}
        dims = shapes if by_name else tuple(shapes.values())
        return torch.onnx.export(model, **given, dynamo=True, dynamic_shapes=dims, verbose=False)

    def ours() -> Any:
        return export_model(model, "onnx", inputs=example, verify=False)

    return {"bare": bare, "export_model": ours}


def measure(name: str, rounds: int) -> dict[str, float]:
    """Median seconds of each side; the first round warms up both."""
    sides = sides_of(name, make_torch(name))
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds + 1):
        for side, call in sides.items():
            start = time.perf_counter()
            with quiet():
                call()
            times[side].append(time.perf_counter() - start)
    return {side: statistics.median(values[1:]) for side, values in times.items()}


def peak_apart(name: str, side: str) -> float:
    """Peak of memory of one call, in multiples of the weights."""
    command = [sys.executable, "-m", "benchmarks.export", "--peak", name, side]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def peak(name: str, side: str) -> float:
    model = make_torch(name)
    call = sides_of(name, model)[side]
    with quiet():
        sides_of("lstm", make_torch("lstm"))[side]()  # what the libraries themselves take is there before
        before = _memory.held()
        call()
    weights = sum(value.nbytes for value in [*model.parameters(), *model.buffers()])
    return (_memory.peak() - before) / weights


@contextlib.contextmanager
def quiet() -> Any:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(json.dumps(peak(*options.peak)))
        return 0
    table = Table(title="Export to ONNX, without verification", box=None, pad_edge=False)
    for column in ("network", "torch.onnx.export s", "export_model s", "ratio", "peak bare", "peak ours", "met"):
        table.add_column(column, justify="left" if column == "network" else "right")
    all_met = True
    for name in options.models:
        seconds = measure(name, options.rounds)
        peaks = {side: peak_apart(name, side) for side in seconds}
        ratio = seconds["export_model"] / seconds["bare"]
        met = ratio <= TIME_LIMIT and peaks["export_model"] - peaks["bare"] <= MEMORY_LIMIT
        all_met &= met
        times = [f"{seconds[side]:.2f}" for side in ("bare", "export_model")]
        table.add_row(
            name, *times, f"{ratio:.3f}", f"{peaks['bare']:.2f}", f"{peaks['export_model']:.2f}", "yes" if met else "NO"
        )
    Console(width=120).print(table)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
