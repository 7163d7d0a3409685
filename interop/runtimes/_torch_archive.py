"""Read a ``torch.export`` archive without letting it run code.

``torch.export.load`` unpickles parts of an archive without restriction, evaluates its symbolic expressions as Python
and looks its operators up by attribute access on ``torch``. So the archive is inspected first, and what could do
more than describe a graph of operators needs a permission by name. This removes the known ways, it is no sandbox.

Source: torch 2.13 ``torch/export/pt2_archive/_package.py``, ``torch/_export/serde/serialize.py``.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from interop.errors import ModelFileError

__all__ = ["LOAD_ERRORS", "NAMES_FILE", "load_archive", "stored_names"]

NAMES_FILE = "tensor_interop.json"
"""``{"inputs": [...], "outputs": [...]}``: the model's own names, in the order of a program's arguments and results."""

_NAMES_LIMIT = 8 << 20

_PICKLE_HELP = (
    "a pickle runs code of its author's choice when it is read; if you trust the file, pass allow_pickle=True"
)
_SYMBOL = re.compile(r"[a-z_]{1,8}\d*")
_OPERATORS = re.compile(
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|getitem|eq|ne|lt|le|gt|ge|and_|or_|xor|not_|lshift|rshift)"
)
_SYM_FUNCTIONS = re.compile(r"(torch\._?sym_[a-z0-9_]+|math\.[a-z][a-z0-9]*)")
_FUNCTIONS = frozenset(
    {
        "Symbol", "Mul", "Add", "Pow", "Rational", "Max",
        "Min", "Mod", "Eq", "Ne", "Lt", "Le",
        "Gt", "Ge", "And", "Or", "Not", "Abs",
        "Piecewise", "FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv",
        "CeilToInt", "FloorToInt", "CeilDiv", "LShift", "RShift", "PowByNatural",
        "FloatPow", "FloatTrueDiv", "IntTrueDiv", "TruncToFloat", "TruncToInt", "RoundToInt",
        "RoundDecimal", "ToFloat", "Identity", "BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "Integer",
        "Float", "floor", "ceiling", "OpaqueUnaryFn_sqrt", "StrictlyGreaterThan", "StrictlyLessThan",
        "GreaterThan", "LessThan", "Equality", "Unequality",
    }
)  # fmt: skip
_EXPRESSION = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Call, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.keyword,
)  # fmt: skip
_GUARD = (*_EXPRESSION, ast.Subscript, ast.Attribute)
_GUARD_METHODS = frozenset({"size", "stride", "storage_offset", "dim", "shape", "ndim"})
_GUARD_NAMES = frozenset({"L", "abs", "max", "min"})  # guards are Python, where expressions are sympy


def load_archive(path: Path, *, allow_pickle: bool = False, allow_native_code: bool = False) -> Any:
    """Load a ``.pt2`` file.

    Returns:
        An ``ExportedProgram``; or an ``nn.Module`` from a pickle or a compiled package, where they are allowed.

    Raises:
        ModelFileError: damaged, no archive, or one that needs a permission that was not given.
    """
    names = _names(path)
    if names is None:
        return _load_pickle(path, allow_pickle)
    inner = {name.partition("/")[2] for name in names}
    if any(name.startswith("data/aotinductor/") for name in inner):
        return _load_compiled(path, allow_native_code)
    if "archive_format" not in inner:
        if "data.pkl" in inner:
            return _load_pickle(path, allow_pickle)
        raise ModelFileError(
            f"{path}: a zip file, but no torch.export archive (it holds {', '.join(sorted(names)[:5])})"
        )
    if not any(name.startswith("models/") for name in inner):
        raise ModelFileError(f"{path}: the archive holds no model")
    if not allow_pickle:
        _inspect(path)
    return _load_program(path)


def stored_names(path: Path) -> dict[str, list[str]] | None:
    """The names that ``export_model`` stored in an archive; None where there are none, or none that can be believed."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.partition("/")[2] == f"extra/{NAMES_FILE}" and entry.file_size <= _NAMES_LIMIT:
                found = _json(path, archive, entry.filename)
                break
        else:
            return None
    if not isinstance(found, dict) or not all(_is_names(found.get(key)) for key in ("inputs", "outputs")):
        return None
    return {key: found[key] for key in ("inputs", "outputs")}


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _names(path: Path) -> list[str] | None:
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return None
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            names = archive.namelist()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ModelFileError(f"{path}: a damaged or truncated archive: {error}") from error
    if damaged is not None:
        raise ModelFileError(f"{path}: a damaged archive: the checksum of {damaged} is wrong")
    return names


def _load_pickle(path: Path, allowed: bool) -> torch.nn.Module:
    if not allowed:
        raise ModelFileError(
            f"{path}: a torch.save pickle, not a torch.export archive; {_PICKLE_HELP}. Better: build the module, load "
            "a state_dict into it and pass the module, or save the model with torch.export.save"
        )
    try:
        found = torch.load(path, map_location="cpu", weights_only=False)  # the caller asked for it by name
    except (RuntimeError, EOFError, ValueError, AttributeError, ImportError, KeyError) as error:
        raise ModelFileError(f"{path}: cannot be unpickled: {error}") from error
    if not isinstance(found, torch.nn.Module):
        raise ModelFileError(
            f"{path}: holds a {type(found).__qualname__}, not an nn.Module; load it into its module and pass that"
        )
    return found


class _Compiled(torch.nn.Module):
    """A compiled package as a module."""

    def __init__(self, package: Any) -> None:
        super().__init__()
        self._package = package

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._package(*args, **kwargs)


def _load_compiled(path: Path, allowed: bool) -> torch.nn.Module:
    if not allowed:
        raise ModelFileError(
            f"{path}: an AOTInductor package, which is compiled code; if you trust the file, pass "
            "allow_native_code=True"
        )
    try:
        return _Compiled(torch._inductor.aoti_load_package(str(path)))
    except (RuntimeError, OSError) as error:
        raise ModelFileError(f"{path}: the compiled package cannot be loaded here: {error}") from error


LOAD_ERRORS = (
    RuntimeError, ValueError, KeyError, TypeError, AttributeError, AssertionError, IndexError, OSError, RecursionError,
)  # fmt: skip


def _load_program(path: Path) -> torch.export.ExportedProgram:
    log, caught = logging.getLogger("torch.export"), _Caught()
    log.addFilter(caught)  # torch logs the real error and raises another one
    try:
        return torch.export.load(path)
    except LOAD_ERRORS as error:
        cause = caught.cause or error
        raise ModelFileError(
            f"{path}: not a torch.export archive that this torch ({torch.__version__}) reads: "
            f"{type(cause).__name__}: {str(cause)[:500]}"
        ) from error
    finally:
        log.removeFilter(caught)


class _Caught(logging.Filter):
    """Takes the place of a log message that holds an error."""

    cause: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the error and drop the message."""
        if record.exc_info:
            self.cause = record.exc_info[1]
        return False


def _inspect(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            inner = name.partition("/")[2]
            if inner.startswith("models/"):
                _inspect_model(path, _json(path, archive, name))
            elif inner.endswith("_config.json"):
                _inspect_payloads(path, _json(path, archive, name))
            elif inner.endswith(".pt"):
                _inspect_pickle(path, inner, archive.read(name))


def _json(path: Path, archive: zipfile.ZipFile, name: str) -> Any:
    try:
        return json.loads(archive.read(name))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: {name} is not JSON") from error


def _inspect_payloads(path: Path, data: Any) -> None:
    for found in _dicts(data):
        name = str(found.get("path_name", ""))
        if found.get("use_pickle") or name.startswith(("custom_obj_", "opaque_obj_")):
            raise ModelFileError(f"{path}: the tensor or object {name!r} is stored as a pickle; {_PICKLE_HELP}")


def _inspect_pickle(path: Path, name: str, data: bytes) -> None:
    """Example inputs and old weights are pickles of plain tensors; torch.export would load anything else as well."""
    if not data:
        return
    import pickle  # noqa: TID251 - only for the name of its error

    try:
        torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ModelFileError(f"{path}: {name} holds more than tensors; {_PICKLE_HELP}") from error


def _inspect_model(path: Path, data: Any) -> None:
    for found in _dicts(data):
        for text in _texts(found.get("expr_str")):
            _require_expression(path, text)
        target = found.get("target")
        if isinstance(target, str) and not ("graph" in found or _is_operator(target)) and "inputs" in found:
            raise ModelFileError(f"{path}: the graph calls {target!r}, which is no operator; {_PICKLE_HELP}")
        for key in ("in_spec", "out_spec"):
            layout = found.get(key)
            if isinstance(layout, str) and ("__enum__" in layout or "default_factory" in layout):
                raise ModelFileError(f"{path}: its {key} names Python objects to import; {_PICKLE_HELP}")
        for text in _texts(found.get("guards_code")):
            _require_guard(path, text)
        for text in found.get("range_constraints") or ():
            _require_expression(path, text)


def _dicts(data: Any) -> Iterator[dict[str, Any]]:
    pending = [data]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _is_operator(target: str) -> bool:
    if _OPERATORS.fullmatch(target) or _SYM_FUNCTIONS.fullmatch(target):
        return True
    parts = target.split(".")
    if parts[:2] != ["torch", "ops"] or len(parts) < 4 or "from_file" in parts:
        return False
    found: Any = torch.ops
    for part in parts[2:]:
        found = getattr(found, part, None)
    return isinstance(found, (torch._ops.OpOverload, torch._ops.HigherOrderOperator))


def _require_expression(path: Path, text: str) -> None:
    """A symbolic size: names of symbols, numbers, arithmetic and known functions."""
    for node in _parse(path, text, _EXPRESSION):
        if isinstance(node, ast.Call):
            known = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
        elif isinstance(node, ast.Name):
            known = node.id in _FUNCTIONS or _SYMBOL.fullmatch(node.id) is not None
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            known = _SYMBOL.fullmatch(node.value) is not None  # sympy evaluates strings, too
        else:
            known = True
        if not known:
            raise _unsafe(path, text)


def _require_guard(path: Path, text: str) -> None:
    """A condition on the inputs: ``L['x'].size()[0] <= 64``."""
    for node in _parse(path, text, _GUARD):
        if isinstance(node, ast.Attribute):
            known = node.attr in _GUARD_METHODS
        elif isinstance(node, ast.Name):
            known = node.id in _GUARD_NAMES or node.id in _FUNCTIONS
        elif isinstance(node, ast.Call):
            known = isinstance(node.func, (ast.Attribute, ast.Name))
        else:
            known = True
        if not known:
            raise _unsafe(path, text)


def _parse(path: Path, text: str, allowed: tuple[type, ...]) -> Iterator[ast.AST]:
    if len(text) > 4000:
        raise _unsafe(path, text)
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _unsafe(path, text) from error
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise _unsafe(path, text)
        yield node


def _unsafe(path: Path, text: str) -> ModelFileError:
    return ModelFileError(f"{path}: the expression {text[:80]!r} is more than arithmetic on sizes; {_PICKLE_HELP}")
