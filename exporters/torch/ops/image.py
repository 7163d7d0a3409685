"""Decoding of image files."""

from __future__ import annotations

import io

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._values import RefusedError

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@lower("ImageDecoder")
def image_decoder(encoded_stream, *, pixel_format="RGB"):
    """Whatever Pillow decodes, where it is installed."""
    if pixel_format not in _MODES:
        raise RefusedError(f"pixel_format {pixel_format!r} is none of {', '.join(_MODES)}")
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise RefusedError("decoding an image takes Pillow; install it") from error
    with Image.open(io.BytesIO(bytes(encoded_stream.tolist()))) as image:
        pixels = np.array(image.convert(_MODES[pixel_format]))
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    return torch.from_numpy(np.ascontiguousarray(pixels[..., ::-1] if pixel_format == "BGR" else pixels))
