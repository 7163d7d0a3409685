"""What holds for every test file."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _environment_as_found() -> Iterator[None]:
    """Variables that a file's tests set, or a library for them, are gone with it: the children of later tests inherit them.

    Only those are touched: other threads may be reading the rest.
    """
    before = dict(os.environ)
    yield
    for name in {*before, *os.environ}:
        if name.startswith("PYTEST_") or os.environ.get(name) == before.get(name):
            continue
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
