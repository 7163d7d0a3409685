"""What every command shares: two-line errors, quiet start-up, progress, and arrays from and to ``.npz`` files."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import threading
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import typer

from interop.dtypes import dtype_of
from interop.errors import InputError, InteropError
from interop.specs import SpecError

if TYPE_CHECKING:
    from interop.runtimes import Runtime

__all__ = [
    "CliError",
    "explain_error",
    "human_bytes",
    "quiet",
    "read_arrays",
    "require_folder",
    "restore_dtypes",
    "say",
    "say_json",
    "working",
    "write_arrays",
    "write_out",
    "write_text",
]

QUIET_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",  # TensorFlow's C++ log, below fatal
    "ABSL_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "1",  # the default; said explicitly, TensorFlow does not announce it
    "GRPC_VERBOSITY": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
}

PROGRESS_AFTER_S = 1.0
BROKEN_PIPE = 141  # what a shell shows for a program that SIGPIPE ended
PIPE_WIDTH = 10_000  # columns: what reads a pipe wants a row on one line


_QUIET: ContextVar[bool] = ContextVar("_QUIET", default=False)


class CliError(InteropError):
    """Bad input to a command.

    Args:
        what: what was given and why it does not do.
        step: what to do next.
    """

    def __init__(self, what: str, step: str) -> None:
        super().__init__(what)
        self.step = step


_STEPS: dict[str, str] = {
    "MissingExtraError": "install that extra; interop doctor lists what is there",
    "ModelFileError": "check the path; interop inspect FILE shows what a model file holds",
    "MissingExampleError": "interop export and tune take an example by --inputs; or let the model say it where it is made",
    "InputError": "interop inspect MODEL shows names, dtypes and shapes of its inputs",
    "ConversionError": "interop doctor shows what the frameworks here can share",
    "MissingInputsError": "give --inputs with one array per argument of forward, or the module a method example_inputs()",
    "CaptureError": "change that line of the model; interop --debug export ... shows what torch.export says",
    "UnsupportedOperatorError": "change those lines of the model, or export it to another format",
    "OptionsError": "interop export --help shows the options",
    "WriteError": "give --out a folder that you can write to, with room in it",
    "InteropError": "change what the message names; interop --debug COMMAND shows where it was raised",
}
"""Class name of an error -> the next step (names, since the exporters' errors are not imported for every command)."""


def explain_error(error: Exception) -> tuple[str, str]:
    """The two lines of an error: what is wrong, and the next step."""
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (CliError, SpecError)):
        return message, error.step
    usage = getattr(error, "format_message", None)  # a usage error of typer, whichever click is under it
    if usage is not None:
        context = getattr(error, "ctx", None)
        return " ".join(usage().split()), f"{context.command_path if context else 'interop'} --help shows the usage"
    for kind in type(error).__mro__:
        if kind.__name__ in _STEPS:
            return message, _STEPS[kind.__name__]
    return f"{type(error).__name__}: {message}", "interop --debug COMMAND shows the traceback"


@contextlib.contextmanager
def quiet(*, enabled: bool) -> Iterator[None]:
    """Keep warnings and the frameworks' start-up notes off the terminal; errors still arrive."""
    if not enabled:
        yield
        return
    for name, value in QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # read when the framework is imported, later
    disabled, token = logging.root.manager.disable, _QUIET.set(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(disabled)
            _QUIET.reset(token)


@contextlib.contextmanager
def working(text: str, *, hush: bool = False) -> Iterator[None]:
    """Say on a terminal's stderr what is going on, once it has taken a second.

    What a user's module or a framework prints meanwhile goes to stderr: stdout belongs to the result.

    Args:
        text: what is going on.
        hush: drop what is printed, unless ``--debug`` is given: a failed capture prints whole graphs.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_status_after(PROGRESS_AFTER_S, text))
        elsewhere = io.StringIO() if hush and _QUIET.get() else sys.stderr
        stack.enter_context(contextlib.redirect_stdout(elsewhere))
        stack.enter_context(contextlib.redirect_stderr(elsewhere))
        yield


@contextlib.contextmanager
def _status_after(seconds: float, text: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    console = Console(file=sys.stderr)
    # Without rich's own redirection: it would begin in the timer's thread and end after ours, in the wrong order.
    status = Live(Spinner("dots", text), console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    timer = threading.Timer(seconds, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def say(*parts: Any) -> None:
    """Print to stdout: text as it is, tables by rich, as wide as the terminal (or as needed in a pipe)."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        for part in parts:
            console.print(part, markup=False)
    write_out("\n".join(line.rstrip(" ") for line in capture.get().splitlines()) + "\n")


def write_out(text: str) -> None:
    """Write to stdout; where the reader of a pipe has seen enough, such as ``head``, end quietly."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush finds an open end
        raise typer.Exit(BROKEN_PIPE) from error


def say_json(data: Any) -> None:
    """Print machine-readable data to stdout; NaN and infinities, which JSON lacks, as strings."""
    write_out(json.dumps(_plain(data), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an ``.npz`` file, without unpickling anything.

    Raises:
        CliError: no such file, not an ``.npz``, damaged, or an array of Python objects.
    """
    step = "write it with numpy.savez(path, name=array, ...), one array per input name"
    if not path.is_file():
        raise CliError(f"no file {path}", step)
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise CliError(f"{path} holds one array without a name (.npy), not named arrays (.npz)", step)
        with archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise CliError(f"{path} cannot be read as .npz: {error}", step) from error


def restore_dtypes(arrays: Mapping[str, np.ndarray], runtime: Runtime) -> dict[str, np.ndarray]:
    """Give arrays their dtype back where ``.npz`` lost it: NumPy stores bfloat16 and float8 as raw bytes."""
    try:
        expected = {spec.name: dtype_of(spec.dtype) for spec in runtime.signature.inputs}
    except InputError:  # a torch module, which learns its signature from its first call
        expected = {}
    restored = dict(arrays)
    for name, array in arrays.items():
        dtype = expected.get(name)
        if array.dtype.kind == "V" and dtype is not None and dtype.numpy.itemsize == array.dtype.itemsize:
            restored[name] = array.view(dtype.numpy)
    return restored


def require_folder(path: Path) -> None:
    """Find out before the work that a file has no folder to go to.

    Raises:
        CliError: there is no such folder.
    """
    if not path.parent.is_dir():
        raise CliError(f"no folder {path.parent}", "make it first, or name a file in another one")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an ``.npz`` file, whole or not at all.

    Raises:
        CliError: the folder is missing or cannot be written.
    """
    with _replacing(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # numpy types **kwds by its own keyword's bool


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all; ``-`` is stdout.

    Raises:
        CliError: the folder is missing or cannot be written.
    """
    if path == Path("-"):
        write_out(text)
        return
    with _replacing(path) as stream:
        stream.write(text.encode())


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as stream:
            yield stream
        beside.replace(path)
    except OSError as error:
        raise CliError(
            f"cannot write {path}: {error.strerror or error}", "name a file in a folder you can write"
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def human_bytes(count: int) -> str:
    """A size for people: ``"1.5 MB"``, in powers of ten."""
    size, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.95 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
