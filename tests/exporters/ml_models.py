"""Models of one operator of ai.onnx.ml, for the tests of every target."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

X = np.random.default_rng(5).normal(size=(6, 4)).astype(np.float32)
FLOAT, INT64, STRING, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.DOUBLE


def ml_model(operator, inputs, outputs, opset=3, **attributes):
    """A model of one node; an output is an ONNX element type."""
    names = [f"x{i}" for i in range(len(inputs))]
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{name}{i}" for i in range(x.ndim - 1)] + [x.shape[-1]]
        )
        for name, x in zip(names, inputs)
    ]
    made = [helper.make_tensor_value_info(f"y{i}", dtype, None) for i, dtype in enumerate(outputs)]
    node = helper.make_node(operator, names, [value.name for value in made], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "g", given, made)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", opset)], ir_version=10
    )


WORDS = np.array([["b", "a", "?"], ["c", "a", "b"]], object)


def trees():
    """Two trees over four features, and what their leaves give."""
    return {
        "nodes_treeids": [0] * 5 + [1] * 3,
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 2, 0, 0, 0, 3, 0, 0],
        "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [4, 3, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [0, 1, 0, 0, 0, 1, 0, 0],
    }


HOLES = np.where(X > 1, np.float32(np.nan), X)


def classifier(ids, **attributes):
    """The attributes of a TreeEnsembleClassifier of ``trees``."""
    weights = attributes.pop("weights", [0.7, 0.2, 0.4, 0.1, 0.9])
    return {
        "class_treeids": [0, 0, 0, 1, 1],
        "class_nodeids": [2, 3, 4, 1, 2],
        "class_ids": ids,
        "class_weights": weights,
        **trees(),
        **attributes,
    }
