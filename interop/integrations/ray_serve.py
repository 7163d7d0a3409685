"""Any exported model as a Ray Serve deployment that runs requests in batches.

Its HTTP side speaks TensorFlow Serving's REST protocol, so one client (``interop.integrations.serving``) is for both.

Source: https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from interop.errors import InputError, InteropError
from interop.extras import require
from interop.integrations._batching import Answer, Batcher, Request
from interop.integrations._serving_json import read_inputs, write_metadata, write_outputs
from interop.integrations.ray import cluster

__all__ = ["ModelServer", "Settings", "deployment", "running"]

SIGNATURE = "serving_default"


@dataclass(frozen=True)
class Settings:
    """What a replica is made of.

    Attributes:
        path: the model file, on a disk that every machine of the cluster sees.
        name: of the model, in URLs.
        max_batch_size: requests in one run at most; 1 runs each alone.
        batch_wait_timeout_s: seconds that a request waits for others to fill its batch.
        options: of ``interop.load``.
    """

    path: str
    name: str
    max_batch_size: int = 32
    batch_wait_timeout_s: float = 0.005
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_batch_size < 1 or self.batch_wait_timeout_s < 0:
            raise InputError(
                f"max_batch_size is at least 1 and batch_wait_timeout_s at least 0, got {self.max_batch_size} and "
                f"{self.batch_wait_timeout_s}"
            )


class ModelServer:
    """A replica: a runtime, and the batches that go through it."""

    def __init__(self, settings: Settings) -> None:
        """Load the model.

        Args:
            settings: see there.
        """
        from interop.runtimes import load

        serve = require("ray.serve", "to serve a model")
        self._settings = settings
        self._runtime = load(settings.path, **settings.options)
        self._batcher = Batcher(self._runtime)

        @serve.batch(max_batch_size=settings.max_batch_size, batch_wait_timeout_s=settings.batch_wait_timeout_s)  # type: ignore[untyped-decorator]  # ray.serve is not typed
        async def run(requests: Sequence[Request]) -> list[Answer | InteropError]:
            return await asyncio.to_thread(self._batcher.run, requests)  # meanwhile the next batch gathers

        self._run = run

    async def predict(self, inputs: Request) -> Answer:
        """Answer one request.

        Args:
            inputs: ``{input name: array}`` as the model takes them, batch axis included; any number of rows.

        Returns:
            ``{output name: NumPy array}``.

        Raises:
            InputError: the inputs do not fit the signature; other requests are not affected.
        """
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        self._batcher.check(arrays)
        answer: Answer | InteropError = await self._run(arrays)
        if isinstance(answer, InteropError):
            raise answer
        return answer

    async def __call__(self, request: Any) -> Any:
        """``POST /v1/models/NAME:predict`` and ``GET /v1/models/NAME/metadata``, as TensorFlow Serving has them."""
        try:
            status, content = 200, await self._respond(request)
        except _UnknownError as error:
            status, content = 404, {"error": str(error)}
        except InputError as error:
            status, content = 400, {"error": str(error)}
        except InteropError as error:
            status, content = 500, {"error": str(error)}
        responses = require("starlette.responses", "to serve a model over HTTP")
        body = json.dumps(content)  # NaN and the infinities as TensorFlow Serving writes them; Starlette's own refuses
        return responses.Response(body, status_code=status, media_type="application/json")

    async def _respond(self, request: Any) -> dict[str, Any]:
        place = f"/v1/models/{self._settings.name}"
        path, method = request.url.path.rstrip("/"), request.method
        if method == "GET" and path.endswith(f"{place}/metadata"):
            return write_metadata(self._runtime.signature, self._settings.name, SIGNATURE)
        if method != "POST" or not path.endswith(f"{place}:predict"):
            raise _UnknownError(f"{method} {path} is not here; POST {place}:predict and GET {place}/metadata are")
        try:
            message = json.loads(await request.body())
        except (ValueError, RecursionError) as error:
            raise InputError(f"the request is no JSON: {error}") from error
        inputs, layout = read_inputs(message, self._runtime.signature)
        if (asked := message.get("signature_name", SIGNATURE)) != SIGNATURE:
            raise InputError(f"no signature {asked!r}; there is {SIGNATURE}")
        return write_outputs(await self.predict(inputs), layout)


class _UnknownError(InteropError):
    """A URL that leads nowhere."""


def deployment(
    model: Any,
    *,
    name: str | None = None,
    max_batch_size: int = 32,
    batch_wait_timeout_s: float = 0.005,
    num_replicas: int = 1,
    options: Mapping[str, Any] | None = None,
    **ray_options: Any,
) -> Any:
    """A Ray Serve application that answers with a model.

    Requests are run together where the first axis of all inputs and outputs is one symbol and the rows do not depend on each
    other, which each replica tries on made inputs when it starts (int8 models that find their ranges at run time do depend);
    other models run request by request.

    Args:
        model: path of a model file or SavedModel, or an ``ExportedModel`` that was saved.
        name: of the model in URLs; that of the file where None.
        max_batch_size: requests in one run at most.
        batch_wait_timeout_s: seconds that a request waits for others.
        num_replicas: processes that hold the model.
        options: of ``interop.load``, such as ``{"threads": 2}``.
        **ray_options: of ``ray.serve.deployment``, such as ``ray_actor_options``.

    Returns:
        What ``running`` and ``ray.serve.run`` take.

    Raises:
        InputError: no file, or settings that are none.
        MissingExtraError: Ray Serve is not installed.

    Example:
        >>> with running(deployment("digits.onnx")) as handle:
        ...     handle.predict.remote({"image": images}).result()["output"]
    """
    path = _path_of(model)
    settings = Settings(str(path), name or path.stem, max_batch_size, batch_wait_timeout_s, dict(options or {}))
    serve = require("ray.serve", "to serve a model")
    asked = {"max_ongoing_requests": 4 * max_batch_size, **ray_options}  # Ray's own 5 would be the largest batch
    made = serve.deployment(ModelServer, name=settings.name, num_replicas=num_replicas, **asked)
    return made.bind(settings)


@contextlib.contextmanager
def running(
    application: Any,
    *,
    address: str | None = None,
    cpus: int | None = None,
    port: int = 8000,
    host: str = "127.0.0.1",
    name: str = "interop",
) -> Iterator[Any]:
    """Run an application until the ``with`` ends.

    Args:
        application: what ``deployment`` gave.
        address: of a Ray cluster, such as ``"auto"`` or ``"ray://host:10001"``; None starts one on this machine and ends it
            again. A Ray that this process is connected to is used as it is.
        cpus: of a cluster that is started here; all where None.
        port: of HTTP; where Serve runs already, it stays on its own.
        host: which addresses HTTP listens on.
        name: of the application in Ray Serve.

    Yields:
        The handle: ``handle.predict.remote(inputs).result()``.
    """
    ray = require("ray", "to serve a model")
    serve = require("ray.serve", "to serve a model")
    with cluster(ray, address, cpus), _hushed():
        before = bool(serve.status().applications)
        serve.start(http_options={"host": host, "port": port})
        try:
            yield serve.run(application, name=name)
        finally:
            serve.delete(name) if before else serve.shutdown()


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Without Serve's notes on every step; what goes wrong is still said."""
    serve = logging.getLogger("ray.serve")
    level = serve.level
    serve.setLevel(logging.WARNING)
    try:
        yield
    finally:
        serve.setLevel(level)


def _path_of(model: Any) -> Path:
    if not isinstance(model, (str, os.PathLike)):
        model = getattr(model, "path", None)
    if model is None:
        raise InputError("replicas load a file: give a path, or save the exported model first (exported.save(path))")
    path = Path(model).absolute()
    if not path.exists():
        raise InputError(f"no file or folder {path}; every replica loads it from there")
    return path
