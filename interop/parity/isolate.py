"""A candidate in a process of its own: what crashes or hangs there is a failed candidate, and the check goes on.

The process is a fresh Python that loads the model and then answers one line of JSON for each line that it is asked.
Tensors cross as ``.npz`` files in a temporary folder; nothing is pickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.errors import InputError, InteropError, ModelFileError
from interop.extras import require
from interop.frameworks import convert
from interop.parity.check import check
from interop.parity.report import CaseResult, ParityReport
from interop.parity.saved import _describe, _read
from interop.parity.witness import ModuleWitness, Witness, witness_of
from interop.runtimes import Runtime, load
from interop.runtimes._base import owner_of
from interop.signature import Signature

__all__ = ["Isolated", "IsolationError", "check_isolated", "serve"]

Array = npt.NDArray[Any]

TIMEOUT_S = 300.0
LOADING_S = 120.0  # loading may take this long whatever the time-out: importing a framework alone takes many seconds
POLL_S = 0.2
MOST_DEATHS = 2  # in a row; a model that hangs on every input would cost a time-out for each
_PROGRAM = "from interop.parity.isolate import serve; serve()"


class IsolationError(InteropError):
    """The process of an isolated model raised, died or gave no answer in time; the message says which."""


class NoSignatureError(InputError, AttributeError):
    """The model does not say what it takes: a torch module, or one whose process died while it was loaded."""


class Isolated(Runtime):
    """A model that runs in a process of its own.

    Anything that ends that process (a segmentation fault, no memory, ``os._exit``) or that takes too long is an
    ``IsolationError`` of the call; the next call starts the process anew, until it died twice in a row.

    Args:
        model: the path of a model file, or ``package.module:attribute`` or ``file.py:attribute``.
        timeout: seconds for one run. Loading has at least two minutes.
        trust: also read torch files with pickles or compiled code in them, which can run anything.
        naming: the names of inputs and outputs for a torch module that does not know its own.

    Raises:
        InteropError: the model cannot be loaded, for a reason that loading gives in an orderly way: no such file,
            damaged, a framework is missing. A process that dies while it loads raises nothing here: every run does.

    Example:
        >>> interop.check(model, Isolated("model.onnx", timeout=60)).raise_for_failure()
    """

    name = "isolated"
    framework = "numpy"

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        timeout: float = TIMEOUT_S,
        trust: bool = False,
        naming: Signature | None = None,
    ) -> None:
        if not timeout > 0:
            raise InputError(f"timeout is a number of seconds above 0, got {timeout!r}")
        self.model = os.fspath(model)
        super().__init__(None, self.model if Path(self.model).exists() else None)
        self._timeout = timeout
        self._start_up = {"model": self.model, "trust": trust, "naming": None if naming is None else naming.to_json()}
        self._folder = tempfile.TemporaryDirectory(prefix="interop-")
        self._process: _Process | None = None
        self._deaths, self._failure = 0, ""
        with contextlib.suppress(IsolationError):  # it is in failure, and every run raises it
            self._start()

    @classmethod
    def open(cls, model: str | os.PathLike[str], **options: Any) -> Isolated:
        """The same as the class itself."""
        return cls(model, **options)

    @property
    def signature(self) -> Signature:
        """See ``Runtime``.

        Raises:
            NoSignatureError: the model has none.
        """
        if self._signature is None:
            raise NoSignatureError(self._failure or "a torch module does not say what inputs it takes")
        return self._signature

    @property
    def failure(self) -> str:
        """Why the process last died; empty while it is well."""
        return self._failure

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See ``Runtime``; without a signature the inputs go to the process as they are.

        Raises:
            InputError: the inputs do not fit the signature.
            IsolationError: the model raised, the process died, or it took too long.
        """
        if self._signature is None:
            return self._execute(inputs, owner_of(inputs.values()))
        return super().run(inputs)

    def close(self) -> None:
        """End the process and remove its files; the next run starts another one."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        if self._process is None:
            self._start()
        folder = Path(self._folder.name)
        described = _write_tensors(folder / "inputs.npz", inputs)
        reply = self._ask({"inputs": described}, self._timeout)
        if "error" in reply:
            raise IsolationError(str(reply["error"]))
        outputs = _read_tensors(folder / "outputs.npz", reply["outputs"])
        return {name: convert(value, owner) for name, value in outputs.items()}

    def _start(self) -> None:
        if self._deaths >= MOST_DEATHS:
            raise IsolationError(
                f"its process died {self._deaths} times in a row and was not started again; last: {self._failure}"
            )
        self._process = _Process(Path(self._folder.name))
        reply = self._ask(self._start_up, max(self._timeout, LOADING_S))
        if "error" in reply:
            self.close()
            raise _KINDS.get(str(reply["kind"]), InteropError)(str(reply["error"]))
        self._signature = None if reply["signature"] is None else Signature.from_json(reply["signature"])

    def _ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process is not None
        try:
            reply = self._process.ask(question, seconds)
        except IsolationError as error:
            self._deaths, self._failure = self._deaths + 1, str(error)
            self.close()
            raise
        if "outputs" in reply:
            self._deaths, self._failure = 0, ""
        return reply


_KINDS: dict[str, type[InteropError]] = {"ModelFileError": ModelFileError, "InputError": InputError}


class _Process:
    """The process and the two pipes to it; its stderr goes to a file, for the last words."""

    def __init__(self, folder: Path) -> None:
        self._words = folder / "stderr.txt"
        paths = os.pathsep.join(path for path in sys.path if path)  # modules are found where this process finds them
        with self._words.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(folder)],  # a file here called onnx.py is not the library
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | {"PYTHONPATH": paths},
                start_new_session=True,  # so that what it starts can be ended with it
            )
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_pump, args=(self._process.stdout, self._replies), daemon=True).start()
        self.end = weakref.finalize(self, _end, self._process)

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a question.

        Raises:
            IsolationError: the process died or took longer.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a broken pipe: it is dead, which the reply tells
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        line = self._wait(time.monotonic() + seconds)
        if line is None:
            raise IsolationError(f"it gave no answer within {seconds:g} s, and its process was ended")
        if not line:
            raise IsolationError(self._last_words())
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _wait(self, deadline: float) -> bytes | None:
        """The next line; empty where the process died, None where there is none before the deadline."""
        while True:
            # Asked before the wait: a reply that was written just before the end still counts.
            dead = self._process.poll() is not None
            try:
                return self._replies.get(timeout=max(0.0, min(POLL_S, deadline - time.monotonic())))
            except queue.Empty:
                if dead:  # and something that it left behind keeps the pipe open
                    return b""
                if time.monotonic() >= deadline:
                    return None

    def _last_words(self) -> str:
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "its process closed the connection"
        lines = self._words.read_bytes().decode("utf-8", "replace").strip().splitlines()
        words = f"; its last words: {lines[-1].strip()[:200]}" if lines else ""
        return f"its process {_say_status(status)}{words}"


def _say_status(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = {
        "SIGKILL": ", as the system does when memory runs out",
        "SIGSEGV": ", an access to memory that is not its own",
    }
    return f"was ended by {name}{hint.get(name, '')}"


def _pump(pipe: Any, replies: queue.SimpleQueue[bytes]) -> None:
    with pipe:
        for line in pipe:
            replies.put(line)
    replies.put(b"")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _write_tensors(path: Path, tensors: Mapping[str, Any]) -> dict[str, Any]:
    arrays: dict[str, Array] = {}
    described = _describe(tensors, "tensor", arrays)
    np.savez(path, allow_pickle=False, **arrays)
    return described


def _read_tensors(path: Path, described: Mapping[str, Any]) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: _read(arrays, item) for name, item in described.items()}


# ------------------------------------------------------------------------------------------- inside the other process


def serve() -> None:
    """What the process of an ``Isolated`` does: load the model, then answer until nobody asks any more."""
    folder = Path(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a model or its framework prints is no reply
    questions = iter(sys.stdin.readline, "")
    start_up = json.loads(next(questions))
    witness = _open(start_up, replies)
    naming = None if start_up["naming"] is None else Signature.from_json(start_up["naming"])
    for question in questions:
        _reply(replies, _answer(witness, witness.signature or naming, json.loads(question)["inputs"], folder))


def _open(start_up: Mapping[str, Any], replies: Any) -> Witness:
    from interop.specs import resolve

    try:
        model = resolve(str(start_up["model"]), trust=bool(start_up["trust"])).value
        witness = witness_of(model)
    except InteropError as error:
        kind = next((c.__name__ for c in type(error).__mro__ if c.__name__ in _KINDS), "InteropError")
        step = getattr(error, "step", "")
        _reply(replies, {"error": f"{error}; {step}" if step else str(error), "kind": kind})
        raise SystemExit(1) from error
    if isinstance(witness, ModuleWitness):
        require("torch._dynamo", "to run a module")  # seconds that are not the first run's
        _learn_nesting(witness)
    _reply(replies, {"signature": None if witness.signature is None else witness.signature.to_json()})
    return witness


def _learn_nesting(witness: ModuleWitness) -> None:
    """Let a module with example inputs say how its arguments are nested."""
    make, make_kwargs = (getattr(witness.module, name, None) for name in ("example_inputs", "example_kwargs"))
    if not callable(make):
        return
    example = make()
    kwargs = dict(make_kwargs()) if callable(make_kwargs) else {}
    if isinstance(example, Mapping):
        witness.record((), {**example, **kwargs})
    else:
        witness.record(example if isinstance(example, (tuple, list)) else (example,), kwargs)


def _answer(witness: Witness, naming: Signature | None, described: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    try:
        outputs = witness.run(_read_tensors(folder / "inputs.npz", described), naming)
        return {"outputs": _write_tensors(folder / "outputs.npz", outputs)}
    except Exception as error:  # noqa: BLE001 - whatever a model raises is told to the process that asked
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


def _reply(replies: Any, reply: Mapping[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


# --------------------------------------------------------------------------------------------------- a whole check


def check_isolated(
    reference: Any,
    *candidates: str | os.PathLike[str] | Isolated,
    timeout: float = TIMEOUT_S,
    trust: bool = False,
    names: Sequence[str] | None = None,
    **options: Any,
) -> ParityReport:
    """``interop.check`` with each candidate in its own process.

    Args:
        reference: see ``interop.check``; it runs in this process.
        *candidates: paths, ``package.module:attribute`` or ``file.py:attribute``; or ``Isolated`` ones, left open.
        timeout: seconds for one run of a candidate.
        trust: see ``Isolated``.
        names: labels of the candidates in the report.
        **options: see ``interop.check``; ``locate`` is off unless asked for, because it runs parts of a candidate here.

    Raises:
        InteropError: as ``interop.check``, and for a candidate that cannot be loaded for a reason that loading gives.
    """
    opened = load(reference) if isinstance(reference, (str, os.PathLike)) else reference
    naming = witness_of(opened).signature
    labels = [_name(word) for word in candidates] if names is None else list(names)
    with contextlib.ExitStack() as stack:
        models = []
        for word in candidates:
            if isinstance(word, Isolated):
                models.append(word)
                continue
            models.append(Isolated(word, timeout=timeout, trust=trust, naming=naming))
            stack.callback(models[-1].close)
        try:
            return check(opened, *models, names=labels, **{"locate": False, **options})
        except InputError as error:
            dead = {label: model.failure for label, model in zip(labels, models) if model.failure}
            if not dead:
                raise
            # No inputs could be made, perhaps since the model that knows its inputs died: a failure all the same.
            cases = tuple(CaseResult(name, "loading", False, why, error=why) for name, why in dead.items())
            return ParityReport(_name(reference), tuple(labels), cases, {"made inputs": str(error)})


def _name(model: Any) -> str:
    model = model.model if isinstance(model, Isolated) else getattr(model, "path", None) or model
    return Path(model).name if isinstance(model, (str, os.PathLike)) else type(model).__name__
