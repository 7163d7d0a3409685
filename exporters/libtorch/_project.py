"""The C++ project around a package."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from exporters.errors import TranslationError
from exporters.libtorch._identifiers import identifiers
from interop import Signature, TensorSpec

__all__ = ["METADATA_FILE", "PACKAGE_FILE", "render", "write_project"]

PACKAGE_FILE = "model.pt2"
METADATA_FILE = "tensor_interop.json"
"""The signature, as ``interop.load`` reads it."""

_TEMPLATES = ("CMakeLists.txt", "main.cpp", "model.h", "npy.h")

_SCALARS = {
    "float32": "at::kFloat",
    "float64": "at::kDouble",
    "float16": "at::kHalf",
    "bfloat16": "at::kBFloat16",
    "int8": "at::kChar",
    "int16": "at::kShort",
    "int32": "at::kInt",
    "int64": "at::kLong",
    "uint8": "at::kByte",
    "bool": "at::kBool",
    "complex64": "at::kComplexFloat",
    "complex128": "at::kComplexDouble",
}
"""Canonical dtype -> the C++ constant."""


def write_project(folder: Path, package: bytes, signature: Signature, namespace: str) -> None:
    """Write package, metadata and sources into a folder that exists.

    Raises:
        TranslationError: an input or output has a dtype that LibTorch does not name.
    """
    sources = render(signature, namespace)
    (folder / PACKAGE_FILE).write_bytes(package)
    metadata = {"signature": signature.to_json(), "package": PACKAGE_FILE}
    (folder / METADATA_FILE).write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")
    for name, text in sources.items():
        (folder / name).write_text(text, encoding="utf-8")


def render(signature: Signature, namespace: str) -> dict[str, str]:
    """The sources by file name."""
    room = files("exporters.libtorch") / "templates"
    inputs, outputs = _fields(signature.inputs), _fields(signature.outputs)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return {
        name: environment.from_string((room / f"{name}.jinja").read_text(encoding="utf-8")).render(
            inputs=inputs, outputs=outputs, namespace=namespace, package=PACKAGE_FILE
        )
        for name in _TEMPLATES
    }


def _fields(specs: tuple[TensorSpec, ...]) -> list[dict[str, Any]]:
    """What a template needs to know of each tensor."""
    names = identifiers(spec.name for spec in specs)
    return [
        {
            "identifier": names[spec.name],
            "text": json.dumps(spec.name),  # a C++ string literal, escapes included
            "comment": str(spec).encode("ascii", "replace").decode().replace("\n", " "),
            "scalar": _scalar(spec),
            "dims": None if spec.shape is None else [dim if isinstance(dim, int) else -1 for dim in spec.shape],
        }
        for spec in specs
    ]


def _scalar(spec: TensorSpec) -> str:
    if spec.dtype not in _SCALARS:
        raise TranslationError(
            f"{spec.name!r} is {spec.dtype}, which LibTorch has no name for; cast it inside the model"
        )
    return _SCALARS[spec.dtype]
