"""Write a lowered module as a SavedModel."""

from __future__ import annotations

import json
from pathlib import Path

import tensorflow as tf

from exporters.tensorflow._module import LoweredModule

__all__ = ["METADATA_FILE", "write_savedmodel"]

METADATA_FILE = Path("assets.extra") / "tensor_interop.json"
"""Where the signature and the name map stand; TensorFlow leaves ``assets.extra`` to others."""
OUTLINE_FILE = METADATA_FILE.with_name("tensor_interop_graph.onnx")
"""Where it stands which tensor of the SavedModel is which value of the ONNX graph, without weights."""


def write_savedmodel(module: LoweredModule, path: Path) -> None:
    """Write the module to a folder that does not exist yet.

    Args:
        module: the module.
        path: the folder; its parent exists.
    """
    tf.saved_model.save(module, str(path), signatures=module.signatures_to_save())
    metadata = path / METADATA_FILE
    metadata.parent.mkdir(exist_ok=True)
    outline = module.outline()
    if outline is not None:
        (path / OUTLINE_FILE).write_bytes(outline)
    metadata.write_text(json.dumps(module.interop_metadata, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
