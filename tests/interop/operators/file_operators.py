"""Operators that a model file calls: a module of their own, which a process may import or not."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import torch

import interop


@interop.operator("tensorflow")
def bend(x, *, scale=1.0):
    return tf.sin(x) * tf.cast(scale, x.dtype), tf.reduce_sum(x, -1)


@interop.operator("torch")
def triple(x):
    return x * 3


@interop.operator("numpy", shape=lambda x: interop.TensorSpec("", "int64", x.shape))
def order(x):
    if x.size and x.flat[0] > 50:
        raise ValueError("a test wants this to fail")
    return np.argsort(x, -1)


class Model(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4, dtype=dtype)
        self.dtype = dtype

    def forward(self, x):
        bent, total = bend(self.linear(x), scale=3.0)
        return triple(bent) + total[:, None], order(x * 2)

    def example_inputs(self):
        return torch.linspace(-1, 1, 8).reshape(2, 4).to(self.dtype)
