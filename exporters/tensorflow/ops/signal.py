"""Fourier transforms."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._table import lower
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of, static_shape


@lower("DFT", since=17, static=("dft_length",))
def dft_17(input, dft_length=None, *, axis=1, inverse=0, onesided=0):
    return _transform(input, dft_length, axis, bool(inverse), bool(onesided))


@lower("DFT", since=20, static=("dft_length", "axis"))
def dft(input, dft_length=None, axis=None, *, inverse=0, onesided=0):
    return _transform(input, dft_length, -2 if axis is None else _scalar(axis), bool(inverse), bool(onesided))


def _transform(x, length, axis, inverse, onesided):
    order = _swap_last(axis % rank_of(x), rank_of(x) - 1)
    # Going forward in double precision: in float32 much noise stands where the exact result is zero.
    signal = tf.transpose(_signal(x if inverse else tf.cast(x, tf.float64)), order)
    size = shape_of(signal, tf.int32)[-1]
    default = 2 * (size - 1) if inverse and onesided else size
    length = default if length is None else _scalar(length)
    if inverse and onesided:
        y = tf.signal.irfft(_complex(signal), [length])
    elif inverse:
        y = tf.signal.ifft(_resized(_complex(signal), length))
    elif onesided and not signal.dtype.is_complex:
        y = tf.signal.rfft(signal, [length])
    else:
        y = tf.signal.fft(_resized(_complex(signal), length))
        y = y[..., : length // 2 + 1] if onesided else y
    return _parts(tf.transpose(y, order), x.dtype)


def _swap_last(axis, rank):
    """The permutation that swaps an axis with the last one; it undoes itself."""
    if isinstance(axis, int):
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        return order
    places = tf.range(rank)
    return tf.where(places == axis, rank - 1, tf.where(places == rank - 1, axis, places))


def _signal(x):
    """``[..., 1]`` as real and ``[..., 2]`` as complex numbers, 16-bit types as float32."""
    wide = x if x.dtype in (tf.float32, tf.float64) else tf.cast(x, tf.float32)
    parts = static_shape(x)[-1]
    if parts is None:
        raise RefusedError("whether the signal is real or complex is not known while the graph is built")
    return wide[..., 0] if parts == 1 else tf.complex(wide[..., 0], wide[..., 1])


def _complex(signal):
    return signal if signal.dtype.is_complex else tf.complex(signal, tf.zeros_like(signal))


def _parts(y, dtype):
    """Real numbers as ``[..., 1]`` and complex ones as ``[..., 2]``."""
    parts = tf.stack([tf.math.real(y), tf.math.imag(y)], -1) if y.dtype.is_complex else y[..., None]
    return tf.cast(parts, dtype)


def _resized(signal, length):
    """Cut the last axis, or fill it with zeros."""
    size = shape_of(signal, tf.int32)[-1]
    if isinstance(size, int) and isinstance(length, int) and size == length:
        return signal
    missing = length - size
    missing = max(missing, 0) if isinstance(missing, int) else tf.maximum(missing, 0)
    cut = signal[..., :length]
    return tf.pad(cut, [[0, 0]] * (rank_of(signal) - 1) + [[0, missing]])


@lower("STFT", static=("frame_step", "frame_length"))
def stft(signal, frame_step, window=None, frame_length=None, *, onesided=1):
    samples = _signal(signal)
    if frame_length is not None:
        length = _scalar(frame_length)
    else:
        length = shape_of(samples if window is None else window, tf.int32)[-1]
    frames = tf.signal.frame(samples, length, _scalar(frame_step), axis=1)
    if window is not None:
        frames = frames * tf.cast(window, frames.dtype)
    if onesided and not frames.dtype.is_complex:
        return _parts(tf.signal.rfft(frames), signal.dtype)
    y = tf.signal.fft(_complex(frames))
    return _parts(y[..., : length // 2 + 1] if onesided else y, signal.dtype)


def _scalar(value):
    return int(value.item()) if isinstance(value, np.ndarray) else tf.cast(tf.reshape(value, []), tf.int32)
