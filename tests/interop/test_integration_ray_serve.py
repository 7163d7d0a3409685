"""Ray Serve: batches, each request its own answer, and the HTTP side by the client of TensorFlow Serving."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import interop
from benchmarks.serve_load import Numbered, export, request, run_load
from exporters import export_model
from interop.errors import InputError
from interop.integrations._batching import Batcher, batch_symbol
from interop.integrations.ray_serve import deployment, running
from interop.integrations.serving import ServingClient, ServingError

pytest.importorskip("ray.serve", reason="Ray Serve is not installed")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def handle(path: Path, port: int) -> Iterator[Any]:
    with running(deployment(path, max_batch_size=16, options={"threads": 1}), cpus=2, port=port) as handle:
        yield handle


def _client(port: int, **options: Any) -> ServingClient:
    return ServingClient(f"127.0.0.1:{port}", "numbered", protocol="rest", timeout=30, **options)


def test_300_requests_of_several_clients_each_get_their_own_answer(handle, port):
    by_http = _client(port).run
    by_handle = lambda inputs: handle.predict.remote(inputs).result(timeout_s=60)  # noqa: E731 - one of two calls
    load = run_load([by_http, by_handle, by_handle, by_handle], 300)
    assert load.wrong == ()
    assert load.answers == 300


def test_a_wrong_request_is_an_error_of_its_own(handle):
    good, bad = request(5, 2), request(6, 2)
    futures = [
        handle.predict.remote({"x": good[0].numpy(), "number": good[1].numpy()}),
        handle.predict.remote({"x": bad[0].numpy()[:, :3], "number": bad[1].numpy()}),
    ]
    expected = Numbered()(*good)["scores"].detach().numpy()
    np.testing.assert_array_equal(futures[0].result(timeout_s=60)["scores"], expected)
    with pytest.raises(InputError, match="expects 16 at axis 1"):
        futures[1].result(timeout_s=60)


@pytest.mark.parametrize("layout", ["columns", "rows"])
def test_the_client_of_tensorflow_serving_speaks_to_it(handle, port, layout):
    client = _client(port, layout=layout)
    assert {spec.name: spec.dtype for spec in client.signature.inputs} == {"x": "float32", "number": "int64"}
    x, number = request(9, 3)
    outputs = client.run({"number": number, "x": x})
    expected = Numbered()(x, number)
    assert torch.equal(outputs["scores"], expected["scores"]) and torch.equal(outputs["again"], expected["again"])


@pytest.mark.parametrize(
    ("place", "body", "status", "said"),
    [
        ("/v1/models/numbered:predict", b"{", 400, "no JSON"),
        ("/v1/models/numbered:predict", b'{"inputs": {"x": [[1.0]]}}', 400, "the inputs are"),
        ("/v1/models/numbered:predict", b'{"inputs": {"x": [["a"]], "number": [1]}}', 400, "is no float32"),
        ("/v1/models/numbered:predict", b'{"signature_name": "s", "inputs": {"x": [], "number": []}}', 400, "'s'"),
        ("/v1/models/other:predict", b"{}", 404, "POST /v1/models/numbered:predict"),
    ],
)
def test_a_wrong_http_request_is_told_why(handle, port, place, body, status, said):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{place}", body), timeout=30)
    assert caught.value.code == status
    assert said in json.loads(caught.value.read())["error"]


def test_another_name_is_not_served(handle, port):
    with pytest.raises(ServingError, match="HTTP 404"):
        _ = ServingClient(f"127.0.0.1:{port}", "other", protocol="rest", timeout=30).signature


# ------------------------------------------------------------------------------------------------------------- batches


class Counting:
    """A runtime that counts its runs."""

    def __init__(self, runtime: interop.Runtime) -> None:
        self.runtime, self.rows, self.path = runtime, [], runtime.path
        self.signature = runtime.signature

    def run(self, inputs):
        self.rows.append(len(next(iter(inputs.values()))))
        return self.runtime.run(inputs)


def _batcher(model: Any) -> tuple[Batcher, list[int]]:
    counting = Counting(interop.load(model))
    batcher = Batcher(counting)
    counting.rows.clear()
    return batcher, counting.rows


def _inputs(number: int, rows: int) -> dict[str, np.ndarray]:
    x, numbers = request(number, rows)
    return {"x": x.numpy(), "number": numbers.numpy()}


def test_requests_of_one_shape_share_a_run(path):
    batcher, runs = _batcher(path)
    answers = batcher.run([_inputs(7, 1), _inputs(8, 3), _inputs(9, 0), _inputs(10, 2)])
    assert batcher.together and runs == [6]
    for number, rows, answer in zip((7, 8, 9, 10), (1, 3, 0, 2), answers):
        expected = Numbered()(*request(number, rows))
        np.testing.assert_array_equal(answer["scores"], expected["scores"].detach().numpy(), strict=True)
        assert answer["again"].tolist() == [number] * rows
        assert answer["scores"].base is None


class Centred(torch.nn.Module):
    """A row depends on the others."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Static(torch.nn.Module):
    """One size only."""

    def forward(self, x):
        return x.reshape(2, 3) + 1


class Lookup(torch.nn.Module):
    """Fails at an index that is too large."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding.from_pretrained(torch.arange(8.0).reshape(4, 2))

    def forward(self, index):
        return self.table(index)


def test_rows_that_depend_on_each_other_are_not_mixed():
    model = export_model(Centred(), "onnx", inputs=torch.zeros(2, 3))
    batcher, runs = _batcher(model)
    assert batch_symbol(interop.load(model).signature) is not None and not batcher.together
    first, second = np.float32([[1, 2, 3], [3, 2, 1]]), np.float32([[5, 5, 5]])
    answers = batcher.run([{"x": first}, {"x": second}])
    assert runs == [2, 1]
    assert next(iter(answers[0].values())).tolist() == [[-1, 0, 1], [1, 0, -1]]
    assert next(iter(answers[1].values())).tolist() == [[0, 0, 0]]


def test_a_model_of_one_size_runs_request_by_request():
    batcher, runs = _batcher(export_model(Static(), "onnx", inputs=torch.zeros(2, 3), dynamic_shapes=None))
    answers = batcher.run([{"x": np.zeros((2, 3), np.float32)}] * 2)
    assert not batcher.together and runs == [2, 2]
    assert all(next(iter(answer.values())).tolist() == [[1] * 3] * 2 for answer in answers)


def test_a_request_that_fails_leaves_the_others_their_answers():
    batcher, _ = _batcher(export_model(Lookup(), "onnx", inputs=torch.tensor([0, 1])))
    answers = batcher.run([{"index": np.int64([0])}, {"index": np.int64([99])}, {"index": np.int64([3, 1])}])
    assert isinstance(answers[1], interop.InteropError)
    assert [next(iter(answers[n].values())).tolist() for n in (0, 2)] == [[[0, 1]], [[6, 7], [2, 3]]]


def test_what_cannot_be_deployed_is_an_error(tmp_path):
    with pytest.raises(InputError, match="save the exported model first"):
        deployment(torch.nn.Linear(1, 1))
    with pytest.raises(InputError, match="no file or folder"):
        deployment(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="max_batch_size is at least 1"):
        deployment(tmp_path, max_batch_size=0)
