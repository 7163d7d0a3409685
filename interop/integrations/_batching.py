"""Several requests in one run of a model, and each its own answer."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interop.dtypes import dtype_of
from interop.errors import InputError, InteropError
from interop.parity.compare import compare
from interop.parity.inputs import base_symbols, make_case
from interop.runtimes import Runtime
from interop.signature import Signature

__all__ = ["Batcher", "batch_symbol"]

logger = logging.getLogger("interop")

Array = np.ndarray[Any, Any]
Request = Mapping[str, Array]
Answer = dict[str, Any]


def batch_symbol(signature: Signature) -> str | None:
    """The symbol that is the first axis of every input and every output; None where there is none."""
    found = {spec.shape[0] if spec.shape else None for spec in (*signature.inputs, *signature.outputs)}
    held = [spec for spec in (*signature.inputs, *signature.outputs) if spec.kind != "tensor"]
    symbol = next(iter(found), None)
    return symbol if len(found) == 1 and isinstance(symbol, str) and symbol.isidentifier() and not held else None


class Batcher:
    """Runs requests together where the model takes batches and treats every row by itself; else one after the other.

    Attributes:
        together: whether requests share runs.
    """

    def __init__(self, runtime: Runtime) -> None:
        """Try the model once on made inputs: a row must not depend on the rows beside it.

        Args:
            runtime: the model.
        """
        self._runtime = runtime
        symbol = batch_symbol(runtime.signature)
        self.together = symbol is not None and _rows_are_apart(runtime, symbol)
        if symbol is not None and not self.together:
            logger.warning("%s: its rows depend on each other, so requests are not run together", runtime.path)

    def check(self, inputs: Request) -> None:
        """Raise unless the model takes these inputs: a wrong request fails before it meets others.

        Raises:
            InputError: a name, dtype, rank or dimension does not fit.
        """
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        self._runtime.signature.check({name: (_dtype(array), array.shape) for name, array in arrays.items()})

    def run(self, requests: Sequence[Request]) -> list[Answer | InteropError]:
        """Answers, in the order of the requests; an error stands where its request's answer would."""
        groups: dict[Any, list[int]] = {}
        for position, request in enumerate(requests):
            key = tuple((name, request[name].shape[1:]) for name in sorted(request)) if self.together else position
            groups.setdefault(key, []).append(position)
        answers: dict[int, Answer | InteropError] = {}
        for positions in groups.values():
            answers |= zip(positions, self._run_group([requests[position] for position in positions]))
        return [answers[position] for position in range(len(requests))]

    def _run_group(self, requests: Sequence[Request]) -> list[Answer | InteropError]:
        if len(requests) > 1:
            try:
                return list(self._run_together(requests))
            except InteropError:  # one of them is to blame; alone, the others have their answers
                pass
        return [self._run_alone(request) for request in requests]

    def _run_alone(self, request: Request) -> Answer | InteropError:
        try:
            return self._runtime.run(dict(request))
        except InteropError as error:
            return error

    def _run_together(self, requests: Sequence[Request]) -> list[Answer]:
        counts = [len(next(iter(request.values()))) for request in requests]
        outputs = self._runtime.run({name: np.concatenate([each[name] for each in requests]) for name in requests[0]})
        for name, value in outputs.items():
            if value.shape[:1] != (sum(counts),):
                raise InputError(f"output {name!r} has the shape {value.shape}, not a row for each of {sum(counts)}")
        ends = np.cumsum([0, *counts]).tolist()
        # copies: a view would keep the whole batch alive as long as one of its answers
        return [{name: value[a:b].copy() for name, value in outputs.items()} for a, b in itertools.pairwise(ends)]


def _dtype(array: Array) -> str:
    return "string" if array.dtype.kind in "OSU" else dtype_of(array.dtype).name


def _rows_are_apart(runtime: Runtime, symbol: str) -> bool:
    """Whether three rows answer alone what they answer together; True where the model takes no made inputs."""
    sizes = dict.fromkeys(base_symbols(runtime.signature), 4)
    try:
        rows = make_case(runtime.signature, "normal", {**sizes, symbol: 3}).tensors
        together = runtime.run(dict(rows))
        alone = [runtime.run({name: value[row : row + 1] for name, value in rows.items()}) for row in range(3)]
    except InteropError:
        return True
    joined = {name: np.concatenate([answer[name] for answer in alone]) for name in together}
    return compare(joined, together).passed
