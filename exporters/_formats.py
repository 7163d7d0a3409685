"""The format table: name -> exporter, loaded when asked for."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from exporters._request import Exporter
from exporters.errors import OptionsError
from interop.extras import require

__all__ = ["ENTRY_POINTS", "FORMATS", "available_formats", "get_exporter", "make_options", "register_exporter"]

FORMATS: dict[str, str] = {
    "onnx": "exporters.onnx:OnnxExporter",
    "tensorflow": "exporters.tensorflow:TensorFlowExporter",
    "litert": "exporters.litert:LitertExporter",
    "torch": "exporters.torch:TorchExporter",
    "libtorch": "exporters.libtorch:LibtorchExporter",
}
"""Format name -> ``module:Class``."""

_NEEDS: dict[str, tuple[str, ...]] = {
    "onnx": ("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime"),
    "tensorflow": ("torch", "onnx", "onnx_ir", "onnxscript", "tensorflow"),
    "litert": ("torch", "onnx", "onnx_ir", "onnxscript", "tensorflow", "ai_edge_litert"),
    "torch": ("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime"),
    "libtorch": ("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime"),
}

ENTRY_POINTS = "tensor_interop.exporters"
"""Packages add formats under this entry point group."""

_registered: dict[str, type[Exporter]] = {}


def available_formats() -> tuple[str, ...]:
    """The names that ``export_model`` takes as ``format``."""
    return tuple(dict.fromkeys([*FORMATS, *_registered, *(point.name for point in entry_points(group=ENTRY_POINTS))]))


def register_exporter(name: str, exporter: type[Exporter]) -> None:
    """Add a format in this process; a package does it with an entry point in the group ``tensor_interop.exporters``.

    Args:
        name: the format's name.
        exporter: its class.

    Raises:
        OptionsError: the name is taken.
    """
    if name in available_formats():
        raise OptionsError(f"the format {name!r} exists already; choose another name")
    _registered[name] = exporter


def get_exporter(name: str) -> Exporter:
    """The exporter of a format.

    Raises:
        OptionsError: there is no such format; the message lists them.
        MissingExtraError: its framework is not installed.
    """
    if name in _registered:
        return _registered[name]()
    if name in FORMATS:
        for framework in _NEEDS[name]:
            require(framework, f"to export to {name}")
        module, _, attribute = FORMATS[name].partition(":")
        exporter: Exporter = getattr(importlib.import_module(module), attribute)()
        return exporter
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            loaded: Exporter = point.load()()
            return loaded
    near = difflib.get_close_matches(str(name), available_formats(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise OptionsError(f"there is no format {name!r}: the formats are {', '.join(available_formats())}{hint}")


def make_options(options_type: type[Any], options: Any) -> Any:
    """A format's options from what the caller gave.

    Args:
        options_type: the format's frozen dataclass.
        options: an instance of it, a mapping of its fields, or None for the defaults.

    Raises:
        OptionsError: another type, or a field that the format does not have.
    """
    if options is None:
        return options_type()
    if isinstance(options, options_type):
        return options
    if not isinstance(options, Mapping):
        raise OptionsError(
            f"options are a {options_type.__name__} or a dict of its fields, got {type(options).__name__}"
        )
    fields = [field.name for field in dataclasses.fields(options_type)]
    if unknown := [key for key in options if key not in fields]:
        raise OptionsError(f"{options_type.__name__} has no {unknown}; its fields are {fields}")
    return options_type(**options)
