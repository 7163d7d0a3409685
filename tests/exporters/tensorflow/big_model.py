"""A model with more than 2 GB of weights: ``python -m tests.exporters.tensorflow.big_model build|export|run FOLDER``.

Each step is a process of its own, so that the memory of one is not counted in another and nothing is left in memory
between saving and loading. The last line that a step prints is JSON.
"""

from __future__ import annotations

import itertools
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

SIZES = (12288, 16384, 12288, 16384)
BYTES = sum(4 * rows * columns for rows, columns in itertools.pairwise(SIZES))
ROWS = 2


def inputs():
    """float32 ``[ROWS, SIZES[0]]``."""
    return np.random.default_rng(7).standard_normal((ROWS, SIZES[0]), np.float32)


def build(folder):
    """Write ``model.onnx`` and its data file; no two blocks of the weights are alike."""
    from onnx import TensorProto, helper

    initializers, nodes, offset, name = [], [], 0, "x"
    with (folder / "model.data").open("wb") as file:
        for layer, (rows, columns) in enumerate(itertools.pairwise(SIZES)):
            generator = np.random.default_rng(layer)
            scale = np.float32((12 / rows) ** 0.5)  # keeps the size of the values from layer to layer
            for _ in range(0, rows, 1024):
                ((generator.random((1024, columns), np.float32) - np.float32(0.5)) * scale).tofile(file)
            weight = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[rows, columns])
            weight.data_location = TensorProto.EXTERNAL
            places = {"location": "model.data", "offset": offset, "length": 4 * rows * columns}
            for key, value in places.items():
                weight.external_data.add(key=key, value=str(value))
            offset += 4 * rows * columns
            initializers.append(weight)
            nodes.append(helper.make_node("MatMul", [name, f"w{layer}"], [f"h{layer}"]))
            name = f"h{layer}"
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in (("x", SIZES[0]), (name, SIZES[-1]))
    ]
    graph = helper.make_graph(nodes, "big", values[:1], values[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def export(folder):
    """Export to TensorFlow and save."""
    from exporters import export_model

    export_model(folder / "model.onnx", "tensorflow", path=folder / "saved", verify=False)


def run(folder):
    """Load the SavedModel and run it; the outputs go to ``outputs.npy``."""
    import interop

    np.save(folder / "outputs.npy", interop.load(folder / "saved")(inputs()))


def expected(folder):
    """The outputs by NumPy, from the bytes of the data file."""
    values, offset = inputs(), 0
    for rows, columns in itertools.pairwise(SIZES):
        weight = np.memmap(folder / "model.data", np.float32, "r", offset, (rows, columns))
        values, offset = values @ weight, offset + weight.nbytes
    return values


def main():
    """Run one step."""
    start = time.monotonic()
    {"build": build, "export": export, "run": run}[sys.argv[1]](Path(sys.argv[2]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps({"seconds": round(time.monotonic() - start, 1), "peak_bytes": peak}) + "\n")


if __name__ == "__main__":
    main()
