"""A SPEC, the word for a model: ``package.module:attribute``, ``file.py:attribute``, or the path of a model file."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from interop.errors import InteropError, ModelFileError
from interop.extras import require

__all__ = ["SpecError", "Target", "is_project", "is_spec", "resolve"]

PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")

_SPEC = re.compile(r"(?P<place>.+):(?P<attribute>[A-Za-z_][\w.]*)")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FORMS = "give package.module:attribute, file.py:attribute or the path of a model file"


class SpecError(InteropError):
    """A SPEC that leads to no model.

    Args:
        what: what was given and why it does not do.
        step: what to do next.
    """

    def __init__(self, what: str, step: str) -> None:
        super().__init__(what)
        self.step = step


@dataclass(frozen=True, slots=True)
class Target:
    """What a SPEC stands for.

    Attributes:
        name: a short name, for files and tables.
        value: a model in memory: a torch module, an ``ExportedProgram``, a Keras model, a ``tf.Module``, a ``tf.function``, an ONNX
            model or anything else that ``interop.load`` takes; or the path of an ONNX file, a SavedModel or another model file.
    """

    name: str
    value: Any


def is_spec(text: str) -> bool:
    """True for ``place:attribute``; an existing file of that name is a file."""
    match = _SPEC.fullmatch(text)
    if match is None or Path(text).exists():
        return False
    return match["place"].endswith(".py") or _DOTTED.fullmatch(match["place"]) is not None


def is_project(path: Path) -> bool:
    """True for a LibTorch project, whose package is compiled code."""
    return (path / "model.pt2").is_file()


def resolve(text: str, *, trust: bool = False) -> Target:
    """Find the model that a SPEC names, or the model file at a path.

    Args:
        text: a SPEC, or the path of a model file.
        trust: read files although they hold pickles or compiled code.

    Raises:
        SpecError: no such file, module or attribute; the module fails when it is imported; the attribute is no model; or
            the file is a pickle.
        ModelFileError: a damaged ``.pt2`` or ``.keras`` file.
    """
    if is_spec(text):
        place, _, attribute = text.rpartition(":")
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
        return Target(attribute.rpartition(".")[2], _build(_attribute(module, attribute, place), text))
    path = Path(text)
    if path.suffix.lower() in PICKLES and not trust:
        raise SpecError(
            f"{text} is a pickle, which runs code when it is read, and holds weights without the model's code",
            "write a function that builds the model and loads these weights, and give file.py:function",
        )
    if path.suffix == ".py":
        raise SpecError(f"{text} does not say which model", _suggest_attributes(path))
    if not path.exists():
        raise SpecError(f"no file {text}", _FORMS)
    if path.suffix.lower() in (".pt2", *PICKLES):
        return Target(path.stem, _trusting(_load_torch, path, trust))
    if path.suffix.lower() == ".keras":
        return Target(path.stem, _trusting(_load_keras, path, trust))
    if is_project(path):
        return Target(path.name, _trusting(_load_project, path, trust))
    named = path.resolve() if path.name in ("", "..") else path
    return Target(named.name if path.is_dir() else named.stem, path)


def _load_torch(path: Path, trust: bool) -> Any:
    """A ``torch.export`` archive; and what runs code while it is read, where that is trusted."""
    require("torch", "to read a .pt2 file")
    from interop.runtimes._torch_archive import load_archive

    return load_archive(path, allow_pickle=trust, allow_native_code=trust)


def _load_keras(path: Path, trust: bool) -> Any:
    from interop.runtimes._keras_file import load_keras

    return load_keras(path, allow_code=trust)


def _load_project(path: Path, trust: bool) -> Any:
    from interop.runtimes import load

    return load(path, allow_native_code=trust)


def _trusting(load: Callable[[Path, bool], Any], path: Path, trust: bool) -> Any:
    """What a reader makes of a file; where it wants to be trusted, that is the next step."""
    try:
        return load(path, trust)
    except ModelFileError as error:
        what, wants_trust, _ = str(error).partition("; if you trust")
        if trust or not wants_trust:
            raise
        raise SpecError(what, "if you trust the file, give --trust") from error


def _suggest_attributes(path: Path) -> str:
    """Name what a file defines at top level, without running it."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return f"give {path}:attribute"
    names = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    public = [name for name in names if not name.startswith("_")]
    return f"give {path}:attribute" + (
        f", such as {path}:{public[0]} (it defines {', '.join(public)})" if public else ""
    )


def _import_module(name: str) -> ModuleType:
    """Import a module; the current directory counts, as it does for ``python -m``."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise SpecError(
                f"no module {error.name!r} here or among the installed packages",
                f"run this in the folder that holds {name.partition('.')[0]}, or give file.py:attribute",
            ) from error
        raise _failed(name, error) from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything when it is imported
        raise _failed(name, error) from error


def _import_file(path: Path) -> ModuleType:
    """Run a file as a module; its folder counts for its own imports, as it does for a script."""
    if not path.is_file():
        raise SpecError(f"no file {path}", _FORMS)
    folder, name = str(path.resolve().parent), _free_name(path)
    if folder not in sys.path:  # last, if the file is called like a library, which others still have to find
        sys.path.insert(0 if name == path.stem else len(sys.path), folder)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and torch.export look classes up by their module's name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything when it is run
        del sys.modules[name]
        raise _failed(str(path), error) from error
    return module


def _free_name(path: Path) -> str:
    """The file's own name, unless that would hide another module: a file may be called onnx.py."""
    name = path.stem
    try:
        taken = name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        taken = True
    return f"file_{name}" if taken else name


def _failed(place: str, error: BaseException) -> SpecError:
    kind, text = type(error).__name__, " ".join(str(error).split())
    if isinstance(error, SystemExit):
        step = 'put what the script does under if __name__ == "__main__":'
    elif isinstance(error, ImportError):
        step = "install or correct that import"
    else:
        step = "correct it; interop --debug COMMAND shows the traceback"
    return SpecError(f"{place} raised {kind} when it was imported: {text}", step)


def _attribute(module: ModuleType, attribute: str, place: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            own = [
                n for n, v in vars(module).items() if not n.startswith("_") and not inspect.ismodule(v) and callable(v)
            ]
            defined = [name for name in own if getattr(vars(module)[name], "__module__", None) == module.__name__]
            listed = f"it has {', '.join(defined)}" if defined else "look at its names"
            raise SpecError(f"{place} has no attribute {attribute!r}", f"give {place}:NAME; {listed}")
        value = getattr(value, part)
    return value


def _build(value: Any, text: str) -> Any:
    """The model itself: as it is, or what the callable returns."""
    if _is_model(value):
        return value
    if not callable(value):
        raise SpecError(f"{text} is a {type(value).__name__}, not a model or a function that returns one", _FORMS)
    try:
        inspect.signature(value).bind()
    except TypeError as error:
        raise SpecError(
            f"{text} cannot be called without arguments: {error}",
            "write a function without arguments that returns the model, and name that",
        ) from error
    except ValueError:  # a C callable without a signature: the call itself will tell
        pass
    try:
        model = value()
    except Exception as error:  # a user's function may raise anything
        what = f"{text} raised {type(error).__name__} when it was called: {' '.join(str(error).split())}"
        raise SpecError(what, "correct it; interop --debug COMMAND shows the traceback") from error
    if not _is_model(model):
        raise SpecError(
            f"{text}() returned a {type(model).__name__}, not a model",
            "return an nn.Module, or a model of another framework, from it",
        )
    return model


def _is_model(value: Any) -> bool:
    """Whether ``interop.load`` takes an object; of a framework that was never imported, nothing is a model."""
    from interop.runtimes import is_model

    return is_model(value)
