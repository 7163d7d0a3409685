"""Find out what a model is and open it with the runtime that executes it."""

from __future__ import annotations

import importlib
import inspect
import os
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from interop.errors import InputError, ModelFileError
from interop.extras import loaded
from interop.runtimes._base import Runtime
from interop.runtimes._keras_file import is_keras_file

__all__ = ["RUNTIMES", "available_runtimes", "is_model", "load"]

RUNTIMES: dict[str, str] = {
    "onnxruntime": "interop.runtimes.onnxruntime:OnnxRuntime",
    "tensorflow": "interop.runtimes.tensorflow:TensorFlowRuntime",
    "torch": "interop.runtimes.torch:TorchRuntime",
    "onnx-reference": "interop.runtimes.onnx_reference:OnnxReferenceRuntime",
    "litert": "interop.runtimes.litert:LitertRuntime",
}
"""Registry name -> ``module:Class``. Third parties add theirs by the entry point group ``interop.runtimes``."""

_GROUP = "interop.runtimes"


def load(model: Any, *, runtime: str | None = None, **options: Any) -> Runtime:
    """Open a model for running.

    Args:
        model: a path to an ONNX file, a SavedModel folder, a Keras archive (``.keras``), a LiteRT file or a ``torch.export``
            archive (``.pt2``); or an object: an ``onnx.ModelProto`` or ``onnx_ir.Model``, a ``torch.nn.Module``, a
            ``torch.export.ExportedProgram``, a loaded SavedModel, a Keras model, a ``tf.function``, a ``tf.Module``, anything
            with a method ``__interop_runtime__()``, or a ``Runtime``, which is returned as it is.
        runtime: a name of ``available_runtimes()`` instead of the one that the model's content asks for.
        **options: the runtime's own: see ``OnnxRuntime.open``, ``TensorFlowRuntime.open``, ``TorchRuntime.open``,
            ``LitertRuntime.open``.

    Returns:
        The runtime, ready to be called.

    Raises:
        ModelFileError: the file is missing, truncated, unsafe or no model.
        InputError: an unknown runtime name, object or option.
        MissingExtraError: the framework that runs this model is not installed.

    Example:
        >>> interop.load("digits.onnx", threads=1)(images)
    """
    if runtime is None and hasattr(type(model), "__interop_runtime__"):
        model = model.__interop_runtime__()
    if isinstance(model, Runtime) and runtime in (None, model.name):
        if options:
            raise InputError(f"options {sorted(options)} cannot be applied to a Runtime that is open already")
        return model
    if isinstance(model, (str, os.PathLike)):
        model = Path(model)
        _require_content(model)
        model = _newest_version(model)
    cls = _runtime_class(runtime or _recognise(model))
    _require_options(cls, options)
    return cls.open(model, **options)


def is_model(value: Any) -> bool:
    """Whether an object in memory is a model that ``load`` takes; a path, a class or a plain function is not one."""
    if isinstance(value, type):
        return False
    return (
        hasattr(type(value), "__interop_runtime__")
        or isinstance(value, Runtime)
        or _recognise_object(value) is not None
    )


def available_runtimes() -> tuple[str, ...]:
    """The names that ``load(runtime=...)`` takes, whether or not their frameworks are installed."""
    return (*RUNTIMES, *(name for name in _third_parties() if name not in RUNTIMES))


@cache
def _third_parties() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=_GROUP)}


def _runtime_class(name: str) -> type[Runtime]:
    target = RUNTIMES.get(name) or _third_parties().get(name)
    if target is None:
        raise InputError(f"no runtime is called {name!r}; there are {', '.join(available_runtimes())}")
    module, _, attribute = target.partition(":")
    cls: type[Runtime] = getattr(importlib.import_module(module), attribute)
    return cls


def _require_options(cls: type[Runtime], options: dict[str, Any]) -> None:
    known = [name for name, item in inspect.signature(cls.open).parameters.items() if item.kind is item.KEYWORD_ONLY]
    if unknown := sorted(set(options) - set(known)):
        raise InputError(f"the {cls.name} runtime has no options {unknown}; it has {known or 'none'}")


def _require_content(path: Path) -> None:
    if not path.exists():
        raise ModelFileError(f"{path}: no such file or folder")
    if path.is_file() and path.stat().st_size == 0:
        raise ModelFileError(f"{path}: the file is empty; was its export interrupted?")


def _newest_version(path: Path) -> Path:
    """The folder of the highest version where the path is laid out for TensorFlow Serving, as ``path/<version>/``."""
    if not path.is_dir() or (path / "saved_model.pb").exists():
        return path
    versions = [entry for entry in path.iterdir() if entry.name.isdigit() and (entry / "saved_model.pb").exists()]
    return max(versions, key=lambda entry: int(entry.name), default=path)


def _recognise(model: Any) -> str:
    name = _recognise_path(model) if isinstance(model, Path) else _recognise_object(model)
    if name is not None:
        return name
    for candidate in _third_parties():
        if _runtime_class(candidate).recognises(model):
            return candidate
    if isinstance(model, Path):
        raise ModelFileError(
            f"{model}: {_what_is(model)}; expected ONNX, a SavedModel folder, a .keras file, a LiteRT file "
            "or a torch.export archive"
        )
    raise InputError(
        f"cannot run a {type(model).__module__}.{type(model).__qualname__}; expected a path, an ONNX model, an "
        "nn.Module, an ExportedProgram, a loaded SavedModel or a tf.Module with serving_signature()"
    )


def _recognise_path(path: Path) -> str | None:
    if path.is_dir():
        if (path / "tensor_interop.json").is_file() and (path / "model.pt2").is_file():
            return "torch"
        return "tensorflow" if (path / "saved_model.pb").is_file() or (path / "saved_model.pbtxt").is_file() else None
    head = _head(path)
    if head[:2] == b"PK":
        return "tensorflow" if is_keras_file(path) else "torch"
    if _is_pickle(head):
        return "torch"
    if head[4:8] == b"TFL3":
        return "litert"
    return "onnxruntime" if path.suffix == ".onnx" or _may_be_onnx(head) else None


def _recognise_object(model: Any) -> str | None:
    torch, onnx, onnx_ir = loaded("torch"), loaded("onnx"), loaded("onnx_ir")
    if torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        return "torch"
    if onnx is not None and isinstance(model, onnx.ModelProto):
        return "onnxruntime"
    if onnx_ir is not None and isinstance(model, onnx_ir.Model):
        return "onnxruntime"
    tensorflow, keras = loaded("tensorflow"), loaded("keras")
    if keras is not None and isinstance(model, keras.Model):
        return "tensorflow"
    if tensorflow is not None and (isinstance(model, tensorflow.Module) or hasattr(model, "signatures")):
        return "tensorflow"
    if tensorflow is not None and (hasattr(model, "get_concrete_function") or hasattr(model, "function_type")):
        return "tensorflow"
    return None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror}") from error


def _is_pickle(head: bytes) -> bool:
    return head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05"


def _may_be_onnx(head: bytes) -> bool:
    """A ModelProto starts with the tag of one of its fields, in whatever order they were written; parsing decides."""
    tag = head[0] if head[0] < 0x80 or len(head) < 2 else (head[0] & 0x7F) | head[1] << 7
    return tag & 7 in (0, 2) and tag >> 3 in (*range(1, 9), 14, 20, 25, 26)


def _what_is(path: Path) -> str:
    if path.is_dir():
        names = sorted(item.name for item in path.iterdir())[:5]
        return f"a folder without saved_model.pb (it holds {', '.join(names) or 'nothing'})"
    if path.suffix == ".keras":
        return "not a Keras archive, or a damaged one"
    if path.suffix in (".h5", ".hdf5"):
        return "an HDF5 file; if it is a Keras model, load it with keras and write model.save(path.keras)"
    if path.suffix == ".safetensors":
        return "weights without a model; load them into the module and pass the module"
    return "not a model file that any runtime knows"
