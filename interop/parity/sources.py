"""Where the reference's inner values come from, and how far each of them may be off."""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from interop.errors import InteropError
from interop.parity.captured import Inside
from interop.parity.graph import Graph, execute, initializer, run_model, submodel
from interop.parity.noise import SAMPLES, Noise, allowances_of, move, wavering
from interop.parity.tolerance import Allowance

__all__ = ["Captured", "Source", "Twin"]

Array = npt.NDArray[Any]


class Source(Protocol):
    """Where a reference's inner values come from."""

    note: str
    own: Mapping[str, Array]

    def allowance(self, name: str) -> tuple[Allowance | None, Array | None]:
        """What a value may be off by, and the value to measure from."""

    def wavers(self, name: str, found: Array) -> bool:
        """True where an integer or bool value differs only as the reference's own rounding changes it."""

    def is_same(self, graph: Graph, node: Any) -> bool:
        """True where the reference has this very node."""


class Twin:
    """Values of an ONNX graph, with the noise of each node alone."""

    note = "each node was fed with the values of a right export"

    def __init__(self, graph: Graph, feeds: Mapping[str, Array], seed: int) -> None:
        self.graph, self._feeds = graph, {name: feeds[name] for name in graph.inputs}
        self.own: Mapping[str, Array] = execute(graph, self._feeds).values
        self._seed, self._producers = seed, graph.producers()
        self._keys = {_key(graph, node) for node in graph.nodes}

    def allowance(self, name: str) -> tuple[Allowance | None, Array | None]:
        """See ``Source``."""
        return _allowed(Noise("float64", {name: self.own[name]}, self._samples(name)), name, self.own[name])

    def wavers(self, name: str, found: Array) -> bool:
        """See ``Source``."""
        return wavering(Noise("float64", {}, self._samples(name)), name, self.own[name], found)

    def is_same(self, graph: Graph, node: Any) -> bool:
        """See ``Source``."""
        return _key(graph, node) in self._keys

    def _samples(self, name: str) -> tuple[dict[str, Array], ...]:
        """The node's result with all that enters it moved by an ulp."""
        if name not in self._producers:
            return ()
        node, found = self.graph.nodes[self._producers[name]], []
        model, feeds = submodel(self.graph, [node], ChainMap(self._feeds, dict(self.own)), {}, [name])
        for sample in range(SAMPLES + 1):
            rng = np.random.default_rng([self._seed, sample])
            try:
                found.append(run_model(model, {key: move(values, rng) for key, values in feeds.items()}))
            except InteropError:
                break
        return tuple(found)


class Captured:
    """Values of a captured torch program."""

    note = "each group of nodes between two torch operators was fed with torch's values"

    def __init__(self, inside: Inside, note: str = "") -> None:
        self.note = note or self.note
        self.own = inside.own
        self._noise = Noise("float64", dict(inside.truths), tuple(dict(sample) for sample in inside.samples))

    def allowance(self, name: str) -> tuple[Allowance | None, Array | None]:
        """See ``Source``."""
        return _allowed(self._noise, name, self.own[name])

    def wavers(self, name: str, found: Array) -> bool:
        """See ``Source``."""
        return wavering(self._noise, name, self.own[name], found)

    def is_same(self, graph: Graph, node: Any) -> bool:
        """See ``Source``."""
        return False


def _allowed(noise: Noise, name: str, own: Array) -> tuple[Allowance | None, Array | None]:
    allowances, truths = allowances_of(noise, {name: own})
    return allowances.get(name), truths.get(name)


def _digest(values: Array) -> bytes | int:
    if values.dtype.hasobject:
        return hash(values.tobytes())
    return hashlib.blake2b(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data).digest()


def _key(graph: Graph, node: Any) -> tuple[Any, ...]:
    """What makes two nodes the same: operator, attributes, inputs and the values of initializers."""
    attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
    inputs = []
    for name in node.input:
        values = initializer(graph, name)
        inputs.append(name if values is None else (str(values.dtype), values.shape, _digest(values)))
    return node.domain, node.op_type, tuple(attributes), tuple(inputs)
