"""``interop export``: write a model in other formats, checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from interop.cli._common import CliError, human_bytes, read_arrays, say, working
from interop.cli._spec import MODEL, TRUST
from interop.errors import ParityError
from interop.extras import loaded, require
from interop.specs import resolve

if TYPE_CHECKING:
    from exporters import ExportedModel

__all__ = ["export"]

PARITY_FAILED = 1

_DYNAMIC = re.compile(r"(?P<input>[\w.*]+):(?P<dims>\d+=[A-Za-z_]\w*(,\d+=[A-Za-z_]\w*)*)")


def export(
    model: MODEL,
    to: Annotated[list[str], typer.Option("--to", help="A format, such as onnx or tensorflow; once for each.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to; made if missing.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the files; else the last part of MODEL.")] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--inputs", help="Example inputs: an .npz file with one array per argument of forward, or per input."
        ),
    ] = None,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            "--dynamic",
            help="auto, none, or INPUT:AXIS=SYMBOL,... such as x:0=batch,2=time; once for each input. For torch models: "
            "others say which of their dimensions are open.",
        ),
    ] = None,
    opset: Annotated[int | None, typer.Option("--opset", min=1, help="ONNX operator set.")] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare the result with the model.")] = True,
    trust: TRUST = False,
) -> None:
    """Write a model in other formats.

    MODEL is a torch module, an ONNX file or a TensorFlow model; every format takes each of them.

    Each result is compared with the model before it is written; where it is not the same function it is not written,
    and the command exits with 1. It exits with 2 where MODEL or an option does not do.
    """
    shapes, arrays = parse_dynamic(dynamic or ["auto"]), None if inputs is None else read_arrays(inputs)
    _check_formats(to)
    _check_opset(opset, to)
    _make_folder(out)
    with working(f"loading {model}"):
        target = resolve(model, trust=trust)
        _require_sense(target.value, model, shapes, opset)
        args, kwargs = (None, None) if arrays is None else place_arguments(target.value, arrays)
    paths = {word: out / file_name(name or target.name, word) for word in to}
    _spare_source(Path(model), paths.values())
    failed = False
    for word, path in paths.items():
        options = {"opset": opset} if opset is not None and word == "onnx" else None
        asked = {"inputs": args, "kwargs": kwargs, "dynamic_shapes": shapes, "options": options, "verify": verify}
        failed |= not _export(target.value, word, path, asked)
    if failed:
        raise typer.Exit(PARITY_FAILED)


def _export(model: Any, name_of_format: str, path: Path, asked: Mapping[str, Any]) -> bool:
    """Export and show one format; False where the result is not the same function, and then nothing is written."""
    import exporters

    try:
        with working(f"exporting to {path}", hush=True):
            if name_of_format == "tensorflow":
                require("tensorflow", "to export to TensorFlow")  # quietly, before the exporter imports it
            exported = exporters.export_model(model, name_of_format, path=path, **asked)
    except ParityError as error:
        say(
            f"{name_of_format}  not the same function, so {path} was not written; --no-verify writes it",
            error.report,
            "",
        )
        return False
    _show(exported, path)
    return True


_SUFFIXES = {"torch": "pt2", "litert": "tflite"}
"""Suffixes of the formats whose files are not called by the format's name."""


def file_name(name: str, format_name: str) -> str:
    """The file or folder that a format is written to, inside ``--out``."""
    return name if format_name == "tensorflow" else f"{name}.{_SUFFIXES.get(format_name, format_name)}"


def parse_dynamic(words: list[str]) -> Any:
    """``--dynamic`` in the form that ``export_model`` takes.

    Returns:
        ``"auto"``, None, or ``{input: {axis: symbol}}``.

    Raises:
        CliError: none of these forms.
    """
    if words in (["auto"], ["none"]):
        return "auto" if words == ["auto"] else None
    shapes: dict[str, dict[int, str]] = {}
    for word in words:
        match = _DYNAMIC.fullmatch(word)
        if match is None:
            raise CliError(
                f"--dynamic {word} is not auto, none or INPUT:AXIS=SYMBOL,...", "write it as --dynamic x:0=batch"
            )
        pairs = (pair.split("=") for pair in match["dims"].split(","))
        shapes.setdefault(match["input"], {}).update({int(axis): symbol for axis, symbol in pairs})
    return shapes


def place_arguments(model: Any, arrays: Mapping[str, np.ndarray]) -> tuple[Any, dict[str, Any] | None]:
    """Turn named arrays into the example of a call: for a torch model its positional and keyword arguments.

    ``arr_0``, ``arr_1``, ... (what ``numpy.savez`` calls arrays without a name) are the positional ones. Other models bind
    names themselves.

    Raises:
        CliError: names that ``forward`` does not take, or that are missing.
    """
    import interop

    tensors: dict[str, Any] = dict(arrays)
    if is_torch_model(model):
        tensors = interop.convert(tensors, "torch")
    positional = [tensors.pop(key) for key in [f"arr_{n}" for n in range(len(tensors))] if key in tensors]
    if not is_torch_model(model):
        return (tuple(positional), tensors) if positional else (tensors, None)
    module = model.module() if hasattr(model, "graph_module") else model
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*positional, **tensors)
    except TypeError as error:
        step = f"name the arrays after its arguments: numpy.savez(path, {_keywords(signature)})"
        raise CliError(f"the inputs {list(arrays)} do not fit forward{signature}: {error}", step) from error
    return bound.args, bound.kwargs


def _keywords(signature: inspect.Signature) -> str:
    return ", ".join(f"{name}=..." for name in signature.parameters)


def _check_formats(names: list[str]) -> None:
    import exporters

    known = exporters.available_formats()
    for name in names:
        if name not in known:
            raise CliError(f"no format is called {name!r}", f"give --to one of {', '.join(known)}")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"cannot write to {path}: {error.strerror}", "give --out a folder that you can write") from error


def is_torch_model(model: Any) -> bool:
    """Whether a model in memory is torch's; if torch was never imported, nothing is."""
    torch = loaded("torch")
    return torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def _require_sense(model: Any, word: str, shapes: Any, opset: int | None) -> None:
    """Refuse an option that would change nothing: it was given for a reason."""
    if is_torch_model(model):
        return
    if shapes != "auto":
        raise CliError(
            f"--dynamic is of use to torch models only; {word} says itself which dimensions are open", "leave it out"
        )
    if opset is not None and isinstance(model, Path) and model.suffix == ".onnx":
        raise CliError(f"--opset {opset} is of no use to an ONNX file, which keeps its own", "leave it out")


def _spare_source(source: Path, paths: Iterable[Path]) -> None:
    """Do not write over the file that is read."""
    for path in paths:
        if path.exists() and path.resolve() == source.resolve():
            raise CliError(f"{path} is the model itself", "give --out another folder, or --name another name")


def _check_opset(opset: int | None, formats: list[str]) -> None:
    if opset is not None and "onnx" not in formats:
        raise CliError(f"--opset {opset} is of use to --to onnx only", "leave it out, or add --to onnx")


def _show(exported: ExportedModel, path: Path) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(exported.format, f"{path}  {human_bytes(size_of(path))}")
    table.add_row("inputs", ", ".join(map(str, exported.signature.inputs)) or "none")
    table.add_row("outputs", ", ".join(map(str, exported.signature.outputs)))
    table.add_row("dynamic", ", ".join(exported.signature.symbols) or "no dimension")
    for notice in exported.notices:
        table.add_row("notice", notice)
    say(table, *([] if exported.parity is None else ["", exported.parity]), "")


def size_of(path: Path) -> int:
    """Bytes of a file, with its external data beside it, or of everything in a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in (path, path.with_name(path.name + ".data")) if file.is_file())
