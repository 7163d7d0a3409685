"""The first operator of a candidate that computes something else, as data and as a reproduction of a few lines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.errors import InputError
from interop.parity.compare import OutputComparison

__all__ = ["Difference", "Evidence", "Layer"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """One value along the graph.

    Attributes:
        value: its name.
        node: the node that makes it.
        operator: the node's operator.
        module: dotted path of the torch module.
        source: ``file.py:line``.
        error: largest difference from the reference in the candidate's own run, relative to the value's scale.
        local: the same where the nodes before it get the reference's values.
    """

    value: str
    node: str
    operator: str
    module: str
    source: str
    error: float
    local: float


@dataclass(frozen=True)
class Evidence:
    """What a reproduction needs.

    Attributes:
        model: a serialized ONNX model of the operators in question.
        inputs: what the reference feeds them with.
        expected: what the reference gets.
        allowed: how far a value may be off.
    """

    model: bytes
    inputs: Mapping[str, Array]
    expected: Array
    allowed: float


@dataclass(frozen=True)
class Difference:
    """The first value of a candidate that leaves its own noise, and the node that makes it.

    Attributes:
        candidate: the candidate's label.
        case: the name of the inputs.
        value: the value's name in the ONNX graph.
        node: name of the ONNX node, or its operator and position where it has no name.
        operator: the node's operator.
        torch_operator: the torch operator that it was translated from, such as ``"aten.linear.default"``, if known.
        module: dotted path of the torch module, empty for the root.
        source: ``file.py:line`` of the user's code, if known.
        reason: what differs, one line.
        note: how this was found.
        nodes: the nodes between values that the reference also has; one of these is wrong.
        figures: the value's figures where the nodes before it get the reference's values.
        layers: the error of every comparable value along the graph.
        evidence: what ``reproduction`` writes; None in a report that was read from a file.
    """

    candidate: str
    case: str
    value: str
    node: str
    operator: str
    torch_operator: str = ""
    module: str = ""
    source: str = ""
    reason: str = ""
    note: str = ""
    nodes: tuple[str, ...] = ()
    figures: OutputComparison | None = None
    layers: tuple[Layer, ...] = ()
    evidence: Evidence | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        place = ", ".join(part for part in (self.module and f"module {self.module}", self.source) if part)
        origin = f" ({self.torch_operator})" if self.torch_operator else ""
        if not self.node:
            return f"{self.candidate}: {self.reason}"
        where = f"{self.operator} {self.node!r}{origin}{f' of {place}' if place else ''}"
        return f"the first difference of {self.candidate} is at {where}: value {self.value!r}: {self.reason}"

    def without_evidence(self) -> Difference:
        """The plain data."""
        return replace(self, evidence=None)

    def reproduction(self, folder: str | os.PathLike[str]) -> Path:
        """Write a model of the operator alone, its inputs, what is expected, and a script that shows the difference.

        Args:
            folder: where to; made if missing.

        Returns:
            The script, ``reproduce.py``; it needs NumPy and ONNX Runtime and exits with 1 while the difference is there.

        Raises:
            InputError: the report was read from a file, or no single operator is to blame.
        """
        if self.evidence is None:
            raise InputError(
                "this difference has no inputs to reproduce it with; call interop.check again and ask its report"
            )
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        arrays = {f"input_{position}": values for position, values in enumerate(self.evidence.inputs.values())}
        (place / "model.onnx").write_bytes(self.evidence.model)
        np.savez(place / "inputs.npz", allow_pickle=False, **arrays)
        np.save(place / "expected.npy", self.evidence.expected, allow_pickle=False)
        script = place / "reproduce.py"
        text = _SCRIPT.format(what=_comment(str(self)), names=list(self.evidence.inputs), allowed=self.evidence.allowed)
        script.write_text(text, encoding="utf-8")
        return script


def _comment(text: str) -> str:
    return " ".join(text.split())


_SCRIPT = """# {what}
import pathlib, sys
import numpy as np, onnxruntime as ort
here = pathlib.Path(__file__).parent
arrays, expected = np.load(here / "inputs.npz"), np.load(here / "expected.npy")
feeds = {{name: arrays[f"input_{{position}}"] for position, name in enumerate({names!r})}}
session = ort.InferenceSession(here / "model.onnx", providers=["CPUExecutionProvider"])
found = session.run(None, feeds)[0]
print("expected", expected.dtype, expected.shape, expected.ravel()[:8], "\\nfound   ", found.dtype, found.shape, found.ravel()[:8])
same = found.dtype == expected.dtype and found.shape == expected.shape
same = same and np.allclose(found.astype("c16"), expected.astype("c16"), rtol=0, atol={allowed!r}, equal_nan=True)
sys.exit("it differs" if not same else 0)
"""
