"""Fourier transforms against NumPy and torch; image decoding against the bytes that were encoded."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from tests.exporters.tensorflow._nodes import check_node, lower_node


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def _parts(y: np.ndarray) -> np.ndarray:
    return np.stack([y.real, y.imag], -1).astype("float32")


@pytest.mark.parametrize("axis", [1, 2, -2, -3])
@pytest.mark.parametrize("length", [None, 4, 9])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("onesided", [0, 1])
def test_dft_equals_numpy(axis, length, parts, onesided):
    x = _normal(2, 6, 5, parts)
    signal = x[..., 0] if parts == 1 else x[..., 0] + 1j * x[..., 1]
    place = axis if axis >= 0 else axis + 4
    expected = np.fft.fft(signal.astype("complex128"), length, place)
    if onesided:
        expected = np.take(expected, range(expected.shape[place] // 2 + 1), place)
    inputs = [x, None if length is None else np.array(length), np.array(axis)]
    for constants in ((1, 2) if length else (2,), ()):
        options = {"constants": constants, "known": (0,), "rtol": 1e-4}
        check_node("DFT", inputs, [_parts(expected)], {"onesided": onesided}, **options)
    without = {"axis": axis, "onesided": onesided}
    check_node(
        "DFT", inputs[:2] if length else inputs[:1], [_parts(expected)], without, known=(0,), rtol=1e-4, opset=17
    )


@pytest.mark.parametrize("length", [None, 7])
def test_dft_inverse_onesided_is_real(length):
    x = _normal(2, 5, 2)
    expected = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, 1)[..., None].astype("float32")
    inputs = [x] if length is None else [x, np.array(length)]
    check_node("DFT", inputs, [expected], {"inverse": 1, "onesided": 1}, known=(0,), constants=(1,)[: len(inputs) - 1])


@pytest.mark.parametrize("onesided", [True, False])
def test_stft_and_its_gradient_equal_torch(onesided):
    x, window = _normal(2, 40, 1), np.hanning(16).astype("float32")
    tensor = torch.from_numpy(x[..., 0]).requires_grad_()
    transformed = torch.stft(
        tensor, 16, 5, 16, torch.from_numpy(window), center=False, onesided=onesided, return_complex=True
    )
    expected = torch.view_as_real(transformed).transpose(1, 2)
    inputs = [x, np.array(5), window]
    attributes = {"onesided": int(onesided)}
    check_node("STFT", inputs, [expected.detach().numpy()], attributes, constants=(1, 2), known=(0,), rtol=1e-4)
    check_node("STFT", [*inputs, np.array(16)], [expected.detach().numpy()], attributes, known=(0,), rtol=1e-4)


IMAGE = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype("uint8")


@pytest.mark.parametrize(
    "contents",
    [
        tf.io.encode_png(IMAGE).numpy(),
        b"P6\n# a comment\n7 5\n255\n" + IMAGE.tobytes(),
    ],
    ids=["png", "pixel map"],
)
def test_image_decoder_gives_the_pixels_back(contents):
    stream = np.frombuffer(contents, "uint8")
    check_node("ImageDecoder", [stream], [IMAGE])
    check_node("ImageDecoder", [stream], [IMAGE[..., ::-1]], {"pixel_format": "BGR"})
    luma = IMAGE.astype("float64") @ [0.299, 0.587, 0.114]
    gray = lower_node("ImageDecoder", [stream], [np.dtype("uint8")], {"pixel_format": "Grayscale"})
    result = next(iter(gray(tf.constant(stream)).values())).numpy()
    assert result.shape == (5, 7, 1)
    np.testing.assert_allclose(result[..., 0], luma, atol=0.51)


def test_image_decoder_reads_gray_maps():
    pixels = IMAGE[..., :1]
    stream = np.frombuffer(b"P5 7 5 255\n" + pixels.tobytes(), "uint8")
    check_node("ImageDecoder", [stream], [np.repeat(pixels, 3, -1)])


def test_image_decoder_refuses_a_format_that_tensorflow_lacks():
    stream = np.frombuffer(b"II*\x00" + bytes(60), "uint8")
    module = lower_node("ImageDecoder", [stream], [np.dtype("uint8")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
        module(tf.constant(stream))
