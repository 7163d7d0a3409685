"""Small models that the tests of the runtimes share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, helper

from interop.signature import Signature, TensorSpec
from interop.structure import Leaf, Node

SIGNATURE_KEY = "tensor_interop.signature"


@dataclass
class Pair:
    """A result class of a user."""

    total: object
    parts: object


class Nested(torch.nn.Module):
    """Dict and tuple in, dict with a tuple out; multiplications and additions of small integers are exact."""

    def forward(self, x, batch, scale=None):
        total = x * 2 + batch["k"] if scale is None else x * scale + batch["k"]
        return {"total": total, "parts": (x - batch["k"], batch["k"] + 1)}


def nested_inputs(rows: int = 4):
    """Arguments of ``Nested``."""
    generator = torch.Generator().manual_seed(rows)
    make = lambda: torch.randint(-9, 9, (rows, 3), generator=generator).float()  # noqa: E731 - two of the same
    return make(), {"k": make()}


def nested_signature(name_of_class: str = "") -> Signature:
    """What an exporter would store for ``Nested``."""
    outer = Node("object", (Leaf("total"), Node("tuple", (Leaf("p0"), Leaf("p1")))), ("total", "parts"), name_of_class)
    if not name_of_class:
        outer = Node("dict", outer.children, outer.keys)
    return Signature(
        tuple(TensorSpec(name, "float32", ("rows", 3)) for name in ("x", "batch_k")),
        tuple(TensorSpec(name, "float32", ("rows", 3)) for name in ("total", "p0", "p1")),
        Node("tuple", (Leaf("x"), Node("dict", (Leaf("batch_k"),), ("k",)))),
        Node("dict", ()),
        outer,
        ("x", "batch"),
    )


def info(name: str, dtype: int, shape):
    """Shorthand."""
    return helper.make_tensor_value_info(name, dtype, shape)


def make_onnx(nodes, inputs, outputs, initializers=(), metadata: dict[str, str] | None = None) -> onnx.ModelProto:
    """A checked model of opset 18."""
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    for key, value in (metadata or {}).items():
        model.metadata_props.add(key=key, value=value)
    return model


def nested_onnx(signature: Signature | None = None, text: str | None = None) -> onnx.ModelProto:
    """``Nested`` in ONNX, with an optional stored signature."""
    if signature is not None:
        text = json.dumps(signature.to_json())
    rows = ["rows", 3]
    constants = [
        helper.make_tensor("two", TensorProto.FLOAT, [], [2.0]),
        helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
    ]
    return make_onnx(
        [
            helper.make_node("Mul", ["x", "two"], ["x2"]),
            helper.make_node("Add", ["x2", "batch_k"], ["total"]),
            helper.make_node("Sub", ["x", "batch_k"], ["p0"]),
            helper.make_node("Add", ["batch_k", "one"], ["p1"]),
        ],
        [info("x", TensorProto.FLOAT, rows), info("batch_k", TensorProto.FLOAT, rows)],
        [info(name, TensorProto.FLOAT, rows) for name in ("total", "p0", "p1")],
        constants,
        None if text is None else {SIGNATURE_KEY: text},
    )


def identity_onnx(dtype: int, shape=("n",), op: str = "Identity") -> onnx.ModelProto:
    """One operator from ``x`` to ``y``."""
    nodes = [helper.make_node(op, ["x"], ["y"])]
    return make_onnx(nodes, [info("x", dtype, list(shape))], [info("y", dtype, list(shape))])


def saved(model: onnx.ModelProto, folder: Path, name: str = "m.onnx") -> Path:
    """Write the bytes as they are."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path
