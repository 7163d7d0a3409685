"""What a LibTorch project says about itself: its signature, and what its package was compiled for. None of its code is loaded."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from interop.errors import ModelFileError

__all__ = ["read"]

_COMPILED_FOR = {
    "AOTI_DEVICE_KEY": "device",
    "AOTI_PLATFORM": "platform",
    "AOTI_MACHINE": "machine",
    "AOTI_CPU_ISA": "instructions",
}
"""Keys of the package's metadata, as AOTInductor writes them."""

_SIZE_LIMIT = 1 << 20


def read(folder: Path) -> dict[str, Any]:
    """The fields of a ``Description``, by name.

    Args:
        folder: what ``export_model(..., "libtorch")`` wrote.

    Raises:
        ModelFileError: a damaged signature or package.
    """
    from interop.runtimes._torch_package import read_signature_file

    return {
        "format": "LibTorch project",
        "file_bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "signature": read_signature_file(folder),
        "metadata": _compiled_for(folder / "model.pt2"),
    }


def _compiled_for(package: Path) -> dict[str, str]:
    try:
        with zipfile.ZipFile(package) as archive:
            entries = [each for each in archive.infolist() if each.filename.endswith(".wrapper_metadata.json")]
            for entry in entries:
                if entry.file_size <= _SIZE_LIMIT:
                    said = json.loads(archive.read(entry))
                    return {word: str(said[key]) for key, word in _COMPILED_FOR.items() if said.get(key)}
    except (zipfile.BadZipFile, OSError, ValueError, AttributeError, NotImplementedError, RecursionError) as error:
        raise ModelFileError(f"{package}: not an AOTInductor package: {error}") from error
    return {}
