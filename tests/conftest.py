"""What holds for every test file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest


@pytest.fixture(scope="module", autouse=True)
def _environment_as_found() -> Iterator[None]:
    """Variables that a file's tests set, or a library for them, are gone with it: the children of later tests inherit them."""
    with patch.dict(os.environ):
        yield
