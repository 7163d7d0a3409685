"""Fourier transforms."""

from __future__ import annotations

import torch

from exporters.torch._table import lower
from exporters.torch._values import number


@lower("DFT", since=17, static=("dft_length",))
def dft_17(input, dft_length=None, *, axis=1, inverse=0, onesided=0):
    return _transform(input, dft_length, axis, bool(inverse), bool(onesided))


@lower("DFT", since=20, static=("dft_length", "axis"))
def dft(input, dft_length=None, axis=None, *, inverse=0, onesided=0):
    return _transform(input, dft_length, -2 if axis is None else int(number(axis)), bool(inverse), bool(onesided))


def _transform(x, length, axis, inverse, onesided):
    axis %= x.ndim
    # Going forward in double precision: in float32 much noise stands where the exact result is zero.
    signal = _signal(x if inverse else x.double())
    size = signal.shape[axis]
    length = (2 * (size - 1) if inverse and onesided else size) if length is None else number(length)
    if inverse and onesided:
        y = torch.fft.irfft(signal, length, axis)
    elif inverse:
        y = torch.fft.ifft(signal, length, axis)
    elif onesided and not signal.is_complex():
        y = torch.fft.rfft(signal, length, axis)
    else:
        y = torch.fft.fft(signal, length, axis)
        y = y.narrow(axis, 0, length // 2 + 1) if onesided else y
    return _parts(y, x.dtype)


def _signal(x):
    """``[..., 1]`` as real and ``[..., 2]`` as complex numbers, 16-bit types as float32."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    return wide[..., 0] if x.shape[-1] == 1 else torch.complex(wide[..., 0], wide[..., 1])


def _parts(y, dtype):
    """Real numbers as ``[..., 1]`` and complex ones as ``[..., 2]``."""
    return (torch.view_as_real(y) if y.is_complex() else y[..., None]).to(dtype)


@lower("STFT", static=("frame_step", "frame_length"))
def stft(signal, frame_step, window=None, frame_length=None, *, onesided=1):
    samples = _signal(signal)
    if frame_length is not None:
        length = number(frame_length)
    else:
        length = (samples if window is None else window).shape[-1]
    frames = samples.unfold(1, length, number(frame_step))
    if window is not None:
        frames = frames * window.to(frames.dtype)
    if onesided and not frames.is_complex():
        return _parts(torch.fft.rfft(frames), signal.dtype)
    y = torch.fft.fft(frames)
    return _parts(y[..., : length // 2 + 1] if onesided else y, signal.dtype)
