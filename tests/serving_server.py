"""A small TensorFlow Serving: the Predict protocol over gRPC and REST, over SavedModels in versioned folders.

It reads requests by their wire format and tensors by TensorFlow itself, and shares no code with the client that it is for.
Source: https://www.tensorflow.org/tfx/serving/api_rest, ``tensorflow_serving/apis/predict.proto``.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from tests.wire import fields, text, the

WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"


class RefusedError(Exception):
    """An answer that is an error: a gRPC status name and a message."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """Models in memory, and what was asked of them."""

    def __init__(self, models: dict[str, Path], labels: dict[str, int] | None = None, delay: float = 0.0) -> None:
        self.labels, self.delay = labels or {}, delay
        self.warmed: list[str] = []
        self.models: dict[str, dict[int, Any]] = {}
        for name, base in models.items():
            versions = {int(folder.name): folder for folder in base.iterdir() if folder.name.isdigit()}
            self.models[name] = {number: tf.saved_model.load(str(folder)) for number, folder in versions.items()}
            for number, folder in versions.items():
                self._warm(self.models[name][number], folder)

    def _warm(self, root: Any, folder: Path) -> None:
        for record in tf.data.TFRecordDataset(str(folder / WARMUP)) if (folder / WARMUP).exists() else ():
            request = fields(the(fields(the(fields(record.numpy()), 6)), 1))  # predict_log, request
            spec = fields(the(request, 1))
            root.signatures[text(spec, 3)](**_inputs(request))
            self.warmed.append(f"{text(spec, 1)}/{folder.name}:{text(spec, 3)}")

    def signature(self, model: str, version: int | str | None, name: str) -> tuple[Any, int]:
        known = self.models.get(model, {})
        if isinstance(version, str):
            if version not in self.labels:
                raise RefusedError("INVALID_ARGUMENT", f"Unrecognized servable version label: {version}")
            version = self.labels[version]
        number = max(known, default=None) if version is None else version
        if number not in known:
            raise RefusedError("NOT_FOUND", f"Servable not found for request: {model} {version}")
        if name not in known[number].signatures:
            raise RefusedError("INVALID_ARGUMENT", f"Serving signature key {name!r} not found.")
        return known[number].signatures[name], number

    def run(self, function: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        time.sleep(self.delay)
        specs = function.structured_input_signature[1]
        if specs.keys() != inputs.keys():
            raise RefusedError("INVALID_ARGUMENT", f"input keys {sorted(inputs)} do not match {sorted(specs)}")
        try:
            return function(**inputs)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            raise RefusedError("INVALID_ARGUMENT", f"{error}"[:300]) from error


# --------------------------------------------------------------------------------------------------------------- gRPC


def _inputs(request: dict[int, list[Any]]) -> dict[str, Any]:
    entries = [fields(entry) for entry in request.get(2, [])]
    protos = {text(entry, 1): tensor_pb2.TensorProto.FromString(the(entry, 2)) for entry in entries}
    return {
        name: tf.constant(tf.make_ndarray(proto), tf.dtypes.as_dtype(proto.dtype)) for name, proto in protos.items()
    }


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited field."""
    size, length = len(data), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def _predict(server: Server, data: bytes, context: grpc.ServicerContext) -> bytes:
    request = fields(data)
    spec = fields(the(request, 1))
    version: Any = fields(the(spec, 2)).get(1, [0])[0] if 2 in spec else None
    version = text(spec, 4) if 4 in spec else version
    try:
        function, _ = server.signature(text(spec, 1), version, text(spec, 3))
        outputs = server.run(function, _inputs(request))
    except RefusedError as error:
        context.abort(getattr(grpc.StatusCode, error.status), str(error))
    protos = {name: tf.make_tensor_proto(value).SerializeToString() for name, value in outputs.items()}
    entries = (_field(1, _field(1, name.encode()) + _field(2, proto)) for name, proto in protos.items())
    return b"".join(entries) + _field(2, the(request, 1))


@contextmanager
def serve_grpc(server: Server) -> Iterator[str]:
    """The address of a server while it runs."""
    handler = grpc.unary_unary_rpc_method_handler(lambda data, context: _predict(server, data, context))
    service = grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", {"Predict": handler})
    options = [("grpc.max_receive_message_length", -1)]
    running = grpc.server(futures.ThreadPoolExecutor(2), handlers=[service], options=options)
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        running.stop(None).wait()


# --------------------------------------------------------------------------------------------------------------- REST


def _from_json(value: Any, spec: Any) -> Any:
    if spec.dtype == tf.string:
        decode = np.vectorize(lambda x: base64.b64decode(x["b64"]) if isinstance(x, dict) else x.encode(), otypes="O")
        return tf.constant(decode(np.array(value, dtype=object)), tf.string)
    return tf.constant(np.array(value), spec.dtype) if np.size(value) else tf.zeros(np.shape(value), spec.dtype)


def _to_json(value: Any) -> Any:
    if value.dtype == tf.string:
        return json.loads(
            json.dumps(value.numpy(), default=lambda x: x.tolist() if hasattr(x, "tolist") else x.decode())
        )
    if value.dtype == tf.float32:  # as few digits as tell the number from its neighbours
        return np.vectorize(lambda x: float(np.format_float_positional(x, unique=True)), otypes="O")(
            value.numpy()
        ).tolist()
    return value.numpy().tolist()


def _answer(server: Server, path: str, message: Any) -> dict[str, Any]:
    name, *rest = path.removeprefix("/v1/models/").split("/")
    version = {"versions": int, "labels": str}[rest[0]](rest[1]) if rest else None
    function, number = server.signature(name, version, (message or {}).get("signature_name", "serving_default"))
    if message is None:
        return _metadata(server.models[name][number], name, number)
    specs = function.structured_input_signature[1]
    if "instances" in message:
        rows = message["instances"]
        bare = len(specs) == 1 and not isinstance(rows[0], dict)
        found = {n: [row if bare else row[n] for row in rows] for n in specs}
    else:
        found = message["inputs"] if isinstance(message["inputs"], dict) else {next(iter(specs)): message["inputs"]}
    known = {n: _from_json(value, specs[n]) if n in specs else value for n, value in found.items()}
    outputs = {n: _to_json(value) for n, value in server.run(function, known).items()}
    if "inputs" in message:
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}
    rows = [dict(zip(outputs, row)) for row in zip(*outputs.values())]
    return {"predictions": rows if len(outputs) > 1 else [next(iter(row.values())) for row in rows]}


def _metadata(root: Any, name: str, version: int) -> dict[str, Any]:
    def info(spec: Any) -> dict[str, Any]:
        dims = [{"size": str(-1 if size is None else size), "name": ""} for size in spec.shape]
        kind = tf.dtypes.as_dtype(spec.dtype).as_datatype_enum
        return {
            "dtype": types_pb2.DataType.Name(kind),
            "tensor_shape": {"dim": dims, "unknown_rank": False},
            "name": "",
        }

    found = {
        key: {
            "inputs": {n: info(spec) for n, spec in function.structured_input_signature[1].items()},
            "outputs": {n: info(spec) for n, spec in function.structured_outputs.items()},
            "method_name": "tensorflow/serving/predict",
        }
        for key, function in root.signatures.items()
    }
    spec = {"name": name, "signature_name": "", "version": str(version)}
    return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": found}}}


@contextmanager
def serve_rest(server: Server) -> Iterator[str]:
    """The address of a server while it runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(None)

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, message: Any) -> None:
            try:
                status, answer = (
                    200,
                    _answer(server, self.path.removesuffix("/metadata").removesuffix(":predict"), message),
                )
            except RefusedError as error:
                status, answer = (404 if error.status == "NOT_FOUND" else 400), {"error": str(error)}
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{running.server_address[1]}"
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
