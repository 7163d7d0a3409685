"""Small modules that differ in one known place."""

import copy
import warnings

import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.out(self.norm(x)))


class InnerTanh(Inner):
    def forward(self, x):
        return torch.nn.functional.gelu(self.out(self.norm(x)), approximate="tanh")


class Net(nn.Module):
    """Two equal blocks, so that a module path has to be right, and a head."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Inner(), Inner()])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return torch.tanh(self.head(x))


class BranchingNet(Net):
    """Nothing that torch.export captures."""

    def forward(self, x):
        if x.sum() > 1e9:
            x = x + 1
        return super().forward(x)


class Images(nn.Module):
    """Convolutions, whose values stand channels-last in TensorFlow."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 16, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = x + torch.relu(self.second(x))
        return self.head(torch.max_pool2d(x, 2).flatten(1)).softmax(-1)


def seeded(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind().eval()


def with_other_weight(net, name, factor=1.05):
    changed = copy.deepcopy(net)
    with torch.no_grad():
        changed.get_parameter(name).mul_(factor)
    return changed


def rows(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def to_onnx(net, args, path, kwargs=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            net, args, kwargs=kwargs, dynamo=True, verbose=False, external_data=False, **options
        )
    program.save(path)
    return path
