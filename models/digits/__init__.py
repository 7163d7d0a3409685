"""A classifier of real handwritten digits, trained by ``python -m models.digits.train``."""

from __future__ import annotations

from models.digits.data import test_set
from models.digits.model import WEIGHTS, Digits, pretrained

__all__ = ["Digits", "WEIGHTS", "pretrained", "test_set"]
