"""Protocol buffers by hand: what a message's bytes say, without any descriptor of it.

Source: the encoding page of the Protocol Buffers documentation.
"""

from __future__ import annotations

from typing import Any


def fields(data: bytes) -> dict[int, list[Any]]:
    """``{field number: values}``: ints of varints, bytes of everything else."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                assert key & 7 == 2, f"no wire type {key & 7} here"
                size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    assert at == len(data), "the message ends inside a field"
    return found


def the(message: dict[int, list[Any]], number: int) -> Any:
    """The only value of a field."""
    (value,) = message[number]
    return value


def text(message: dict[int, list[Any]], number: int) -> str:
    """The only value of a string field."""
    return str(the(message, number).decode())


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
