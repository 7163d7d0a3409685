"""What ``interop.check`` costs beside the runs that it makes.

Each network is checked against its ONNX export. The runs of such a check are counted while it happens (the reference in its own
precision, in float64 and with moved operands, and the candidate), then the very same runs are made alone, and both are timed in
turns in one process. Loading the candidate is no part of either side. What is left is binding, copying, judging and reporting.

    python -m benchmarks.check_cost
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

import torch

import interop
from exporters import export_model
from interop.parity.noise import SAMPLES
from interop.parity.variants import Float64, Jitter
from interop.parity.witness import keep_rng, naming_of, witness_of

LIMIT = 1.5
"""What a check of a network of realistic size may cost, as a multiple of its runs."""


class Tiny(torch.nn.Module):
    """Nothing to compute: what a check costs at least."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (3, 32, 64, 128)
        steps = [
            part
            for a, b in itertools.pairwise(sizes)
            for part in (torch.nn.Conv2d(a, b, 3, 2, 1), torch.nn.BatchNorm2d(b), torch.nn.ReLU())
        ]
        self.steps = torch.nn.Sequential(
            *steps, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10)
        )

    def forward(self, x):
        return self.steps(x)


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True) for _ in range(4)
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


NETWORKS = {
    "tiny": (Tiny, (2, 4), False),
    "convolutions": (Convolutions, (8, 3, 160, 160), True),
    "transformer": (Transformer, (8, 64, 256), True),
}
"""Name -> class, shape of its input, whether it is of realistic size."""


def runs_alone(model, loaded, reference, tensors, naming):
    """The runs of one case, and nothing else."""
    with keep_rng(0):
        with torch.no_grad():
            model(*tensors.values())
        loaded.run(tensors)
        reference.run(tensors, naming, Float64())
        for number in range(SAMPLES):
            reference.run(tensors, naming, Jitter(number))


def measure(name, cases, repeats):
    """``(seconds of the check, seconds of its runs)``, medians of runs in turns."""
    kind, shape, _ = NETWORKS[name]
    torch.manual_seed(0)
    model = kind().eval()
    batches = [torch.randn(shape) for _ in range(cases)]
    loaded = interop.load(export_model(model, "onnx", inputs=(batches[0],), verify=False))
    reference = witness_of(model)
    naming = naming_of(reference, witness_of(loaded))
    (input_name,) = naming.input_names

    def check():
        interop.check(model, loaded, inputs=[(batch,) for batch in batches]).raise_for_failure()

    def alone():
        for batch in batches:
            runs_alone(model, loaded, reference, {input_name: batch}, naming)

    times = {check: [], alone: []}
    for step in (check, alone):  # the first run of anything is another one
        step()
    for _ in range(repeats):
        for step, found in times.items():
            start = time.perf_counter()
            step()
            found.append(time.perf_counter() - start)
    return statistics.median(times[check]), statistics.median(times[alone])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    over = []
    for name, (_, _, realistic) in NETWORKS.items():
        whole, runs = measure(name, options.cases, options.repeats)
        print(f"{name:14} check {whole * 1e3:9.1f} ms, its runs {runs * 1e3:9.1f} ms, ratio {whole / runs:5.2f}")
        over += [name] if realistic and whole > LIMIT * runs else []
    if over:
        raise SystemExit(f"more than {LIMIT} x the runs: {', '.join(over)}")


if __name__ == "__main__":
    main()
