"""TensorFlow Serving's ``models.config``: which models a server loads, which versions of them, and what those are called.

Source: https://www.tensorflow.org/tfx/serving/serving_config and ``tensorflow_serving/config/model_server_config.proto``.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from interop.errors import InputError, ModelFileError

__all__ = ["ServedModel", "models_config", "write_models_config"]


@dataclass(frozen=True)
class ServedModel:
    """A model of a server.

    Attributes:
        name: what clients call it.
        path: the folder that holds a folder for each version, absolute, as the server sees it.
        versions: ``"latest"``, ``"all"``, or the numbers of those to load.
        latest: how many, where ``versions`` is ``"latest"``.
        labels: ``{label: version}``, such as ``{"stable": 1, "canary": 2}``; a client may ask for a label.
    """

    name: str
    path: str | os.PathLike[str]
    versions: Literal["latest", "all"] | tuple[int, ...] = "latest"
    latest: int = 1
    labels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a served model needs a name, which clients ask for")
        if not posixpath.isabs(os.fspath(self.path)):
            raise InputError(
                f"model {self.name!r}: TensorFlow Serving takes absolute paths only, got {str(self.path)!r}"
            )
        if isinstance(self.versions, str) and self.versions not in ("latest", "all"):
            raise InputError(f"model {self.name!r}: versions are 'latest', 'all' or numbers, got {self.versions!r}")
        if self.versions == "latest" and self.latest < 1:
            raise InputError(f"model {self.name!r}: latest is at least 1, got {self.latest}")
        if isinstance(self.versions, tuple):
            self._check_numbers(self.versions)

    def _check_numbers(self, versions: tuple[int, ...]) -> None:
        if not versions or any(not isinstance(number, int) or number < 0 for number in versions):
            raise InputError(f"model {self.name!r}: versions are numbers from 0 on, at least one, got {versions}")
        if lost := {label: number for label, number in self.labels.items() if number not in versions}:
            raise InputError(f"model {self.name!r}: the labels {lost} are none of the loaded versions {list(versions)}")


def models_config(models: Sequence[ServedModel]) -> str:
    """The text of a ``models.config``.

    Raises:
        InputError: no model, or two of one name.

    Example:
        >>> print(models_config([ServedModel("digits", "/models/digits", labels={"stable": 1})]))
    """
    names = [model.name for model in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"models of one name: {twice}; a server has one of each")
    if not models:
        raise InputError("models_config needs at least one ServedModel(name, path)")
    return "\n".join(["model_config_list {", *(f"  {line}" for model in models for line in _lines(model)), "}", ""])


def write_models_config(path: str | os.PathLike[str], models: Sequence[ServedModel], *, check: bool = True) -> Path:
    """Write a ``models.config``, whole or not at all, for ``tensorflow_model_server --model_config_file=``.

    Args:
        path: the file.
        models: what the server loads.
        check: see that the versions are there; False where the paths are those of another machine or a container.

    Returns:
        The path.

    Raises:
        InputError: see ``models_config``.
        ModelFileError: a folder without the versions that are asked for, or a target that cannot be written.
    """
    text, target = models_config(models), Path(path)
    for model in models if check else ():
        _check_versions(model)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as error:
        raise ModelFileError(
            f"cannot write {target}: {error.strerror}; name a file in a folder you can write"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return target


def _check_versions(model: ServedModel) -> None:
    folder = Path(model.path)
    found = {int(item.parent.name) for item in folder.glob("*/saved_model.pb*") if item.parent.name.isdigit()}
    if not found:
        step = "export with options={'version': 1}, or give check=False for the paths of another machine"
        raise ModelFileError(f"{folder}: no folder <number>/saved_model.pb, as TensorFlow Serving wants it; {step}")
    wanted = {*(model.versions if isinstance(model.versions, tuple) else ()), *model.labels.values()}
    if missing := sorted(wanted - found):
        raise ModelFileError(f"{folder}: no versions {missing}; it has {sorted(found)}")


def _lines(model: ServedModel) -> Iterator[str]:
    yield "config {"
    yield f"  name: {_quoted(model.name)}"
    yield f"  base_path: {_quoted(os.fspath(model.path))}"
    yield '  model_platform: "tensorflow"'
    yield f"  model_version_policy {{ {_policy(model)} }}"
    for label, number in model.labels.items():
        yield f"  version_labels {{ key: {_quoted(label)} value: {number} }}"
    yield "}"


def _policy(model: ServedModel) -> str:
    if model.versions == "latest":
        return f"latest {{ num_versions: {model.latest} }}"
    if model.versions == "all":
        return "all {}"
    return f"specific {{ {' '.join(f'versions: {number}' for number in model.versions)} }}"


def _quoted(text: str) -> str:
    """A string of the text format: printable ASCII as it is, other bytes of UTF-8 in octal."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'
