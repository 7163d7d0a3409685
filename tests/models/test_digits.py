from __future__ import annotations

import logging
import sys

import pytest
import torch
from safetensors.torch import load_file

import models
from models import digits
from models.digits import train
from models.digits.data import split


def test_digits_accuracy_on_unseen_scans():
    model = models.load("digits")
    images, labels = digits.test_set()
    with torch.inference_mode():
        correct = int((model(images).argmax(dim=1) == labels).sum())
    assert correct / len(labels) >= 0.98


def test_digits_weights_are_small():
    assert 10_000 < digits.WEIGHTS.stat().st_size < 1_000_000


def test_digits_test_set_is_stratified_and_in_range():
    images, labels = digits.test_set()
    assert images.shape == (360, 1, 8, 8)
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert images.min() == 0
    assert images.max() == 1
    assert torch.bincount(labels).min() >= 34
    assert torch.bincount(labels).max() <= 38


def test_digits_training_set_holds_no_test_scan():
    (train_images, train_labels), (test_images, _) = split()
    assert len(train_images) == len(train_labels) == 1_797 - 360
    assert torch.cdist(test_images.flatten(1), train_images.flatten(1)).min() > 0


def test_digits_test_set_without_scikit_learn_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="scikit-learn holds the handwritten digits"):
        digits.test_set()


def test_digits_options_reach_the_network():
    assert [
        layer.p for layer in models.load("digits", dropout=0.1).modules() if isinstance(layer, torch.nn.Dropout)
    ] == [
        0.1,
        0.1,
    ]


def test_train_learns_and_leaves_the_random_state_alone():
    training, test = split()
    before = torch.random.get_rng_state()
    model = train.train(*training, epochs=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not model.training
    assert train.accuracy(model, *test) > 0.9


def test_train_command_writes_weights_and_reports(tmp_path, monkeypatch, caplog):
    out = tmp_path / "weights.safetensors"
    monkeypatch.setattr(sys, "argv", ["train", "--epochs", "1", "--out", str(out)])
    with caplog.at_level(logging.INFO, logger="models.digits.train"):
        train.main()
    assert "over 360 scans" in caplog.text
    expected = digits.Digits().state_dict()
    assert {key: value.shape for key, value in load_file(out).items()} == {
        key: value.shape for key, value in expected.items()
    }


def test_shift_moves_by_at_most_one_pixel():
    image = torch.zeros(200, 1, 8, 8)
    image[:, 0, 4, 4] = 1
    moved = train.shift(image, torch.Generator().manual_seed(0))
    places = {tuple(place) for place in moved.nonzero()[:, 2:].tolist()}
    assert places == {(row, column) for row in (3, 4, 5) for column in (3, 4, 5)}
    assert torch.equal(moved.sum(dim=(1, 2, 3)), torch.ones(200))
