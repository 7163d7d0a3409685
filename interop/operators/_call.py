"""One call of an operator as plain data: it travels through torch's graphs, and in ONNX files, as text."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from interop.operators._errors import OperatorError
from interop.operators._pack import Skeleton

__all__ = ["Call", "Derivative", "call_of"]


_LIMIT = 1024
_CALLS: dict[str, Call] = {}


class Derivative(NamedTuple):
    """One step from a function to its vector-Jacobian product.

    Attributes:
        inputs: how many of the tensors are inputs of the function; the others are the cotangents of its outputs.
        wrt: which inputs the gradients are of.
    """

    inputs: int
    wrt: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """How the tensors sit in the arguments, and how often the function was differentiated.

    Attributes:
        text: all of it, as JSON; two calls are equal where their texts are (``True`` and ``1`` are not).
        arguments: skeleton of ``(args, kwargs)``.
        derivatives: empty for the operator itself, one step for its gradient, two for the gradient of that.
    """

    text: str
    arguments: Skeleton = field(compare=False, repr=False)
    derivatives: tuple[Derivative, ...] = field(default=(), compare=False, repr=False)

    def derive(self, inputs: int, wrt: tuple[int, ...]) -> Call:
        """The call of the gradient: it takes the inputs and the cotangents of the floating-point outputs."""
        return call_of(self.arguments, (*self.derivatives, Derivative(inputs, wrt)))

    @classmethod
    def from_text(cls, text: str) -> Call:
        """The call of a text.

        Raises:
            OperatorError: it is not the text of a call.
        """
        return _parse(text)


def call_of(arguments: Skeleton, derivatives: tuple[Derivative, ...] = ()) -> Call:
    """A call with its text."""
    key = repr((arguments, derivatives))  # not themselves: ``True`` would find what ``1`` left
    found = _CALLS.get(key)
    if found is None:
        if len(_CALLS) >= _LIMIT:
            _CALLS.clear()
        found = _CALLS[key] = Call(json.dumps([arguments, derivatives]), arguments, derivatives)
    return found


@functools.lru_cache(maxsize=_LIMIT)
def _parse(text: str) -> Call:
    try:
        arguments, derivatives = json.loads(text)
        steps = tuple(Derivative(int(count), tuple(wrt)) for count, wrt in derivatives)
    except (ValueError, TypeError, RecursionError) as error:
        raise OperatorError(f"this is not the text of an operator's call: {text[:80]!r}") from error
    return Call(text, _frozen(arguments), steps)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
