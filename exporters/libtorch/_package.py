"""Compile a program with AOTInductor."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path
from typing import Any

import torch

from exporters.errors import TranslationError

__all__ = ["compile_program", "settings_of"]

_ERRORS = (RuntimeError, ValueError, TypeError, AssertionError, NotImplementedError, KeyError, OSError)
"""What a compilation raises; a missing compiler is an OSError or a RuntimeError."""


def compile_program(program: torch.export.ExportedProgram, *, portable: bool) -> bytes:
    """Compile a program; what is compiled once stays in Inductor's cache (``TORCHINDUCTOR_CACHE_DIR``).

    Args:
        program: the program, on the CPU.
        portable: for common processors instead of this one.

    Returns:
        The bytes of the package (``.pt2``).

    Raises:
        TranslationError: it cannot be compiled; the message ends with the compiler's own.
    """
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.pt2"
        try:
            torch._inductor.aoti_compile_and_package(
                program, package_path=str(path), inductor_configs=settings_of(portable)
            )
        except _ERRORS as error:
            raise TranslationError(
                f"AOTInductor cannot compile the model (it needs a C++ compiler, such as g++): {str(error)[-1500:]}"
            ) from error
        return path.read_bytes()


def settings_of(portable: bool) -> dict[str, Any]:
    """Inductor's settings.

    AVX2 is what x86-64-v3 means: vectors of 256 bits, and no instruction beyond it from the compiler either.
    """
    if not portable:
        return {}
    if platform.machine() in ("x86_64", "AMD64"):
        return {"cpp.simdlen": 256, "cpp.march": "x86-64-v3"}
    return {"cpp.march": ""}
