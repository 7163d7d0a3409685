"""The signature and the name map inside a LiteRT file: an entry of ``Model.metadata``, which other readers pass over.

Source: the LiteRT schema (``schema.fbs``), tables ``Metadata`` and ``Buffer``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import flatbuffers  # type: ignore[import-untyped]  # ships no types
import numpy as np
from ai_edge_litert import schema_py_generated as schema

__all__ = ["METADATA_NAME", "stamp"]

METADATA_NAME = "tensor_interop"
"""The entry's name."""

_IDENTIFIER = b"TFL3"


def stamp(content: bytes, metadata: Mapping[str, Any]) -> bytes:
    """The same model with our metadata in it.

    Args:
        content: a LiteRT file.
        metadata: plain JSON data.
    """
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(json.dumps(metadata).encode(), np.uint8)
    entry = schema.MetadataT()
    entry.name, entry.buffer = METADATA_NAME, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    builder = flatbuffers.Builder(len(content) + 4096)
    builder.Finish(model.Pack(builder), file_identifier=_IDENTIFIER)
    return bytes(builder.Output())
