"""The 1,797 scans of 8x8 pixels that scikit-learn brings along (UCI "Optical Recognition of Handwritten Digits").

scikit-learn is imported by the call: the model itself needs torch only.
"""

from __future__ import annotations

import torch
from torch import Tensor

SPLIT_SEED = 0
TEST_SHARE = 0.2


def split() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The training set and the test set; each digit has the same share in both, and every call splits alike.

    Returns:
        Twice (images, labels): (n, 1, 8, 8) float32 in [0, 1] and (n,) int64; 1,437 scans to train on, 360 to test.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ModuleNotFoundError as error:
        raise ImportError(
            "scikit-learn holds the handwritten digits and is not installed: pip install 'tensor-interop[notebooks]'"
        ) from error
    scans = load_digits()
    images = torch.tensor(scans.images, dtype=torch.float32).unsqueeze(1) / 16  # pixels count from 0 to 16
    labels = torch.tensor(scans.target, dtype=torch.int64)
    train, test = train_test_split(
        range(len(labels)), test_size=TEST_SHARE, random_state=SPLIT_SEED, stratify=scans.target
    )
    return (images[train], labels[train]), (images[test], labels[test])


def test_set() -> tuple[Tensor, Tensor]:
    """The 360 scans that training never saw: images (360, 1, 8, 8) float32 in [0, 1] and labels (360,) int64.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    return split()[1]
