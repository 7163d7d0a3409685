"""The same function written in each framework, as operators."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch

import interop


@interop.operator("torch")
def wave_torch(x, y, scale=2.0, *, sum_axis=-1):
    return {"wave": torch.sin(x) * y * scale, "more": (x.exp().sum(sum_axis), None), "sign": (x > 0).to(torch.int64)}


@interop.operator("tensorflow")
def wave_tensorflow(x, y, scale=2.0, *, sum_axis=-1):
    wave = tf.sin(x) * y * tf.cast(scale, x.dtype)
    return {"wave": wave, "more": (tf.reduce_sum(tf.exp(x), sum_axis), None), "sign": tf.cast(x > 0, tf.int64)}


@interop.operator("jax")
def wave_jax(x, y, scale=2.0, *, sum_axis=-1):
    return {"wave": jnp.sin(x) * y * scale, "more": (jnp.exp(x).sum(sum_axis), None), "sign": (x > 0).astype("int64")}


@interop.operator("numpy")
def wave_numpy(x, y, scale=2.0, *, sum_axis=-1):
    return {"wave": np.sin(x) * y * scale, "more": (np.exp(x).sum(sum_axis), None), "sign": (x > 0).astype("int64")}


WAVES = {"torch": wave_torch, "tensorflow": wave_tensorflow, "jax": wave_jax}


def arrays(*shape):
    """Two float64 arrays, the same on every call."""
    rng = np.random.default_rng(0)
    return rng.normal(size=shape), rng.normal(size=shape)
