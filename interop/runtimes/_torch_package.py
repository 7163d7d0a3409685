"""An AOTInductor package with its signature beside it, as ``export_model(..., "libtorch")`` writes the two."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from interop.errors import InputError, InteropError, ModelFileError
from interop.frameworks import convert
from interop.runtimes._base import Runtime
from interop.runtimes._torch_archive import load_archive
from interop.signature import Signature
from interop.structure import fill

__all__ = ["METADATA_FILE", "PackageRuntime", "is_package", "read_signature_file"]

METADATA_FILE = "tensor_interop.json"
"""``{"signature": ..., "package": "model.pt2"}``."""

_SIZE_LIMIT = 8 << 20


def is_package(path: Path) -> bool:
    """Whether a folder holds a package and its signature."""
    return (path / METADATA_FILE).is_file() and (path / "model.pt2").is_file()


class PackageRuntime(Runtime):
    """A compiled package, run in this process on the CPU.

    Compiled code takes dtypes, shapes and strides for granted: what it was not compiled for is refused before it runs, and other
    strides are copied.
    """

    name = "torch"
    framework = "torch"

    def __init__(self, package: torch.nn.Module, signature: Signature, path: Path | None = None) -> None:
        super().__init__(signature, path)
        self._package = package

    @classmethod
    def open(cls, model: Path, *, allow_native_code: bool = False) -> PackageRuntime:
        """Load a folder.

        Raises:
            ModelFileError: a damaged folder, or no permission to load native code.
        """
        signature = read_signature_file(model)
        return cls(load_archive(model / "model.pt2", allow_native_code=allow_native_code), signature, model)

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        tensors = {name: convert(value, "torch").contiguous() for name, value in inputs.items()}
        signature = self.signature
        try:
            with torch.no_grad():
                if signature.arguments is None:
                    result = self._package(*(tensors[name] for name in signature.input_names))
                else:
                    result = self._package(*fill(signature.arguments, tensors), **fill(signature.keywords, tensors))
        except RuntimeError as error:
            raise InteropError(f"{self.path} failed while it ran: {str(error)[:1000]}") from error
        leaves = [leaf for leaf in _pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if len(leaves) != len(signature.outputs):
            raise ModelFileError(
                f"{self.path}: the package gives {len(leaves)} tensors, its signature {len(signature.outputs)}"
            )
        return {
            name: leaf if owner == "torch" else convert(leaf, owner)
            for name, leaf in zip(signature.output_names, leaves)
        }


def read_signature_file(folder: Path) -> Signature:
    """The signature beside a package.

    Raises:
        ModelFileError: there is none, or it is damaged.
    """
    file = folder / METADATA_FILE
    try:
        if file.stat().st_size > _SIZE_LIMIT:
            raise ValueError("it is too large")
        return Signature.from_json(json.loads(file.read_bytes())["signature"])
    except (InputError, ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise ModelFileError(f"{file}: not the signature of a package: {error}") from error
