"""Ray Data: the model reads the object store's memory, and nobody writes to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from interop.errors import InputError
from interop.integrations.ray import cluster
from interop.integrations.ray_data import Predictor, map_batches, predictor
from tests.interop.runtime_models import info

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data", reason="Ray Data is not installed")

ROWS, WIDTH = 64, 1024  # a block of 256 KB: far beyond what Ray sends inside a message


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``double = x + x`` and the sum of each row."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["double"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["total"], keepdims=0),
    ]
    outputs = [
        info("double", TensorProto.FLOAT, ["n", WIDTH]),
        info("total", TensorProto.FLOAT, ["n"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["n", WIDTH])], outputs, [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    target = tmp_path_factory.mktemp("data") / "double.onnx"
    target.write_bytes(model.SerializeToString())
    return target


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    with cluster(ray, None, 2):
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield


def _rows(number: int = 0) -> np.ndarray:
    return (np.arange(ROWS * WIDTH, dtype=np.float32) % 97 + number).reshape(ROWS, WIDTH)


def _mapping_at(address: int) -> str:
    """The file behind an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        if low <= address < high:
            return line.split(maxsplit=5)[5] if len(line.split()) > 5 else ""
    return "nothing"


class Watched(Predictor):
    """Says what ONNX Runtime was fed: where, and whether it could be written to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        (arrays,) = self.runtime._arrays
        execute = arrays._execute

        def watch(names: Any, feed: dict[str, np.ndarray]) -> Any:
            self.fed = feed["x"]
            return execute(names, feed)

        arrays._execute = watch

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        outputs = super().__call__(batch)
        x, fed = batch["x"], self.fed
        row = {
            "same_address": fed.ctypes.data == x.ctypes.data,
            "writable": x.flags.writeable or fed.flags.writeable,
            "file": _mapping_at(fed.ctypes.data),
            "right": bool(np.array_equal(outputs["double"], x * 2)),
        }
        return {name: np.array([value]) for name, value in row.items()}


def test_the_runtime_reads_shared_memory_where_it_is_and_read_only(_cluster, path):
    dataset = ray.data.from_numpy_refs([ray.put(_rows(n)) for n in range(3)]).rename_columns({"data": "x"})
    dataset = dataset.materialize()
    found = dataset.map_batches(
        Watched,
        fn_constructor_args=(path,),
        batch_size=None,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=1),
    ).take_all()
    assert len(found) == 3
    assert all(row["same_address"] and row["right"] and not row["writable"] for row in found), found
    assert all("plasma" in row["file"] for row in found), found
    stored = sorted(batch["x"][0, 0] for batch in dataset.iter_batches(batch_size=ROWS, batch_format="numpy"))
    assert stored == [0, 1, 2]  # as they were put


def test_batches_give_the_model_s_outputs_with_the_columns_that_are_kept(_cluster, path):
    items = [{"key": n, "pixels": np.full(WIDTH, n, np.float32)} for n in range(50)]
    dataset = ray.data.from_items(items)
    mapped = map_batches(
        dataset, path, batch_size=16, columns={"x": "pixels"}, keep=["key"], options={"threads": 1}
    ).take_all()
    assert len(mapped) == 50
    assert all(set(row) == {"key", "double", "total"} for row in mapped)
    assert sorted(row["key"] for row in mapped) == list(range(50))
    assert all(row["total"] == row["key"] * WIDTH and np.all(row["double"] == 2 * row["key"]) for row in mapped)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def test_a_model_that_writes_to_its_input_writes_to_a_copy(tmp_path):
    class InPlace(torch.nn.Module):
        def forward(self, x):
            return x.add_(1)

    program = torch.export.export(InPlace(), (torch.zeros(2, 3),))
    torch.export.save(program, tmp_path / "m.pt2")
    batch = {"anything": _read_only(np.zeros((2, 3), np.float32))}
    (output,) = Predictor(tmp_path / "m.pt2")(batch).values()
    assert np.all(output == 1)
    assert np.all(batch["anything"] == 0) and not batch["anything"].flags.writeable


def test_the_only_column_needs_no_name(path):
    x = _read_only(_rows())
    outputs = predictor(path)()({"data": x})
    np.testing.assert_array_equal(outputs["total"], x.sum(1))


@pytest.mark.parametrize(
    ("settings", "batch", "said"),
    [
        ({}, {"a": np.zeros(1), "b": np.zeros(1)}, r"no column 'x'; the data have \['a', 'b'\]"),
        ({"columns": {"x": "c"}}, {"a": np.zeros(1), "b": np.zeros(1)}, "no column 'c'"),
        ({"keep": ["key"]}, {"x": _rows()}, "no column 'key'"),
        ({}, {"x": np.array([np.zeros(1), np.zeros(2)], dtype=object)}, "rows of different shapes"),
        ({}, {"x": np.zeros((1, WIDTH))}, "expects float32, got float64"),
        ({"columns": {"y": "x"}}, {}, r"\['y'\] are no inputs"),
        ({"keep": ["total"]}, {}, r"\['total'\] cannot be kept"),
    ],
)
def test_columns_that_do_not_fit_are_an_error(path, settings, batch, said):
    with pytest.raises(InputError, match=said):
        Predictor(path, **settings)(batch)


def test_a_missing_file_is_found_before_the_actors_start(tmp_path):
    with pytest.raises(InputError, match="no file or folder"):
        predictor(tmp_path / "none.onnx")
