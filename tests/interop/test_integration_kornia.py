"""kornia's preprocessing and a model in one graph: raw images answer the same on torch, ONNX Runtime and TensorFlow."""

from __future__ import annotations

import pytest
import torch

import interop
from models import digits

pytest.importorskip("kornia", reason="kornia is not installed")
from examples import kornia_pipeline

SIZES = [(40, 56), (8, 8), (97, 33)]


@pytest.fixture(scope="module")
def reader() -> torch.nn.Module:
    return kornia_pipeline.DigitReader().eval()


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, interop.Runtime]:
    exports = kornia_pipeline.export(tmp_path_factory.mktemp("kornia"))
    return {name: interop.load(exported.path) for name, exported in exports.items()}


def test_the_exported_graph_takes_uint8_of_any_size_and_gives_labels(runtimes):
    for runtime in runtimes.values():
        [photo], [label] = runtime.signature.inputs, runtime.signature.outputs
        assert (photo.dtype, photo.shape) == ("uint8", ("batch", 3, "height", "width"))
        assert (label.dtype, label.shape) == ("int64", ("batch",))


@pytest.mark.parametrize("size", SIZES)
def test_photographs_get_the_same_labels_everywhere(size, reader, runtimes):
    scans, labels = digits.test_set()
    photos = kornia_pipeline.photographs(scans, size)
    assert photos.dtype == torch.uint8
    expected = reader(photos)
    assert (expected == labels).float().mean() > 0.97
    for runtime in runtimes.values():
        assert torch.equal(runtime(photos), expected)


def test_spoilt_photographs_get_the_same_labels_everywhere(reader, runtimes):
    """Noise as strong as the ink: many answers are wrong, and wrong alike."""
    scans, labels = digits.test_set()
    noise = torch.randint(-120, 121, (len(scans), 3, 21, 30), generator=torch.Generator().manual_seed(0))
    photos = (kornia_pipeline.photographs(scans, (21, 30)).int() + noise).clamp(0, 255).to(torch.uint8)
    expected = reader(photos)
    assert 0.1 < (expected != labels).float().mean() < 0.9
    for runtime in runtimes.values():
        assert torch.equal(runtime(photos), expected)
