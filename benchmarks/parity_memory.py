"""How much memory ``interop.check`` and its search for the first difference take, as multiples of the model's weights.

A stack of residual feed-forward blocks is exported with one weight changed, and compared with what it was. Each step is a
process of its own, whose peak of resident memory is read off the system; what the libraries alone take is subtracted. The
reference's own weights are part of the figure, and so are the pages of the candidate's file that were read.

    python -m benchmarks.parity_memory --gigabytes 1
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import _memory

ROOT = Path(__file__).parent.parent
WIDTH = 2048
BLOCK_BYTES = 2 * WIDTH * 4 * WIDTH * 4
CHANGED = 1
LIMIT = 3.0
"""What the search for the first difference may take, as a multiple of the weights."""


def build(blocks):
    """The model, with the same weights in every process."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.up = nn.utils.skip_init(nn.Linear, WIDTH, 4 * WIDTH)
            self.down = nn.utils.skip_init(nn.Linear, 4 * WIDTH, WIDTH)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    model = nn.Sequential(*(Block() for _ in range(blocks))).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for block in model:
            for linear in (block.up, block.down):
                for weight in linear.parameters():
                    weight.uniform_(-0.02, 0.02, generator=generator)
    return model


def inputs():
    import torch

    return torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(1))


def step_baseline(blocks, path):
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import torch.onnx
    from onnxscript import optimizer  # noqa: F401

    import interop  # noqa: F401

    torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    return {}


def step_write(blocks, path):
    import torch

    import exporters

    model = build(blocks)
    with torch.no_grad():
        model[CHANGED].down.weight[5, 7] += 0.5
    exporters.export_model(model, "onnx", inputs=(inputs(),), path=path, verify=False)
    return {}


def step_locate(blocks, path):
    from interop.parity import locate

    return {"found": str(locate(build(blocks), path, inputs()))}


def step_locate_with_exporters(blocks, path):
    import exporters  # noqa: F401

    return step_locate(blocks, path)


def step_check(blocks, path):
    import interop

    report = interop.check(build(blocks), path, inputs=inputs(), locate=False, witnesses=False)
    return {"found": "" if report.passed else report.cases[0].reason}


def step_check_and_locate(blocks, path):
    """Both at once, as a failed ``interop.check`` does it."""
    import interop

    report = interop.check(build(blocks), path, inputs=inputs(), witnesses=False)
    return {"found": str(report.first_difference)}


STEPS = {name.removeprefix("step_"): value for name, value in list(globals().items()) if name.startswith("step_")}


def run_step(name, blocks, path):
    command = [sys.executable, "-m", "benchmarks.parity_memory", "--step", name, "--blocks", str(blocks), str(path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{name}: {result.stderr[-3000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def measure(gigabytes, folder):
    """``{step: {"times": multiples of the weights, "found": what it says}}``."""
    blocks = math.ceil(gigabytes * 1e9 / BLOCK_BYTES)
    weights, path = blocks * BLOCK_BYTES, Path(folder) / "model.onnx"
    run_step("write", blocks, path)
    base = run_step("baseline", blocks, path)["peak"]
    found = {}
    for name in ("locate", "locate_with_exporters", "check", "check_and_locate"):
        figures = run_step(name, blocks, path)
        found[name] = {"times": (figures["peak"] - base) / weights, "found": figures["found"]}
    return weights, base, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--blocks", type=int)
    parser.add_argument("path", nargs="?")
    options = parser.parse_args()
    if options.step:
        found = STEPS[options.step](options.blocks, options.path)
        print(json.dumps(found | {"peak": _memory.peak()}))
        return
    with tempfile.TemporaryDirectory() as folder:
        weights, base, found = measure(options.gigabytes, folder)
    print(f"weights {weights / 1e9:.2f} GB, libraries {base / 1e9:.2f} GB")
    for name, figures in found.items():
        print(f"{name:22} {figures['times']:5.2f} x the weights   {figures['found'][:110]}")
    if any(figures["times"] > LIMIT for figures in found.values()):
        raise SystemExit(f"more than {LIMIT:g} x the weights")


if __name__ == "__main__":
    main()
