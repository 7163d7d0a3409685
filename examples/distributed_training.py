"""Train on several processes, then export on one of them and check that the file is the model that was trained.

The same script runs on torch.distributed and on Horovod; each process works on its own part of the data.

    torchrun --nproc-per-node 2 -m examples.distributed_training
    horovodrun -np 2 --gloo python -m examples.distributed_training    # where Horovod is installed
    python -m examples.distributed_training                            # one process
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from exporters import export_model
from models.digits import Digits
from models.digits.data import split

BATCH = 64


class Workers(Protocol):
    """What the script needs of a library for distributed training."""

    name: str
    rank: int
    size: int

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Start all workers from the parameters of rank 0; afterwards each step averages the gradients."""
        ...

    def gather(self, text: str) -> list[str]:
        """The texts of all workers, in the order of their ranks."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class TorchWorkers:
    """torch.distributed with gloo, as started by torchrun; one process by itself where nothing started it."""

    name = "torch.distributed"

    def __init__(self) -> None:
        alone = "RANK" not in os.environ
        store = torch.distributed.HashStore() if alone else None
        torch.distributed.init_process_group(
            "gloo", store=store, rank=0 if alone else -1, world_size=1 if alone else -1
        )
        self.rank, self.size = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        # DistributedDataParallel broadcasts parameters and buffers of rank 0 when it is made.
        return nn.parallel.DistributedDataParallel(model), optimizer

    def gather(self, text: str) -> list[str]:
        found: list[str] = [""] * self.size
        torch.distributed.all_gather_object(found, text)
        return found

    def close(self) -> None:
        torch.distributed.destroy_process_group()


class HorovodWorkers:
    """Horovod, as started by horovodrun."""

    name = "horovod"

    def __init__(self) -> None:
        import horovod.torch as hvd

        hvd.init()
        self._hvd = hvd
        self.rank, self.size = hvd.rank(), hvd.size()

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        self._hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        # A new optimizer has no state; one from a checkpoint also needs hvd.broadcast_optimizer_state(optimizer, 0).
        return model, self._hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def gather(self, text: str) -> list[str]:
        return list(self._hvd.allgather_object(text))

    def close(self) -> None:
        self._hvd.shutdown()


def workers(library: str) -> Workers:
    """Join the other processes.

    Args:
        library: ``"torch"``, ``"horovod"``, or ``"auto"``: Horovod where it is installed and nobody used torchrun.
    """
    if library == "auto":
        horovod = importlib.util.find_spec("horovod") is not None and "TORCHELASTIC_RUN_ID" not in os.environ
        library = "horovod" if horovod else "torch"
    return HorovodWorkers() if library == "horovod" else TorchWorkers()


def digest(model: nn.Module) -> str:
    """A hash of all trainable parameters: equal only where every bit is."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def train(group: Workers, model: Digits, steps: int) -> None:
    """Train on this worker's part of the scans.

    Args:
        group: the workers.
        model: changed in place.
        steps: how many batches each worker takes.
    """
    torch.manual_seed(group.rank)  # another order, and other dropout, on each worker
    images, labels = (part[group.rank :: group.size] for part in split()[0])
    network, optimizer = group.prepare(model, torch.optim.AdamW(model.parameters(), lr=4e-3))
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,))
        loss: Tensor = functional.cross_entropy(network(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def share_statistics(group: Workers, model: nn.Module) -> None:
    """Average what each worker counted on its own part of the data: the statistics of the batch norms."""
    mine = {name: value.tolist() for name, value in model.named_buffers() if value.is_floating_point()}
    everyone = [json.loads(text) for text in group.gather(json.dumps(mine))]
    for name, value in model.named_buffers():
        if value.is_floating_point():
            value.copy_(torch.tensor([statistics[name] for statistics in everyone]).mean(dim=0))


def export(model: nn.Module, path: Path) -> str:
    """Export and check; nothing is written where the file would be another function."""
    exported = export_model(model.eval(), "onnx", path=path)
    assert exported.parity is not None
    return exported.parity.summary


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, compare the workers, export on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--library", choices=["auto", "torch", "horovod"], default="auto")
    parser.add_argument("--out", type=Path, default=Path("demo-output/distributed.onnx"))
    options = parser.parse_args(arguments)
    group = workers(options.library)
    try:
        torch.manual_seed(100 + group.rank)  # the workers start apart; prepare makes them equal
        model = Digits()
        before = group.gather(digest(model))
        train(group, model, options.steps)
        after = group.gather(digest(model))
        if len(set(after)) != 1:
            raise SystemExit(f"the workers have different parameters: {after}")
        share_statistics(group, model)
        if group.rank == 0:
            report = {"library": group.name, "size": group.size, "before": before, "after": after}
            print(json.dumps(report | {"parity": export(model, options.out)}), flush=True)
        group.gather("done")  # nobody leaves while rank 0 still exports
    finally:
        group.close()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # threads of gloo may outlive the group (torch 2.13), and then end the process with an abort at exit
