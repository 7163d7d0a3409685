"""The insides of a candidate: its nodes, and a way to run them on values of our choice.

An ONNX model shows its own nodes. A TensorFlow module or SavedModel of this project carries the outline of the ONNX graph
that it was lowered from, which says where each value is. A torch program or module shows its operators or submodules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from interop.errors import InteropError
from interop.parity.graph import Execution, Graph, execute, open_graph
from interop.parity.sources import Source
from interop.parity.witness import ModuleWitness, Witness

__all__ = ["Closed", "Inside", "OnnxInside", "open_inside"]

Array = npt.NDArray[Any]


class Inside(Protocol):
    """A candidate that was opened."""

    @property
    def graph(self) -> Graph:
        """Its nodes and the names of its values."""

    @property
    def unexplained(self) -> str:
        """What it means if no node differs and the outputs still do."""

    @property
    def format(self) -> str:
        """The format of a right export that has the same values."""

    @property
    def source(self) -> Source | None:
        """The reference's values, where they can only be had together with the candidate's nodes."""

    def run(self, feeds: Mapping[str, Array], pinned: Mapping[str, Array] | None = None) -> Execution:
        """Every value.

        Args:
            feeds: the inputs.
            pinned: values that every node gets in place of what the candidate itself computed.
        """


@dataclass(frozen=True)
class OnnxInside:
    """An ONNX model in ONNX Runtime, without optimisations."""

    graph: Graph
    unexplained: str = "with ONNX Runtime's graph optimisations off, nothing differs: one of them makes the difference"
    format: str = "onnx"
    source: Source | None = None

    def run(self, feeds: Mapping[str, Array], pinned: Mapping[str, Array] | None = None) -> Execution:
        """See ``Inside``."""
        return execute(self.graph, feeds, pinned)


class Closed:
    """What is left of a model whose runtime was let go."""

    def __init__(self, witness: Witness) -> None:
        self.name, self.signature, self.path = witness.name, witness.signature, witness.path

    def run(self, tensors: Any, naming: Any, variant: Any = None) -> dict[str, Array]:
        """See ``Witness``.

        Raises:
            InteropError: always.
        """
        raise InteropError(f"{self.name} was closed")


def open_inside(model: Any, witness: Witness) -> Inside | str | None:
    """Open a candidate, or say in one sentence why its inner values cannot be seen; None for a torch module.

    Args:
        model: the candidate as the caller gave it.
        witness: the same, ready to run.

    Raises:
        ModelFileError: a file is damaged.
    """
    if witness.name == "isolated":
        return "it runs in a process of its own, and its inner values are not looked at in this one"
    graph = open_graph(model)
    if graph is not None:
        return OnnxInside(graph)
    if witness.name == "tensorflow":
        from interop.parity.inside_tensorflow import open_tensorflow

        return open_tensorflow(witness)
    if isinstance(witness, ModuleWitness):
        return None
    return _REASONS.get(witness.name, f"the inner values of {witness.name} models cannot be seen")


_REASONS = {
    "litert": "a LiteRT file does not keep its inner values: its converter fuses operators and renames what is left; "
    "check the TensorFlow export that it was made from as another candidate",
}
