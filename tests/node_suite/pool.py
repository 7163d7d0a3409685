"""Worker processes that survive a case which crashes or hangs: it fails, and a new worker goes on."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

START_UP_SECONDS = 180.0

RUNNERS = {"tensorflow": "tests.node_suite.convert", "torch": "tests.node_suite.convert_torch"}
"""Format -> the module whose ``run_case`` takes a case there."""


@dataclass(frozen=True)
class Outcome:
    """How a case went; ``reason`` is empty where it passed."""

    name: str
    reason: str

    @property
    def passed(self) -> bool:
        """Whether it passed."""
        return not self.reason


def run_all(names: Iterable[str], *, target: str, saved: bool, workers: int, timeout: float) -> list[Outcome]:
    """Run the cases.

    Args:
        names: their names.
        target: the format, ``"tensorflow"`` or ``"torch"``.
        saved: save and reload between converting and running.
        workers: number of processes.
        timeout: seconds that one case may take.
    """
    todo: SimpleQueue[str] = SimpleQueue()
    order = list(names)
    for name in order:
        todo.put(name)
    done: dict[str, Outcome] = {}
    threads = [
        threading.Thread(target=_drive, args=(todo, done, (target, saved), timeout))
        for _ in range(min(workers, len(order)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [done[name] for name in order]


def _drive(todo: SimpleQueue[str], done: dict[str, Outcome], how: tuple[str, bool], timeout: float) -> None:
    worker = None
    while True:
        try:
            name = todo.get(block=False)
        except Empty:
            break
        worker = worker or _Worker(how)
        reason = worker.run(name, timeout)
        done[name] = Outcome(name, reason)
        if not worker.alive:
            worker = None
    if worker is not None:
        worker.stop()


class _Worker:
    def __init__(self, how: tuple[str, bool]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, *how), daemon=True)
        self._process.start()
        child.close()
        self.alive = self._pipe.poll(START_UP_SECONDS) and self._pipe.recv() == "ready"

    def run(self, name: str, timeout: float) -> str:
        try:
            self._pipe.send(name)
            if self._pipe.poll(timeout):
                return str(self._pipe.recv())
            reason = f"still running after {timeout:.0f} s"
        except (EOFError, ConnectionError):
            self._process.join(10)
            reason = f"the process died with exit code {self._process.exitcode}"
        self.stop()
        return reason

    def stop(self) -> None:
        self.alive = False
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, target: str, saved: bool) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from interop.extras import require

    require(target, "to run the suite")  # holds back TensorFlow's start-up notes

    from tests.node_suite.cases import all_cases

    run_case = importlib.import_module(RUNNERS[target]).run_case
    cases = all_cases()
    pipe.send("ready")
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        pipe.send(_attempt(run_case, cases[name], saved))


def _attempt(run_case: Any, case: Any, saved: bool) -> str:
    try:
        run_case(case, saved=saved)
    except Exception as error:  # noqa: BLE001  # whatever a case raises is its failure
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text}"[:400]
    return ""
