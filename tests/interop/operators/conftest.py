from __future__ import annotations

import jax
import pytest


@pytest.fixture(autouse=True, scope="package")
def _double_precision():
    """JAX narrows 64-bit types unless told otherwise; for the whole process, as bodies also run in other threads."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
