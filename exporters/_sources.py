"""What an export can start from beside torch modules: files, and models of TensorFlow, which are opened once.

What is exported is then what is compared with.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import interop
from exporters._exported import ExportedModel
from interop.errors import ModelFileError
from interop.extras import loaded, require
from interop.structure import fill

__all__ = ["example_arguments", "is_tensorflow", "open_source", "open_tensorflow"]


def open_source(model: Any) -> Any:
    """The program of a ``.pt2`` file, read without running code that it holds; the ONNX model of an earlier export; else the model.

    Raises:
        ModelFileError: a ``.pt2`` file that is missing or damaged, or holds pickles or compiled code.
    """
    if isinstance(model, ExportedModel) and model.format == "onnx":
        artifact: Any = model.artifact
        return artifact.model
    if not isinstance(model, (str, os.PathLike)) or Path(model).suffix != ".pt2":
        return model
    if not Path(model).is_file():
        raise ModelFileError(f"{model}: no such file")
    require("torch", "to read a .pt2 file")
    from interop.runtimes._torch_archive import load_archive

    return load_archive(Path(model))


def is_tensorflow(model: Any) -> bool:
    """Whether this is a SavedModel, a ``.keras`` file, a Keras model, a ``tf.Module``, a ``tf.function`` or opened already."""
    if isinstance(model, (str, os.PathLike)):
        return Path(model).suffix == ".keras" or _is_savedmodel(Path(model))
    if isinstance(model, interop.Runtime):
        return model.name == "tensorflow"
    if isinstance(model, ExportedModel):
        return model.format == "tensorflow"
    tensorflow, keras = loaded("tensorflow"), loaded("keras")
    if keras is not None and isinstance(model, keras.Model):
        return True
    if tensorflow is None:
        return False
    is_function = hasattr(model, "get_concrete_function") or hasattr(model, "structured_input_signature")
    return is_function or isinstance(model, tensorflow.Module) or hasattr(model, "signatures")


def _is_savedmodel(path: Path) -> bool:
    if not path.is_dir():
        return False
    versions = (entry for entry in path.iterdir() if entry.name.isdigit())
    return any((folder / "saved_model.pb").is_file() for folder in (path, *versions))


def open_tensorflow(model: Any, inputs: Any, kwargs: Mapping[str, Any] | None) -> interop.Runtime:
    """The model as a runtime.

    Args:
        model: what ``is_tensorflow`` takes.
        inputs: an example call, which a live model may need to know what it takes.
        kwargs: its keyword arguments.

    Raises:
        InputError: the model does not say what it takes, and there is no example.
    """
    example = dict(kwargs or {}) if inputs is None and kwargs else inputs
    is_path = isinstance(model, (str, os.PathLike))
    is_live = Path(model).suffix == ".keras" if is_path else not isinstance(model, (interop.Runtime, ExportedModel))
    if example is None or not is_live or hasattr(model, "signatures") or hasattr(model, "serving_signature"):
        return _distinct(interop.load(model))
    return _distinct(interop.load(model, inputs=example))


def _distinct(runtime: Any) -> interop.Runtime:
    """No output has the name of an input: TensorFlow allows that, ONNX does not."""
    taken = {*runtime.signature.input_names, *runtime.signature.output_names}
    shared = [name for name in runtime.signature.output_names if name in runtime.signature.input_names]
    names = {}
    for name in shared:
        names[name] = next(new for new in _variants(name) if new not in taken)
        taken.add(names[name])
    found: interop.Runtime = runtime.with_outputs(names) if names else runtime
    return found


def _variants(name: str) -> Iterator[str]:
    yield f"{name}_output"
    yield from (f"{name}_output_{number}" for number in itertools.count(1))


def example_arguments(
    signature: interop.Signature, inputs: Any, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example as torch tensors, from which batches of other sizes are made; nothing where there is none.

    Args:
        signature: of the source.
        inputs: a tensor, a tuple of positional arguments, or a dict of arguments or inputs by name.
        kwargs: keyword arguments.
    """
    if inputs is None and not kwargs:
        return (), {}
    arguments, named = signature.arguments, dict(kwargs or {})
    if isinstance(inputs, Mapping):
        if arguments is None:
            return (), _converted({**inputs, **named})
        if {*inputs, *named} == set(signature.input_names):
            flat = _converted({**inputs, **named})
            return fill(arguments, flat), fill(signature.keywords, flat)
        if set(inputs) <= {*signature.parameter_names, *signature.keywords.keys}:
            return (), _converted({**inputs, **named})
    wanted = 0 if arguments is None else len(arguments.children)
    args = () if inputs is None else inputs if isinstance(inputs, tuple) else (inputs,)
    if wanted == 1 and len(args) != 1:
        args = (args,)  # a Keras model takes a tuple of tensors as one argument
    return _converted(args), _converted(named)


def _converted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _converted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_converted(item) for item in value)
    if interop.framework_of(value) is None or getattr(getattr(value, "dtype", None), "kind", "") in ("O", "S", "U"):
        return value  # torch has no strings
    return interop.convert(value, "torch")
