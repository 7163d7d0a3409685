"""How an operator stands in an ONNX file: a node in a domain of its own that says which operator it is and how it is called.

ONNX Runtime's Python operators are registered by domain and name with fixed element types, and a domain must not grow while
a session uses it. So the domain says the name and the types, and nothing is ever added to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["DOMAIN", "Stored", "carrier", "domain_of"]

DOMAIN = "ai.tensor_interop"
"""What the domains of operators start with."""

_CARRIED = {"float16": "float32", "bfloat16": "float32"}


class Stored(NamedTuple):
    """The attributes of such a node, all of them strings.

    Attributes:
        operator: the operator's name.
        call: the text of the ``Call``.
        input_types: dtypes of the tensors, as the operator takes them, with spaces between.
        output_types: dtypes of the results.
        module: the Python module that defines the operator.
    """

    operator: str
    call: str
    input_types: str
    output_types: str
    module: str


def carrier(dtype: str) -> str:
    """The dtype that the node itself has: 16-bit floats travel as float32, which holds all of them exactly."""
    return _CARRIED.get(dtype, dtype)


def domain_of(name: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """The domain of an operator with these dtypes."""
    parts = [name, "_".join(map(carrier, inputs)), "_".join(map(carrier, outputs))]
    return ".".join([DOMAIN, *parts])
